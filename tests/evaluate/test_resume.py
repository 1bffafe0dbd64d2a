"""Evaluations that are killed, and engines that die: every sample once, and the same score."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from easyvideor1.schema import jsonl
from tests.evaluate.evaluate_runs import Run, assert_gone, kill, num_questions
from tests.live_engine import LiveEngine


@pytest.fixture
def evaluation(tmp_path: Path, toybox_dir: Path, tiny_model_path: str) -> Run:
    return Run(tmp_path, toybox_dir, tiny_model_path)


def assert_each_sample_once(evaluation: Run, toybox_dir: Path) -> None:
    counts = Counter(row["sample_id"] for row in evaluation.predictions)
    assert set(counts.values()) == {1} and len(counts) == num_questions(toybox_dir)
    assert evaluation.summary["questions"] == num_questions(toybox_dir)


@pytest.mark.timeout(600)
def test_a_killed_run_goes_on_with_every_sample_exactly_once(
    evaluation: Run,
    toybox_dir: Path,
    engine: LiveEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It goes on in this process, whose engine runs; by the command in the slow test below."""
    first = evaluation.start("pipeline.max_requests=1")
    deadline = time.monotonic() + 240
    while len(evaluation.predictions) < 5 and time.monotonic() < deadline:
        assert first.poll() is None, first.communicate()[0]
        time.sleep(0.02)
    assert_gone(kill(first))
    before = evaluation.predictions
    assert 5 <= len(before) < num_questions(toybox_dir)

    monkeypatch.setenv("EVR_OUTPUTS", str(evaluation.outputs))
    evaluation.finish_here(engine)
    assert_each_sample_once(evaluation, toybox_dir)
    assert evaluation.predictions[: len(before)] == before
    assert ": 0 decoded" in capsys.readouterr().out, "frames come from the cache"
    assert (evaluation.folder / "report.html").stat().st_size > 50_000
    scored = jsonl.read(evaluation.folder / "scores.jsonl")
    assert len(scored) == num_questions(toybox_dir)

    # Nothing is left to answer, and scoring needs no engine.
    summary = evaluation.summary
    evaluation.finish("job=score")
    spent: dict[str, dict] = {"seconds": {}, "cache": {}}
    assert evaluation.summary | spent == summary | spent


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_fifteen_moments_it_ends_as_an_undisturbed_run(
    evaluation: Run, toybox_dir: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    """A third of the kills fall anywhere after the start, the others while answers come."""
    undisturbed = Run(tmp_path / "undisturbed", toybox_dir, tiny_model_path)
    undisturbed.finish()
    rng = random.Random(0)
    for number in range(15):
        process = evaluation.start("pipeline.max_requests=1")
        if number % 3 == 0:
            time.sleep(rng.uniform(0, 15))
        else:
            more = len(evaluation.predictions) + rng.randint(1, 3)
            while len(evaluation.predictions) < more:
                assert process.poll() is None, process.communicate()[0]
                time.sleep(rng.uniform(0, 0.05))
        assert process.poll() is None, "it ended before it was killed"
        assert_gone(kill(process))
    assert 10 < len(evaluation.predictions) < num_questions(toybox_dir)
    evaluation.finish()
    assert_each_sample_once(evaluation, toybox_dir)
    texts = [
        {row["sample_id"]: row["text"] for row in run.predictions}
        for run in (evaluation, undisturbed)
    ]
    assert texts[0] == texts[1]
    assert evaluation.summary["official"] == undisturbed.summary["official"]


def engine_of(process: subprocess.Popen[str]) -> psutil.Process:
    """The process of vLLM's engine, which names itself."""
    children = psutil.Process(process.pid).children(recursive=True)
    (engine,) = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
    return engine


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_engine_that_dies_is_started_anew_and_asked_again(
    evaluation: Run, toybox_dir: Path
) -> None:
    process = evaluation.start("pipeline.max_requests=2")
    while len(evaluation.predictions) < 5:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    engine_of(process).kill()
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert "starting it anew (1 of 3 times)" in output
    assert_each_sample_once(evaluation, toybox_dir)
    assert evaluation.summary["statuses"].keys() <= {"ok", "truncated"}
    assert evaluation.summary["engine_restarts"] == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_too_many_deaths_end_the_run_which_goes_on_later(evaluation: Run, toybox_dir: Path) -> None:
    process = evaluation.start("pipeline.max_requests=2", "pipeline.max_engine_restarts=0")
    while len(evaluation.predictions) < 5:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    engine_of(process).kill()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "pipeline.max_engine_restarts=0 is reached" in output
    evaluation.finish()
    assert_each_sample_once(evaluation, toybox_dir)
