"""Metrics and tables in their files and in MLflow, over a resume too."""

import json

import pytest

from easyvideor1.rewards import score_many
from easyvideor1.schema import jsonl
from easyvideor1.schema.records import Group
from easyvideor1.train.config import TrackingConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.run_folder import Checkpoint, RunFolder
from easyvideor1.train.tracking import open_tracker


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path)


@pytest.fixture
def group(table) -> Group:
    sample = table.sample(1)
    (completions,) = table.Policy().generate([table.prompt(sample)], [3], step=1)
    scores = score_many([(sample, completion.text) for completion in completions])
    return Group(sample=sample, completions=tuple(completions), scores=tuple(scores))


def checkpoint_of(folder: RunFolder, identity: dict[str, str]) -> Checkpoint:
    position = Position(step=1)
    where = folder.path / "checkpoints" / position.name
    return Checkpoint(folder=where, position=position, state={"tracking": identity})


def test_the_files_forget_the_steps_after_the_checkpoint_that_is_continued(table, folder, group):
    config = table.config(folder.path, steps=3)
    config.tracking.samples_every = 1
    with open_tracker(config, folder, None) as tracker:
        tracker.log({"warm_start/learner/loss": 1.0}, step=1)
        tracker.log({"warm_start/learner/loss": 1.0}, step=2)
        for step in (0, 1, 2):
            tracker.log({"reward/mean": 0.5}, step=step)
            tracker.log_groups([group], step=step)
            tracker.log({}, step=step)
    with open_tracker(config, folder, checkpoint_of(folder, {})):
        rows = jsonl.read(folder.metrics)
        assert [(row["step"], len(row)) for row in rows] == [(0, 3), (1, 3)]
        assert {row["step"] for row in jsonl.read(folder.samples)} == {0, 1}
    with open_tracker(config, folder, None):
        assert jsonl.read(folder.metrics) == jsonl.read(folder.samples) == []


def test_metrics_are_appended_and_a_number_that_is_not_finite_stays_visible(table, folder):
    for start in (None, checkpoint_of(folder, {})):
        with open_tracker(table.config(folder.path, steps=3), folder, start) as tracker:
            tracker.log({"learner/loss": float("nan"), "reward/mean": 0.5}, step=1)
    rows = jsonl.read(folder.metrics)
    assert [row["step"] for row in rows] == [1, 1]
    assert rows[0]["learner/loss"] == "nan" and rows[0]["reward/mean"] == 0.5


def test_completions_are_tabled_every_few_steps(table, folder, group):
    config = table.config(folder.path, steps=30)
    config.tracking.samples_every = 10
    config.tracking.samples_groups = 1
    with open_tracker(config, folder, None) as tracker:
        for step in range(1, 21):
            tracker.log_groups([group, group], step=step)
    rows = jsonl.read(folder.samples)
    assert sorted({row["step"] for row in rows}) == [1, 10, 20]
    assert len(rows) == 9
    assert {"sample_id", "text", "reward", "reward_accuracy", "gold", "source"} <= rows[0].keys()


def test_an_mlflow_run_has_params_metrics_tables_and_goes_on_after_a_resume(
    table, folder, group, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path / "outputs"))
    config = table.config(folder.path, steps=4)
    config.tracking = TrackingConfig(mlflow=True)
    with open_tracker(config, folder, None) as tracker:
        tracker.log({"reward/mean": 0.25}, step=1)
        tracker.log_groups([group], step=1)
        tracker.note("checkpoint", "checkpoints/step_000001")
    start = checkpoint_of(folder, tracker.identity)
    with open_tracker(table.config(folder.path), folder, start) as silent:
        assert silent.identity == tracker.identity, "a checkpoint taken without MLflow keeps it"
    with pytest.raises(ConnectionError), open_tracker(config, folder, start) as tracker:
        tracker.log({"reward/mean": 0.75}, step=2)
        raise ConnectionError
    branch = RunFolder(tmp_path / "branch")
    branch.path.mkdir()
    with open_tracker(config, branch, start) as other:
        assert other.identity != tracker.identity, "a branch has a history of its own"

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'outputs' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("easyvideor1")
    assert experiment is not None
    _, run = client.search_runs([experiment.experiment_id])  # the newest first
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert [(point.step, point.value) for point in history] == [(1, 0.25), (2, 0.75)]
    assert run.data.params["rollout.group_size"] == "4"
    assert run.data.tags["checkpoint"] == "checkpoints/step_000001"
    assert run.info.status == "FAILED"
    local = client.download_artifacts(run.info.run_id, "samples/step_000001.json")
    with open(local) as file:
        assert "reward_accuracy" in json.load(file)["columns"]
