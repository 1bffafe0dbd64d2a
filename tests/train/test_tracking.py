"""Metrics and tables in their files and in MLflow, over a resume too."""

import base64
import importlib.util
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from easyvideor1.rewards import score_many
from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Group
from easyvideor1.train.config import TrackingConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.run_folder import Checkpoint, RunFolder
from easyvideor1.train.tracking import open_tracker
from easyvideor1.train.tracking_extras import WandbSink
from tests.clips import video


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


def test_a_page_shows_the_frames_and_every_answer(table, folder, group):
    clip = video(12, height=32, width=64, seed=3)
    config = table.config(folder.path, steps=3)
    config.tracking.samples_frames = 4
    text = "</pre><script>alert('no')</script>"
    told = replace(group, completions=(replace(group.completions[0], text=text),) * 3)
    with open_tracker(config, folder, None, lambda sample: [clip]) as tracker:
        tracker.log_groups([told], step=1)
        tracker.log_groups([told], step=2)
    (path,) = folder.sample_pages.glob("*.html")
    page = path.read_text()
    assert path.name == "step_000001.html"
    shown = []
    for data in re.findall(r'src="data:image/png;base64,([^"]+)"', page):
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        shown.append(np.asarray(image).transpose(2, 0, 1))
    assert np.array_equal(np.stack(shown), clip.frames[[0, 4, 7, 11]])
    assert "4 of 12 frames of 64 x 32" in page
    assert page.count("&lt;/pre&gt;&lt;script&gt;") == 3 and "<script>" not in page
    for fact in (group.sample.id, "A. red", f"{group.scores[0].value:.3f}", "no_answer"):
        assert fact in page

    def missing(sample):
        raise UserError("not in the cache")

    with open_tracker(config, folder, None, missing) as tracker:
        tracker.log_groups([group], step=10)
    assert "not in the cache" in (folder.sample_pages / "step_000010.html").read_text()
    config.tracking.samples_frames = 0
    with open_tracker(config, folder, None, missing) as tracker:
        tracker.log_groups([group], step=20)
    assert len(list(folder.sample_pages.iterdir())) == 2


def test_an_mlflow_run_has_params_metrics_tables_and_goes_on_after_a_resume(
    table, folder, group, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path / "outputs"))
    config = table.config(folder.path, steps=4)
    config.tracking = TrackingConfig(mlflow=True)
    with open_tracker(config, folder, None, lambda sample: []) as tracker:
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
    page = client.download_artifacts(run.info.run_id, "samples/step_000001.html")
    assert group.sample.id in Path(page).read_text()


def test_tensorboard_has_every_step_once_after_a_resume(table, folder, group):
    config = table.config(folder.path, steps=3)
    config.tracking = TrackingConfig(mlflow=False, tensorboard=True, samples_every=1)
    with open_tracker(config, folder, None) as tracker:
        for step in (1, 2, 3):
            tracker.log({"warm_start/learner/loss": float(step)}, step=step)
        for step in (0, 1, 2):
            tracker.log({"reward/mean": 0.5 + step}, step=step)
        tracker.log_groups([group], step=1)
    start = checkpoint_of(folder, {})
    start = replace(start, position=Position(step=1, warm_start_step=3))
    with open_tracker(config, folder, start) as tracker:
        tracker.log({"reward/mean": 20.0}, step=2)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def points(phase: str, name: str) -> list[tuple[int, float]]:
        events = EventAccumulator(str(folder.path / "tensorboard" / phase))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars(name)]

    assert points("training", "reward/mean") == [(0, 0.5), (1, 1.5), (2, 20.0)]
    assert points("warm_start", "warm_start/learner/loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_wandb_run_goes_on_under_its_id(table, folder, group, monkeypatch):
    """Offline; the values are those that W&B's own service has received."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = table.config(folder.path, steps=3)
    config.tracking = TrackingConfig(mlflow=False, wandb=True)

    def open_sink(start):
        tracker = open_tracker(config, folder, start)
        (sink,) = [sink for sink in tracker._sinks if isinstance(sink, WandbSink)]
        return tracker, sink._run.summary

    first, summary = open_sink(None)
    with first as tracker:
        tracker.log({"warm_start/learner/loss": 2.0}, step=4)
        tracker.log({"reward/mean": 0.25}, step=1)
        tracker.log_groups([group], step=1)
        tracker.note("checkpoint", "checkpoints/step_000001")
        assert (summary["reward/mean"], summary["step"]) == (0.25, 1)
        assert (summary["warm_start/learner/loss"], summary["warm_start/step"]) == (2.0, 4)
        assert summary["checkpoint"] == "checkpoints/step_000001"
        assert summary["samples"]["nrows"] == 3
    second, summary = open_sink(checkpoint_of(folder, first.identity))
    with second as again:
        assert again.identity == first.identity and first.identity["wandb_run_id"]
        again.log({"reward/mean": 0.75}, step=2)
        assert (summary["reward/mean"], summary["step"]) == (0.75, 2)
    kept = list(folder.path.glob(f"wandb/offline-run-*/run-{first.identity['wandb_run_id']}.wandb"))
    assert len(kept) == 2


def test_a_missing_package_is_named_before_anything_starts(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("tensorboard", "wandb"):
        install = rf"tracking\.{name}=true needs the package {name}.*easyvideor1-train\[{name}\]"
        with pytest.raises(UserError, match=install):
            TrackingConfig(**{name: True})
