"""`job=passrate`: shares of right answers, from what a model wrote to a filter on the rows."""

import json
import math
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate import pass_rate, run
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.pass_rate import Tally, failures, pass_at, summarize, tally
from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.preprocess.config import CacheConfig, DataConfig
from easyvideor1.preprocess.data import read_files
from easyvideor1.rewards import reward
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from easyvideor1.schema.readers import read_samples
from tests.live_engine import LiveEngine

COMMAND = [sys.executable, "-c", "from easyvideor1.evaluate.cli import main; main()"]
NEVER_SAID = "seventeen violet umbrellas on the roof"


def described_rows(toybox_dir: Path, count: int) -> list[dict[str, Any]]:
    """Training rows with a clip each, asked for a text."""
    rows = {}
    for row in map(json.loads, (toybox_dir / "train.jsonl").read_text().splitlines()):
        rows.setdefault(row["media"][0]["path"], row)
    return [
        {
            "id": row["id"],
            "problem": "<video>What is seen?",
            "answer": NEVER_SAID,
            "problem_type": "open_ended",
            "media": row["media"],
        }
        for row in list(rows.values())[:count]
    ]


class Measuring:
    """A training file of its own, measured with the session's engine.

    Args:
        engine: answers.
        data: a copy of the toybox.
        outputs: for results.
    """

    def __init__(self, engine: LiveEngine, data: Path, outputs: Path):
        self.engine, self.data, self.outputs = engine, data, outputs
        self.file = data / "asked.jsonl"

    def write(self, rows: list[dict[str, Any]]) -> None:
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def config(self, *overrides: str) -> EvaluateConfig:
        register()
        settings = [
            "job=passrate",
            "k=4",
            "data=files",
            f"data.train=[{self.file}]",
            "budget=toy",
            "pass_rate.generation.max_new_tokens=2",
            "pass_rate.right_from=1.0",
            f"model.path={self.engine.model_path}",
            "model.build=null",
            "cache.mode=live",
            f"output_dir={self.outputs}",
        ]
        return compose("evaluate", [*settings, *overrides], EvaluateConfig)

    def open(self, *overrides: str) -> tuple[EvaluateConfig, run.Evaluation]:
        running = pass_rate.as_benchmark(self.config(*overrides))
        ((name, benchmark),) = running.benchmarks.items()
        opened = run.open_benchmark(name, benchmark)
        return running, run.prepare(
            running, opened, model=model_identity(self.engine.model_path), family=self.engine.family
        )

    def finish(self, *overrides: str) -> Path:
        """Answer what is open; returns the folder of the results."""
        running, evaluation = self.open(*overrides)
        self.engine.run(run.answer(running, evaluation, self.engine.engine))
        summary = run.conclude(running, evaluation, self.engine.model_path)
        folder = Path(summary["folder"])
        pass_rate.conclude(self.config(*overrides), evaluation.opened.samples, folder)
        return folder


@pytest.fixture
def measuring(engine: LiveEngine, toybox_dir: Path, tmp_path: Path) -> Measuring:
    shutil.copytree(toybox_dir, tmp_path / "data")
    return Measuring(engine, tmp_path / "data", tmp_path / "results")


def texts_by_id(folder: Path) -> dict[str, list[str]]:
    """In the order of the repeats, whatever the order of their arrival."""
    texts: dict[str, list[str]] = {}
    for row in sorted(jsonl.read(folder / "predictions.jsonl"), key=lambda row: row["repeat"]):
        texts.setdefault(row["sample_id"], []).append(row["text"])
    return texts


def test_rates_are_shares_of_the_models_own_answers_and_filter_the_samples(
    measuring: Measuring, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "rated.arrow"
    rows = described_rows(measuring.data, 7)
    lost = Path(rows[-1]["media"][0]["path"])
    (measuring.data / lost).write_bytes(b"not a video" * 100)
    measuring.write(rows)
    texts = texts_by_id(measuring.finish())
    assert all(len(texts[row["id"]]) == 4 for row in rows)
    # The golds of three samples become what the model said; its answers stay as they are.
    for row in rows[:3]:
        row["answer"] = texts[row["id"]][0]
    measuring.write(rows)
    capsys.readouterr()
    folder = measuring.finish(f"pass_rate.file={table}")
    assert texts_by_id(folder) == texts
    rated = {sample.id: sample for sample in read_samples(table)}
    for row in rows[:6]:
        sample = rated[row["id"]]
        right = [reward(sample, text).parts["accuracy"] == 1 for text in texts[row["id"]]]
        assert sample.pass_rate == sum(right) / 4
        assert (sample.pass_rate > 0) == (row in rows[:3])
    # A clip that does not decode says nothing about the model.
    assert rated[rows[-1]["id"]].pass_rate is None
    numbers = json.loads((folder / "pass_rate.json").read_text())
    assert numbers["failed"] == {"load_failed": 4}
    assert (numbers["samples"], numbers["with_rate"], numbers["never_right"]) == (7, 6, 3)
    printed = capsys.readouterr().out
    assert "6 of 7 samples have a pass rate: 3 never right" in printed
    assert "count neither way: 4 load_failed" in printed

    data = DataConfig(name="rated", train=[str(table)], filter="pass_rate > 0")
    kept = read_files(data, data.train, CacheConfig())
    assert [sample.id for sample in kept] == [row["id"] for row in rows[:3]]
    assert all(Path(medium.path).is_file() for sample in kept for medium in sample.media)


def test_a_measurement_that_broke_off_asks_only_for_the_rest(measuring: Measuring) -> None:
    measuring.write(described_rows(measuring.data, 4))
    folder = measuring.finish()
    stored = folder / "predictions.jsonl"
    whole = stored.read_bytes()
    texts = texts_by_id(folder)
    lines = whole.splitlines(keepends=True)
    stored.write_bytes(b"".join(lines[:5]) + lines[5][:30])  # killed while it wrote the sixth
    _, evaluation = measuring.open()
    evaluation.folder.close()
    asked = {(question.sample.id, question.repeat) for question in evaluation.questions}
    kept = {(row["sample_id"], row["repeat"]) for row in map(json.loads, lines[:5])}
    assert len(asked) == 11 and not asked & kept
    measuring.finish()
    assert len(read_samples(folder / "samples.jsonl")) == 4
    assert stored.read_bytes().startswith(b"".join(lines[:5]))
    assert texts_by_id(folder) == texts


def score_row(sample_id: str, accuracy: float, status: str = "ok") -> dict[str, Any]:
    return {
        "sample_id": sample_id,
        "status": "ok",
        "accuracy": accuracy,
        "score": {"status": status},
    }


def test_failures_are_counted_by_reason_and_are_no_wrong_answers() -> None:
    rows = [
        score_row("a", 1.0),
        score_row("a", 0.4),
        score_row("a", 0.5),
        score_row("a", 0.0, "no_answer"),
        score_row("b", 0.0, "timeout"),
        score_row("b", 1.0),
        {"sample_id": "c", "status": "refused", "accuracy": 0.0, "score": None},
        {"sample_id": "c", "status": "ok", "accuracy": 0.0, "score": None},
    ]
    tallies = tally(rows, right_from=0.5)
    assert tallies == {
        "a": Tally(right=2, judged=4),
        "b": Tally(right=1, judged=1),
        "c": Tally(right=0, judged=0),
    }
    assert tallies["c"].rate is None
    assert failures(rows) == {"no gold answer": 1, "refused": 1, "score timeout": 1}
    numbers = summarize(tallies, failures(rows), k=4)
    assert numbers["mean"] == 0.75 and numbers["with_rate"] == 2
    assert set(numbers["pass_at"]) == {"1", "2", "4"} and numbers["pass_at"]["4"] == 1.0


def test_pass_at_n_is_the_share_of_all_draws_of_n_with_a_right_answer() -> None:
    rng = random.Random(0)
    for _ in range(100):
        judged = rng.randint(1, 9)
        right = rng.randint(0, judged)
        size = rng.randint(1, judged)
        answers = [True] * right + [False] * (judged - right)
        draws = [any(draw) for draw in combinations(answers, size)]
        expected = sum(draws) / len(draws)
        assert math.isclose(pass_at(size, Tally(right=right, judged=judged)), expected)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["job=passrate"], "job=passrate needs training files"),
        (["job=passrate", "data=toybox"], "needs the budget"),
        (["job=passrate", "data=toybox", "budget=toy", "k=0"], "k must be at least 1"),
        (["data=toybox"], "of job=passrate, not of job=run"),
        (["pass_rate.file=rated.csv"], "ends with .jsonl, .arrow or .parquet"),
        (["pass_rate.generation.n=8"], "set k"),
    ],
)
def test_mistakes_name_the_setting(overrides: list[str], expected: str) -> None:
    register()
    with pytest.raises(Exception, match=expected):
        compose("evaluate", overrides, EvaluateConfig)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_command_killed_and_started_again_ends_as_an_undisturbed_one(
    toybox_dir: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    def arguments(name: str) -> list[str]:
        return [
            *COMMAND,
            "job=passrate",
            "k=3",
            "data=files",
            f"data.train=[{toybox_dir}/train.jsonl]",
            "budget=toy",
            "pass_rate.generation.max_new_tokens=16",
            f"model.path={tiny_model_path}",
            "model.build=null",
            "engine.max_model_len=1024",
            "engine.kv_cache_bytes=33554432",
            f"output_dir={tmp_path}/{name}",
        ]

    def predictions(name: str) -> list[dict[str, Any]]:
        files = (tmp_path / name).glob("*/*/predictions.jsonl")
        return [row for file in files for row in jsonl.read(file)]

    killed = subprocess.Popen(
        [*arguments("killed"), "pipeline.max_requests=1"], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while len(predictions("killed")) < 10 and time.monotonic() < deadline:
        assert killed.poll() is None
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    before = predictions("killed")
    for name in ("killed", "undisturbed"):
        subprocess.run(arguments(name), check=True, stdout=subprocess.DEVNULL, timeout=400)
    assert predictions("killed")[: len(before)] == before
    rated = [
        next((tmp_path / name).glob("*/*/samples.jsonl")).read_text()
        for name in ("killed", "undisturbed")
    ]
    keys = [(row["sample_id"], row["repeat"]) for row in predictions("killed")]
    assert len(keys) == len(set(keys)) == 3 * rated[0].count("\n")
    assert rated[0] == rated[1]
