"""The preflight: what it reads, what it says about it, and that a refusal ends the run."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.schema.errors import UserError
from easyvideor1.train import preflight
from easyvideor1.train.placement import Seat
from easyvideor1.train.preflight import (
    GIB,
    MIB,
    Finding,
    LinkFacts,
    NodeFacts,
    Verdict,
    judge_links,
    judge_memory,
    judge_peer_access,
    judge_shared_memory,
    judge_versions,
    measure_link,
    num_weights,
    report,
    shared_bytes_of,
)

NODE = NodeFacts(
    address="10.0.0.1",
    versions={"torch": "2.13.0", "ray": "2.60.0"},
    available_bytes=32 * GIB,
    shared_bytes=GIB,
)


def test_this_node_is_described_within_a_second():
    began = time.monotonic()
    facts = preflight.look_around("127.0.0.1")
    assert time.monotonic() - began < 1
    assert facts.versions["torch"] == torch.__version__.partition("+")[0]
    assert facts.versions["easyvideor1-train"]
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert 0 < facts.available_bytes < total
    assert facts.shared_bytes > 0


def test_weights_are_counted_from_the_headers(tiny_model_path, tmp_path):
    # The tied head is stored once.
    model = AutoModelForImageTextToText.from_pretrained(tiny_model_path)
    assert num_weights(tiny_model_path) == sum(p.numel() for p in model.parameters())
    model.save_pretrained(tmp_path, max_shard_size="1MB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert num_weights(str(tmp_path)) == num_weights(tiny_model_path)


def test_a_model_that_is_not_here_yet_is_a_warning():
    assert num_weights("nobody/has-this-model") is None
    finding = judge_memory(NODE, None, 1, bucket_bytes=GIB)
    assert finding.verdict is Verdict.warn
    assert "unknown until it has been downloaded" in finding.detail


def test_memory_is_four_bytes_a_weight_for_each_rank_and_a_bucket_to_publish():
    # 8 * 2^30 weights: 32 GiB for one rank, which is all there is.
    weights = 8 * GIB
    assert judge_memory(NODE, weights, 1, bucket_bytes=0).verdict is Verdict.ok
    refused = judge_memory(NODE, weights, 1, bucket_bytes=GIB)
    assert refused.verdict is Verdict.refused
    assert "10.0.0.1 has 32.00 GiB available; its ranks load 32.00 GiB" in refused.detail
    assert "publish through 1.00 GiB" in refused.detail
    small = judge_memory(NODE, GIB // 8, 2, bucket_bytes=GIB)
    assert "load 1.00 GiB and publish through 0.50 GiB" in small.detail


def test_a_small_dev_shm_is_a_warning_that_says_how_to_enlarge_it():
    assert judge_shared_memory(NODE, GIB).verdict is Verdict.ok
    finding = judge_shared_memory(NODE, GIB + 1)
    assert finding.verdict is Verdict.warn
    assert "--shm-size" in finding.detail


def test_shared_memory_is_needed_by_ray_and_by_engines_of_several_gpus(table, tmp_path):
    config = table.config(tmp_path)
    seats = [Seat("engine", 0), Seat("engine", 1), Seat("rank", 0)]
    assert shared_bytes_of(config, seats) == 256 * MIB
    config.rollout.engine.tensor_parallel_size = 2
    config.rollout.engine.media_cache_gb = 1.5
    assert shared_bytes_of(config, seats) == 256 * MIB + 3 * GIB
    assert shared_bytes_of(config, seats[2:]) == 256 * MIB
    config.ray.address = "auto"
    assert shared_bytes_of(config, seats[2:]) == 0


def test_nodes_of_different_versions_are_refused_by_package_and_node():
    assert judge_versions([NODE, NODE]).verdict is Verdict.ok
    other = replace(NODE, address="10.0.0.2", versions={"torch": "2.12.0"})
    finding = judge_versions([NODE, other])
    assert finding.verdict is Verdict.refused
    assert "torch is 2.13.0 on 10.0.0.1, 2.12.0 on 10.0.0.2" in finding.detail
    assert "ray is 2.60.0 on 10.0.0.1, none on 10.0.0.2" in finding.detail


def test_gpus_that_do_not_reach_each_other_are_named():
    assert judge_peer_access(NODE).verdict is Verdict.ok
    finding = judge_peer_access(replace(NODE, gpu_pairs_without_peer_access=((0, 1), (2, 3))))
    assert finding.verdict is Verdict.warn and "(0-1, 2-3)" in finding.detail


@pytest.mark.parametrize(
    ("links", "verdict", "words"),
    [
        ([None], Verdict.ok, "one rank"),
        ([LinkFacts(backend="gloo", bus_gb_s=0.1)] * 2, Verdict.ok, "0.1 GB/s over gloo among 2"),
        (
            [LinkFacts(backend="nccl", bus_gb_s=90.0), LinkFacts(backend="nccl", bus_gb_s=4.0)],
            Verdict.warn,
            "4 GB/s over nccl among 2 ranks, below 5; see with NCCL_DEBUG=INFO",
        ),
        (
            [LinkFacts(backend="nccl", bus_gb_s=90.0, ipc_error="operation not supported")] * 2,
            Verdict.warn,
            "GPU memory cannot be shared between processes: operation not supported",
        ),
    ],
)
def test_links_are_judged_by_the_slowest(links, verdict, words):
    finding = judge_links(links)
    assert finding.verdict is verdict and words in finding.detail


def test_a_single_process_has_no_link_to_measure():
    assert measure_link(torch.device("cpu")) is None


def test_a_refusal_ends_the_run_after_the_whole_table(capsys):
    findings = [
        Finding(verdict=Verdict.ok, name="versions", detail="1 node"),
        Finding(verdict=Verdict.refused, name="host memory", detail="too little"),
        Finding(verdict=Verdict.warn, name="shared memory", detail="small"),
    ]
    with pytest.raises(UserError, match=r"before models are loaded\. host memory: too little"):
        report(findings)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "refused", "warn"]
    report(findings[::2])


def test_nothing_heavy_is_imported_to_look_around():
    probe = (
        "import sys\n"
        "from easyvideor1.train.preflight import look_around\n"
        "look_around('here')\n"
        "print([m for m in ('torch', 'vllm', 'ray', 'transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
