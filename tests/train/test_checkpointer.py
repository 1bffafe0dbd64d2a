"""Taking checkpoints: what is kept, when it is sealed, what it needs of the disk."""

import json
import shutil
import time
from collections import namedtuple
from pathlib import Path

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import folder_bytes
from easyvideor1.train import disk_space
from easyvideor1.train.config import WarmStartConfig
from easyvideor1.train.interfaces import (
    SAVED_PROGRESS,
    SAVED_TRAINING,
    CheckpointBytes,
    Position,
)
from easyvideor1.train.loop import train
from easyvideor1.train.retention import retention
from easyvideor1.train.run_folder import Checkpoint

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def run(table, samples, tmp_path):
    """Saves every step, writes while training goes on where `async_save` is set, and keeps two."""

    def build(**settings):
        async_save = settings.pop("async_save", False)
        settings = {"steps": 6, "save_every": 1, "validate_every": 100} | settings
        config = table.config(tmp_path / "run", **settings)
        config.learner.async_save = async_save
        return table.Run(config, samples)

    return build


def names(run) -> list[str]:
    """Of what lies in the folder, hidden or not."""
    return sorted(path.name for path in (run.folder.path / "checkpoints").iterdir())


def in_full(run) -> list[str]:
    return [c.folder.name for c in run.folder.checkpoints() if c.is_full]


def is_there(path: Path, *, timeout_s: float = 10.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.exists()


# What is kept


def made(folder: Path, step: int, validation: float | None = None, warm: int = 3) -> Checkpoint:
    position = Position(step=step, warm_start_step=warm, validation=validation)
    (folder / position.name / "learner" / SAVED_TRAINING).mkdir(parents=True)
    return Checkpoint(folder=folder / position.name, position=position, state={})


def test_the_newest_stay_in_full_the_best_as_weights_and_the_end_of_the_warm_start_in_full(
    tmp_path,
):
    ratings: dict[int, float | None] = {0: None, 1: 0.5, 2: 0.9, 3: 0.7, 4: 0.95, 5: None}
    checkpoints = [made(tmp_path, 0, warm=2)]
    checkpoints += [made(tmp_path, step, rating) for step, rating in ratings.items()]
    plan = retention(checkpoints, keep_last=2, keep_best=2)
    assert [c.folder.name for c in plan.reduced] == ["step_000002"]
    assert [c.folder.name for c in plan.removed] == [
        "warm_start_000002",
        "step_000001",
        "step_000003",
    ]
    shutil.rmtree(plan.reduced[0].learner / SAVED_TRAINING)
    assert retention(checkpoints, keep_last=2, keep_best=2).reduced == [], "it is reduced once"
    assert len(retention(checkpoints, keep_last=2, keep_best=0).removed) == 4


def test_a_run_keeps_the_weights_of_its_best_and_continues_from_its_newest(run):
    first = run(steps=5, validate_every=1)
    checkpoints = first.runtime.checkpoints
    checkpoints.restore()
    for step, accuracy in enumerate([0.2, 0.9, 0.3, 0.4, 0.5], start=1):
        checkpoints.save(Position(step=step, validation=accuracy))
    assert names(first) == ["step_000002", "step_000004", "step_000005"]
    assert in_full(first) == ["step_000004", "step_000005"]
    best = first.folder.checkpoints()[0]
    assert best.position.validation == 0.9
    assert [path.name for path in best.learner.iterdir()] == ["weights"]
    again = run(steps=6)
    train(again.config, again.runtime)
    assert list(again.tracker.of("reward/mean")) == [6]


def test_what_a_killed_removal_left_is_removed_at_the_next_start(run):
    first = run()
    train(first.config, first.runtime)
    left = first.folder.checkpoints()[0].learner / f".{SAVED_TRAINING}"
    left.mkdir()
    run()
    assert not left.exists()


# When it is sealed


def test_an_old_checkpoint_is_there_until_the_new_one_is_sealed(run):
    first = run()
    save, seen = first.policy.begin_save, []

    def begin_save(folder):
        seen.append(in_full(first))
        save(folder)

    first.policy.begin_save = begin_save
    train(first.config, first.runtime)
    assert seen[3] == ["step_000002", "step_000003"], "two are kept while the third is written"
    assert names(first) == ["step_000005", "step_000006"]


@pytest.mark.parametrize("async_save", [False, True])
def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_leaves_the_older_ones(
    run, async_save
):
    first = run(async_save=async_save)
    finish = first.policy.finish_save

    def finish_save(timeout_s=None):
        if "step_000003" in first.policy.unwritten[0].parent.name:
            raise UserError("no space left")
        finish()

    first.policy.finish_save = finish_save
    with pytest.raises(UserError, match="no space left"):
        train(first.config, first.runtime)
    first.runtime.checkpoints.close()
    assert names(first) == ["step_000001", "step_000002"]
    again = run()
    train(again.config, again.runtime)
    assert list(again.tracker.of("reward/mean")) == [3, 4, 5, 6]


def test_training_goes_on_while_a_checkpoint_is_written(run):
    """The fake learner writes on `finish_save`, which only the next save asks for."""
    first = run(async_save=True)
    update, seen = first.policy.update, []

    def update_and_look(*arguments, **settings):
        seen.append(in_full(first))
        return update(*arguments, **settings)

    first.policy.update = update_and_look
    train(first.config, first.runtime)
    one_behind = [["step_000001"], ["step_000001", "step_000002"]]
    assert seen[:4] == [[], [], *one_behind], "the one being written is not there yet"
    assert names(first) == ["step_000005", "step_000006"], "the last one is sealed on return"


def test_a_run_that_writes_meanwhile_ends_as_one_that_does_not(run, table, samples, tmp_path):
    meanwhile = run(async_save=True, warm_start=WarmStartConfig(steps=3, batch_size=2))
    train(meanwhile.config, meanwhile.runtime)
    at_once = table.Run(
        table.config(
            tmp_path / "at_once",
            steps=6,
            save_every=1,
            validate_every=100,
            warm_start=WarmStartConfig(steps=3, batch_size=2),
        ),
        samples,
    )
    train(at_once.config, at_once.runtime)
    assert names(meanwhile) == names(at_once)
    for ours, theirs in zip(
        meanwhile.folder.checkpoints(), at_once.folder.checkpoints(), strict=True
    ):
        for file in ("state.json", "learner/weights/table.json"):
            assert json.loads((ours.folder / file).read_text()) == json.loads(
                (theirs.folder / file).read_text()
            )


def test_a_checkpoint_is_sealed_as_soon_as_it_is_written(run):
    first = run(async_save=True)
    checkpoints, policy = first.runtime.checkpoints, first.policy
    checkpoints.restore()
    checkpoints.save(Position(step=1))
    assert in_full(first) == []
    policy.finish_save()  # the learner's thread has come to its end; nobody has asked yet
    assert is_there(first.folder.path / "checkpoints" / "step_000001")
    assert in_full(first) == ["step_000001"]
    metrics = checkpoints.metrics()
    assert metrics["checkpoint/gb"] == folder_bytes(first.sealed[0]) / 1e9
    assert metrics["checkpoint/stall_seconds"] < metrics["checkpoint/save_seconds"]
    assert checkpoints.metrics() == {}


def test_the_end_of_a_failed_run_seals_what_gets_whole_and_removes_what_does_not(run):
    first = run(async_save=True)
    checkpoints = first.runtime.checkpoints
    checkpoints.restore()
    checkpoints.save(Position(step=1))
    checkpoints.close()
    assert names(first) == ["step_000001"]

    def dead(timeout_s=None):
        raise UserError("rank 0 died")

    checkpoints.save(Position(step=2))
    first.policy.finish_save = dead
    checkpoints.close()
    assert names(first) == ["step_000001"]


def test_a_position_is_saved_once(run):
    """A run that is asked to save and exit between two steps may just have saved."""
    first = run(steps=2)
    train(first.config, first.runtime)
    first.runtime.checkpoints.save(Position(step=2))
    again = run(steps=4)
    position = again.runtime.checkpoints.restore()
    again.runtime.checkpoints.save(position)
    assert again.sealed == []
    assert names(again) == ["step_000001", "step_000002"]


def test_every_save_says_how_long_it_took_and_how_long_it_held_the_run_up(run):
    first = run(steps=3, warm_start=WarmStartConfig(steps=2, batch_size=2))
    train(first.config, first.runtime)
    for name in ("checkpoint/save_seconds", "checkpoint/stall_seconds", "checkpoint/gb"):
        assert list(first.tracker.of(name)) == [1, 2, 3]
        assert list(first.tracker.of(f"warm_start/{name}")) == [1, 2]


# The disk


def test_the_estimate_is_what_a_run_takes_at_most(run):
    """Against the folder itself, looked at where most of it is there; state.json is left out."""
    settings = {"steps": 6, "validate_every": 1, "export_checkpoints": True}
    first = run(warm_start=WarmStartConfig(steps=2, batch_size=2), **settings)
    sizes = CheckpointBytes(weights=1000, training=2000, export=500)
    parts = {"learner/weights": 1000, f"learner/{SAVED_TRAINING}": 2000, "export": 500}
    checkpoints, seen = first.folder.path / "checkpoints", []

    def fill(folder: Path) -> None:
        for part, size in parts.items():
            (folder / part).mkdir(parents=True, exist_ok=True)
            (folder / part / "bytes").write_bytes(bytes(size))
        found = checkpoints.rglob("bytes")
        seen.append(sum(file.stat().st_size for file in found))
        (folder / "learner" / SAVED_TRAINING / SAVED_PROGRESS).touch()

    first.policy.save = lambda folder: fill(folder.parent)
    first.policy.export = lambda folder: None
    first.runtime.checkpoints.restore()
    first.runtime.checkpoints.save(Position(warm_start_step=1))
    first.runtime.checkpoints.save(Position(warm_start_step=2))
    for step, accuracy in enumerate([0.5, 0.9, 0.4, 0.3, 0.2, 0.1], start=1):
        first.runtime.checkpoints.save(Position(step=step, validation=accuracy, warm_start_step=2))
    assert disk_space.run_bytes(first.config, sizes) == max(seen) + sizes.export


@pytest.mark.parametrize(("steps", "in_full"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_short_run_needs_no_room_for_checkpoints_it_never_takes(table, tmp_path, steps, in_full):
    config = table.config(tmp_path, steps=steps, save_every=1)
    config.learner.keep_best = 0
    sizes = CheckpointBytes(weights=10, training=20, export=5)
    assert disk_space.run_bytes(config, sizes) == in_full * 30 + 5


def test_a_run_that_will_not_fit_is_refused_before_its_first_step(run, monkeypatch):
    first = run()
    needed = disk_space.run_bytes(first.config, first.policy.checkpoint_bytes())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, needed - 1))
    with pytest.raises(UserError, match=r"has 0\.00 GiB free.*learner\.keep_last=2.*Free space"):
        train(first.config, first.runtime)
    assert first.policy.updates == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, needed))
    train(first.config, first.runtime)


def test_what_a_continued_run_has_on_the_disk_counts(run, monkeypatch):
    first = run(steps=3)
    train(first.config, first.runtime)
    again = run(steps=4)
    needed = disk_space.run_bytes(again.config, again.policy.checkpoint_bytes())
    held = folder_bytes(first.folder.path / "checkpoints")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, max(0, needed - held)))
    again.runtime.checkpoints.restore()


def test_a_save_that_does_not_fit_ends_the_run_and_leaves_the_older_ones(run, monkeypatch):
    first = run()
    free = iter([10**6, 10**6, 10**6, 10])  # before the run, and before each save
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, next(free)))
    with pytest.raises(UserError, match=r"step_000003 is not saved.*the same command"):
        train(first.config, first.runtime)
    assert names(first) == ["step_000001", "step_000002"]
