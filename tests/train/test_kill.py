"""A run that is killed at any moment, and started again, ends as if it had not been.

`make test` kills once. The slow suite kills ten times, at random moments between the start of the
loop and its end, with checkpoints that are written while training goes on.
"""

import json
import random
import time

import pytest

from easyvideor1.schema import jsonl
from easyvideor1.train.run_folder import RunFolder
from tests.train.policy_cases import make_learner
from tests.train.run_process import RunProcess, small_run, started

NUM_KILLS = 10
MAX_STEPS = 4
"""That a start takes before it is killed."""


def assert_sound(folder: RunFolder, model_path) -> None:
    """Every checkpoint that has a name is whole: it can be read, and a learner loads the newest."""
    checkpoints = folder.checkpoints()
    for checkpoint in checkpoints:
        json.loads((checkpoint.folder / "state.json").read_text())
    full = [checkpoint for checkpoint in checkpoints if checkpoint.is_full]
    if full:
        learner = make_learner(model_path)
        learner.load(full[-1].learner)
        assert learner.num_updates == full[-1].position.step


def assert_each_step_once(run: RunProcess, steps: int) -> None:
    assert run.steps() == list(range(1, steps + 1))
    sampled = [row["step"] for row in jsonl.read(run.folder.samples)]
    assert sampled == sorted(sampled)


def kill_after(run: RunProcess, steps: int, wait_s: float) -> None:
    """Kill the command when it has logged so many further steps, and a moment later."""
    run.until(lambda: "ready after" in run.output)
    begun = len(run.steps())
    run.until(lambda: len(run.steps()) >= begun + steps)
    time.sleep(wait_s)
    run.kill()


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("writing", ["at once", "meanwhile"])
def test_a_run_killed_while_it_saves_is_continued(writing, sharp_model_path, toybox_dir, tmp_path):
    """The kill comes with the first file of the second checkpoint."""
    asynchronous = f"learner.async_save={str(writing == 'meanwhile').lower()}"
    overrides = small_run(sharp_model_path, toybox_dir, "train.steps=4", asynchronous)
    with started(overrides, tmp_path) as run:
        checkpoints = run.folder.path / "checkpoints"
        run.until(lambda: any(checkpoints.glob(".step_000002.*/learner/*")))
        run.kill()
        assert run.left_over() == []
    assert_sound(run.folder, sharp_model_path)
    with started(overrides, tmp_path) as again:
        assert again.end() == 0
        assert "continuing from" in again.output
    assert_each_step_once(again, 4)
    assert not list(checkpoints.glob(".*")), "what the killed save left behind"


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_ten_kills_at_random_moments_lose_no_more_than_a_step(
    sharp_model_path, toybox_dir, tmp_path
):
    moments = random.Random(7)
    newest = 0
    for number in range(NUM_KILLS):
        asynchronous = f"learner.async_save={str(number % 2 == 1).lower()}"
        overrides = small_run(sharp_model_path, toybox_dir, "train.steps=500", asynchronous)
        with started(overrides, tmp_path) as run:
            kill_after(run, moments.randint(0, MAX_STEPS), moments.uniform(0, 1))
            assert run.left_over() == []
            logged = run.steps()
        assert_sound(run.folder, sharp_model_path)
        before, newest = (
            newest,
            max((checkpoint.position.step for checkpoint in run.folder.checkpoints()), default=0),
        )
        assert newest >= before
        assert logged == list(range(1, len(logged) + 1))
        # A step is logged before it is saved; asynchronous, one more may be under way.
        assert len(logged) - newest <= 1 + number % 2
    assert newest >= NUM_KILLS // 2, "the kills came too early to say anything"
    overrides = small_run(sharp_model_path, toybox_dir, f"train.steps={newest + 1}")
    with started(overrides, tmp_path) as last:
        assert last.end() == 0
    assert_each_step_once(last, newest + 1)
    assert last.left_over() == []
