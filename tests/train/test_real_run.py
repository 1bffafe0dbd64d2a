"""Whole runs with nothing replaced: vLLM, FSDP2 on two ranks, Ray, MLflow, the frame cache."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.preprocess import decode_counter
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from easyvideor1.train import cli
from easyvideor1.train.config import Job, TrainConfig, register
from easyvideor1.train.run_folder import RunFolder


def composed(model_path: str, data: Path, outputs: Path, *overrides: str) -> TrainConfig:
    register()
    common = [
        f"model.path={model_path}",
        "model.build=null",
        f"data.train=[{data / 'train.jsonl'}]",
        f"data.validation=[{data / 'validation.jsonl'}]",
        "data.toybox=null",
        "mixing=replace",
        "rollout.batch_size=4",
        "rollout.group_size=4",
        "rollout.max_new_tokens=40",
        "train.warm_start.steps=2",
        "train.warm_start.batch_size=4",
        "train.save_every=1",
        f"output_dir={outputs / 'run'}",
    ]
    return compose("train", [*common, *overrides], TrainConfig)


def children() -> set[str]:
    """Command lines of the living processes below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(entry.parent.name)] = int(parent)
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {
        Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        for pid in below - {os.getpid()}
        if Path(f"/proc/{pid}/cmdline").exists()
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "stops", [(1,), pytest.param((1, 2), marks=pytest.mark.slow)], ids=["one step", "continued"]
)
def test_a_run_trains_is_continued_and_leaves_a_model(
    stops, tiny_model_path, toybox_dir, tmp_path, monkeypatch
):
    """A run to each of these steps; a later one is a second Ray in this process."""
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "decodes"))
    folder = RunFolder(tmp_path / "run")
    before = children()
    configs = [
        # The checkpoints of its warm start are written while it goes on.
        composed(
            tiny_model_path,
            toybox_dir,
            tmp_path,
            f"train.steps={step}",
            "learner.ranks=2",
            "learner.async_save=true",
        )
        for step in stops
    ]
    for step, config in zip(stops, configs, strict=True):
        cli.cache_clips(config, cli.read_data(config))
        num_decoded = decode_counter.total(tmp_path / "decodes")
        accuracy = cli.run(config)
        assert accuracy is not None and 0 <= accuracy <= 1
        names = [checkpoint.position.name for checkpoint in folder.checkpoints()]
        assert names == ["warm_start_000002", *(f"step_{n:06}" for n in range(1, step + 1))]
        assert cli.run(config) == accuracy  # nothing left to do, nothing started
        assert decode_counter.total(tmp_path / "decodes") == num_decoded

    rows = jsonl.read(folder.metrics)
    assert [row["step"] for row in rows if "warm_start/learner/loss" in row] == [1, 2]
    steps = [row for row in rows if "reward/mean" in row]
    assert [row["step"] for row in steps] == list(stops)
    saved = [row for row in rows if "checkpoint/save_seconds" in row]
    assert {row["step"] for row in saved} >= set(stops)
    assert all(row["checkpoint/save_seconds"] > 0 for row in saved)
    assert all(row["checkpoint/stall_seconds"] > 0 for row in saved)
    for row in steps:
        assert 0 < row["offline/share"] < 1
        assert row["reward/offline"] == 1.0
        # The engine sampled from the very weights the learner then updates.
        assert row["learner/mismatch_max"] < 2e-3
        for reader in ("rollout", "learner"):
            assert row[f"cache/hit_rate/{reader}"] == 1.0
            assert row[f"cache/misses/{reader}"] == 0
    deadline = time.monotonic() + 30
    while (left := children() - before) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left
    mlflow_holds_one_run_with_all_steps(tmp_path, list(stops))
    exported_model_loads(folder.export)
    cli.run(replace(configs[-1], job=Job.export))
    exported = folder.path / "exports" / f"step_{stops[-1]:06}" / "model.safetensors"
    assert exported.read_bytes() == (folder.export / "model.safetensors").read_bytes()


def mlflow_holds_one_run_with_all_steps(outputs: Path, steps: list[int]) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{outputs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("easyvideor1")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["checkpoint"].endswith(f"step_{steps[-1]:06}")
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert [point.step for point in history] == steps


def exported_model_loads(folder: Path) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(folder)
    processor = AutoProcessor.from_pretrained(folder)
    turn = [{"role": "user", "content": [{"type": "text", "text": "Which colour?"}]}]
    inputs = processor.apply_chat_template(
        turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    assert model.generate(**inputs, max_new_tokens=2, do_sample=False).shape[1] > 2
