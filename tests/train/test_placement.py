"""Places of engines and ranks: what is asked for, what is said when it is not there, two nodes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.schema import environment, jsonl
from easyvideor1.schema.errors import UserError
from easyvideor1.train import cli
from easyvideor1.train.config import (
    PlacementStrategy,
    TrainConfig,
    TrainRayConfig,
    WeightTransferName,
)
from easyvideor1.train.placement import CPU_SHARE, bundles_of, reserve
from easyvideor1.train.run_folder import RunFolder
from tests.train.test_real_run import composed


def config_of(table, tmp_path: Path, *, ranks: int, engines: int = 1, **ray) -> TrainConfig:
    config = table.config(tmp_path)
    return replace(
        config,
        learner=replace(config.learner, ranks=ranks),
        rollout=replace(config.rollout, engines=engines),
        ray=TrainRayConfig(**ray),
    )


def test_rank_0_and_the_engines_are_reserved_together(table, tmp_path):
    config = config_of(table, tmp_path, ranks=3, engines=2)
    first, *others = bundles_of(config, {"engine": 2, "rank": 1})
    assert list(map(str, first.seats)) == ["engine 0", "engine 1", "rank 0"]
    assert first.resources == {"CPU": 3 * CPU_SHARE, "GPU": 5}
    assert [list(map(str, bundle.seats)) for bundle in others] == [["rank 1"], ["rank 2"]]
    assert [bundle.resources for bundle in others] == [{"CPU": CPU_SHARE, "GPU": 1}] * 2
    without = bundles_of(config, {"engine": 0, "rank": 0})
    assert [list(bundle.resources) for bundle in without] == [["CPU"]] * 3


def test_an_engine_and_a_rank_that_take_turns_get_a_gpu_together(table, tmp_path):
    config = config_of(table, tmp_path, ranks=2, engines=2)
    config.rollout.colocated = True
    config.rollout.weight_transfer = WeightTransferName.ipc
    bundles = bundles_of(config, {"engine": 0.5, "rank": 0.5})
    assert [list(map(str, bundle.seats)) for bundle in bundles] == [
        ["engine 0", "rank 0"],
        ["engine 1", "rank 1"],
    ]
    assert [bundle.gpus for bundle in bundles] == [1, 1]


def test_engines_that_get_weights_from_gpu_to_gpu_may_be_anywhere(table, tmp_path):
    config = config_of(table, tmp_path, ranks=2, engines=1)
    config.rollout.weight_transfer = WeightTransferName.nccl
    bundles = bundles_of(config, {"engine": 4, "rank": 1})
    assert [str(seat) for bundle in bundles for seat in bundle.seats] == [
        "rank 0",
        "rank 1",
        "engine 0",
    ]
    assert [bundle.gpus for bundle in bundles] == [1, 1, 4]


def test_actors_that_share_gpus_round_up_to_whole_ones_only_beyond_one(table, tmp_path):
    config = config_of(table, tmp_path, ranks=1, engines=1)
    assert bundles_of(config, {"engine": 0.4, "rank": 0.6})[0].gpus == 1
    assert bundles_of(config, {"engine": 0.5, "rank": 0.25})[0].gpus == 0.75
    assert bundles_of(config, {"engine": 1, "rank": 0.5})[0].gpus == 2


def test_gpus_that_this_machine_lacks_are_refused_at_once(table, tmp_path):
    config = config_of(table, tmp_path, ranks=2, rank_gpus=3, engine_gpus=2)
    with ray_session(config.ray, num_cpus=2, num_gpus=1):
        with pytest.raises(UserError) as error, reserve(config):
            pass
        text = str(error.value)
        assert "need 5 GPUs for engine 0 and rank 0, 3 GPUs for rank 1, each on one node" in text
        assert " with 1 GPUs and 2 cores; 1 GPUs are free in all" in text
        assert "learner.ranks" in text and "ray.rank_gpus" in text

        # GPUs are there, but others hold them: that shows in time.
        config = config_of(table, tmp_path, ranks=1, rank_gpus=1, placement_timeout_s=1)
        with reserve(config) as placement:
            assert str(placement) == "this machine: engine 0, rank 0"
            with pytest.raises(UserError, match="after 1 s there is no place"), reserve(config):
                pass
        # What was reserved is free again, as soon as Ray has taken note of it.
        with reserve(config_of(table, tmp_path, ranks=1, rank_gpus=1, placement_timeout_s=60)):
            pass


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[str]:
    """Address of a cluster whose two nodes are processes of this machine."""
    environment.prepare()
    environment.prepare_local_ray()
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        cluster.add_node(**node)
        cluster.wait_for_nodes(timeout=60)
        assert cluster.address is not None
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_ranks_on_two_nodes_train_one_update(
    two_nodes, tiny_model_path, toybox_dir, tmp_path, capsys
):
    config = composed(
        tiny_model_path,
        toybox_dir,
        tmp_path,
        f"ray.address={two_nodes}",
        f"ray.placement={PlacementStrategy.spread.value}",
        "learner.ranks=2",
        "train.steps=1",
        "train.warm_start.steps=0",
        "mixing=none",
        "tracking.mlflow=false",
    )
    cli.run(config)
    said = capsys.readouterr().out
    first, second = said.partition("learner rank(s) on ")[2].partition("; logs in")[0].split("; ")
    assert first.endswith(": engine 0, rank 0") and second.endswith(": rank 1")
    assert "2 nodes with torch" in said
    (row,) = [
        row for row in jsonl.read(RunFolder(tmp_path / "run").metrics) if "reward/mean" in row
    ]
    assert row["learner/mismatch_max"] < 2e-3
