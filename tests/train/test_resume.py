"""A run that is stopped and started again does what an uninterrupted one does."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName, AlgorithmConfig
from easyvideor1.train.config import MixingConfig, MixingMode, WarmStartConfig
from easyvideor1.train.loop import train
from easyvideor1.train.run_folder import Checkpoint, RunFolder
from tests.train import replayed_run
from tests.train.policy_cases import make_learner, trainable_learner
from tests.train.rank_cases import full_moments, full_weights, run_rank, run_ranks, same_state
from tests.train.run_process import small_run, started


def config_of(table, path, steps=6, mode=MixingMode.replace):
    return table.config(
        path,
        steps=steps,
        save_every=2,
        validate_every=100,
        warm_start=WarmStartConfig(steps=4, batch_size=3),
        mixing=MixingConfig(mode=mode),
        # The estimator with something to remember.
        algorithm=AlgorithmConfig(advantage=AdvantageConfig(name=AdvantageName.ema_grpo)),
    )


def start(table, samples, path, steps=6, mode=MixingMode.replace):
    return table.Run(config_of(table, path, steps, mode), samples)


def end_state(run):
    return json.loads((run.sealed[-1] / "state.json").read_text()) | {
        "table": json.loads((run.sealed[-1] / "learner" / "weights" / "table.json").read_text())
    }


@pytest.mark.parametrize(
    ("updates_before_the_crash", "mode"),
    [
        *((count, MixingMode.replace) for count in (1, 3, 4, 5, 7, 9)),
        (7, MixingMode.gated),
        (7, MixingMode.append),
    ],
)
def test_a_crash_changes_nothing_but_time(table, samples, tmp_path, updates_before_the_crash, mode):
    straight = start(table, samples, tmp_path / "straight", mode=mode)
    train(straight.config, straight.runtime)

    crashed = start(table, samples, tmp_path / "crashed", mode=mode)
    update = crashed.policy.update

    def update_or_crash(examples, objective="policy", **settings):
        if len(crashed.policy.updates) == updates_before_the_crash:
            raise ConnectionError
        return update(examples, objective, **settings)

    crashed.policy.update = update_or_crash
    with pytest.raises(ConnectionError):
        train(crashed.config, crashed.runtime)

    resumed = start(table, samples, tmp_path / "crashed", mode=mode)
    train(resumed.config, resumed.runtime)
    assert end_state(resumed) == end_state(straight)


def test_a_finished_run_goes_on_when_asked_for_more_steps(table, samples, tmp_path):
    straight = start(table, samples, tmp_path / "straight", steps=6)
    train(straight.config, straight.runtime)

    short = start(table, samples, tmp_path / "short", steps=2)
    train(short.config, short.runtime)
    longer = start(table, samples, tmp_path / "short", steps=6)
    train(longer.config, longer.runtime)

    assert list(longer.tracker.of("reward/mean")) == [3, 4, 5, 6]
    assert end_state(longer)["table"] == end_state(straight)["table"]


# On a real learner, with answers from a file and offline ones among them


def replay(folder: Path, model_path: Path, answers: Path, *arguments: int) -> int:
    """The exit status of a run in a process of its own."""
    paths = [str(path) for path in (folder, model_path, answers)]
    command = [sys.executable, "-m", "tests.train.replayed_run", *paths, *map(str, arguments)]
    return subprocess.run(command, timeout=400).returncode


def random_state(checkpoint: Checkpoint) -> torch.Tensor:
    file = checkpoint.learner / "training" / "random_0_of_1.pt"
    return torch.load(file, weights_only=True)["cpu"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_run_ends_as_an_uninterrupted_one_to_the_last_bit(sharp_model_path, tmp_path):
    """Six steps, against a kill during the fifth while the fourth may still be written."""
    answers = tmp_path / "answers.jsonl"
    replayed_run.write_answers(answers, sharp_model_path)
    straight, killed = RunFolder(tmp_path / "straight"), RunFolder(tmp_path / "killed")
    assert replay(straight.path, sharp_model_path, answers, 6) == 0
    assert replay(killed.path, sharp_model_path, answers, 6, 5) == -signal.SIGKILL
    assert 3 <= killed.checkpoints()[-1].position.step <= 4
    assert replay(killed.path, sharp_model_path, answers, 6) == 0

    ends = [folder.checkpoints()[-1] for folder in (straight, killed)]
    assert [end.position.step for end in ends] == [6, 6]
    assert ends[0].state == ends[1].state
    assert torch.equal(*map(random_state, ends))
    learners = [make_learner(sharp_model_path) for _ in ends]
    for learner, end in zip(learners, ends, strict=True):
        learner.load(end.learner)
    assert same_state(*learners)
    next_batches = []
    for end in ends:
        data = replayed_run.data_of(replayed_run.config_of(end.folder, 6), sharp_model_path)
        data.load_state(end.state["data"])
        next_batches.append(data.take(4))
    assert next_batches[0] == next_batches[1]


@pytest.mark.slow
def test_one_rank_loads_what_two_saved(sharp_model_path, tmp_path):
    """Weights and moments; how it then goes on is told in `test_learner_ranks`."""
    run_ranks(run_rank, sharp_model_path, tmp_path, num_ranks=2)
    saved = torch.load(tmp_path / "rank0.pt", weights_only=False)["saved"]
    learner = trainable_learner(sharp_model_path)
    learner.load(tmp_path / "checkpoint")
    for ours, theirs in (
        (full_weights(learner), saved["weights"]),
        (full_moments(learner), saved["moments"]),
    ):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            torch.testing.assert_close(value, theirs[name], atol=1e-6, rtol=0)
    begun = full_weights(trainable_learner(sharp_model_path))
    assert any(not torch.equal(value, begun[name]) for name, value in saved["weights"].items())


# With the real engine, learner and Ray

SAMPLED_STEPS, KILL_AFTER_STEP = 6, 3


def sampled_texts(run: RunFolder) -> dict[tuple[int, str], list[str]]:
    """The answers by step and sample; a step that was repeated has them twice."""
    texts: dict[tuple[int, str], list[str]] = {}
    for line in run.samples.read_text().splitlines():
        row = json.loads(line)
        texts.setdefault((row["step"], row["sample_id"]), []).append(row["text"])
    return texts


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_run_samples_what_an_uninterrupted_one_does(
    sharp_model_path, toybox_dir, tmp_path
):
    """With the real engine: the same texts, weights to 1e-6."""
    overrides = small_run(
        sharp_model_path,
        toybox_dir,
        "algorithm.advantage.name=ema_grpo",
        "rollout.deterministic=true",
        "tracking.samples_every=1",
        "tracking.samples_groups=4",
        f"train.steps={SAMPLED_STEPS}",
    )
    with started(overrides, tmp_path / "killed") as first:
        sealed = first.folder.path / "checkpoints" / f"step_{KILL_AFTER_STEP:06d}"
        first.until(sealed.exists)
        first.kill()
        assert first.end() == -signal.SIGKILL
        assert first.folder.checkpoints()[-1].position.step < SAMPLED_STEPS
    runs = []
    for name in ("straight", "killed"):
        with started(overrides, tmp_path / name) as process:
            assert process.end() == 0
        runs.append(process.folder)

    straight, killed = (sampled_texts(run) for run in runs)
    assert straight.keys() == killed.keys()
    assert len({text for texts in straight.values() for text in texts}) > 4 * SAMPLED_STEPS
    for asked, texts in straight.items():
        # What the killed run had written of a step when it died is what it wrote again.
        times = len(killed[asked]) // len(texts)
        assert times in (1, 2) and killed[asked] == texts * times, asked

    ends = [run.checkpoints()[-1] for run in runs]
    assert [end.position.step for end in ends] == [SAMPLED_STEPS, SAMPLED_STEPS]
    learners = [make_learner(sharp_model_path) for _ in ends]
    for learner, end in zip(learners, ends, strict=True):
        learner.load(end.learner)
    begun = dict(make_learner(sharp_model_path).gather_weights())
    weights = [dict(learner.gather_weights()) for learner in learners]
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, atol=1e-6, rtol=0)
    assert max(float((value - begun[key]).abs().max()) for key, value in weights[0].items()) > 1e-3
