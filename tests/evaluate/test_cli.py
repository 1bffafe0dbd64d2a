"""`evr-evaluate`: mistakes at once, missing files by name, and a run that survives being killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from easyvideor1.evaluate import run
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from tests.live_engine import LiveEngine

HEAVY = ("torch", "vllm", "ray", "transformers", "mlflow")
PROBE = f"""
import atexit, sys
atexit.register(lambda: print("heavy:", [m for m in {HEAVY} if m in sys.modules]))
sys.argv = ["evr-evaluate", *sys.argv[1:]]
from easyvideor1.evaluate.cli import main
from easyvideor1.evaluate.protocol import model_identity
main()
"""
COMMAND = [sys.executable, "-c", "from easyvideor1.evaluate.cli import main; main()"]


def call(*overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, *overrides], capture_output=True, text=True, timeout=60
    )


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["engine.max_num_seq=4"], "engine.max_num_seqs"),
        (["benchmarks.toybox.repeat=4"], "repeat"),
        (["benchmark=toybocks"], "toybocks"),
        (["benchmark=[]"], "no benchmark chosen"),
        (["benchmark=video_mme"], "test-00000-of-00001.parquet does not exist"),
        (["model.path=./no/such/model", "model.build=null"], "no/such/model"),
        (["benchmarks.toybox.generation.n=4"], "set repeats"),
        (["pipeline.prefetch_bytes=0"], "pipeline.prefetch_bytes must be at least 1"),
    ],
)
def test_a_mistake_is_one_paragraph_before_anything_heavy_loads(
    overrides: list[str], expected: str
) -> None:
    done = call(*overrides)
    assert done.returncode == 2
    paragraph = done.stderr.strip().splitlines()[-1]
    assert paragraph.startswith("evr-evaluate: ") and expected in paragraph
    assert done.stdout.strip().endswith("heavy: []")


def test_a_bad_row_names_file_row_and_field(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("AAAAA 0.0 5.5##fine\nAAAAA 5.5##no end\n")
    done = call("benchmark=charades_sta", f"benchmarks.charades_sta.data.validation=[{file}]")
    assert done.returncode == 2
    assert f"{file}:2:line: got 'AAAAA 5.5##no end'" in done.stderr
    assert "heavy: []" in done.stdout


def test_check_lists_the_missing_files_without_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("HERE1 0.0 5.5##a\nGONE1 1.0 2.0##b\nGONE1 2.0 3.0##c\n")
    (tmp_path / "HERE1.mp4").touch()
    chosen = [
        "benchmark=charades_sta",
        f"benchmarks.charades_sta.data.validation=[{file}]",
        f"benchmarks.charades_sta.data.media_root={tmp_path}",
    ]
    done = call("job=check", *chosen)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == str(tmp_path / "GONE1.mp4")
    expected = "charades_sta: 3 questions on 2 media files, 1 files missing, which 2 questions need"
    assert lines[1] == expected
    assert lines[-1] == "heavy: []"
    (tmp_path / "GONE1.mp4").touch()
    assert call("job=check", *chosen).returncode == 0


def test_a_benchmark_without_any_media_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("GONE1 1.0 2.0##b\n")
    done = call("benchmark=charades_sta", f"benchmarks.charades_sta.data.validation=[{file}]")
    assert done.returncode == 2
    assert "benchmarks.charades_sta.data.media_root" in done.stderr


def test_a_sweep_runs_each_benchmark_and_leaves_nothing_where_it_was_started(
    tmp_path: Path,
) -> None:
    arguments = ["--multirun", "benchmark=toybox,real_clips", "job=check"]
    settings = os.environ | {"EVR_OUTPUTS": str(tmp_path / "outputs")}
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=tmp_path / "here",
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "toybox: " in done.stdout and "real_clips: " in done.stdout
    assert not list((tmp_path / "here").iterdir())


def test_help_loads_nothing_heavy() -> None:
    done = call("--help")
    assert done.returncode == 0
    assert "benchmark" in done.stdout and "heavy: []" in done.stdout


# --- runs ---------------------------------------------------------------------------------------


class Run:
    """Evaluations of one small benchmark with the tiny model, each in a process of its own."""

    def __init__(self, outputs: Path, toybox_dir: Path, model_path: str):
        self.outputs = outputs
        self.environment = os.environ | {"EVR_OUTPUTS": str(outputs)}
        self.overrides = [
            f"model.path={model_path}",
            "model.build=null",
            "benchmarks.toybox.data.toybox=null",
            f"benchmarks.toybox.data.validation=[{toybox_dir}/validation.jsonl]",
            "benchmarks.toybox.generation.max_new_tokens=24",
            "engine.max_model_len=1024",
            "engine.kv_cache_bytes=33554432",
        ]

    def start(self, *overrides: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *self.overrides, *overrides],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, *overrides: str) -> str:
        process = self.start(*overrides)
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, output
        return output

    def finish_here(self, engine: LiveEngine) -> None:
        """What `finish` does, in this process and on an engine that runs already."""
        register()
        config = compose("evaluate", self.overrides, EvaluateConfig)
        opened = run.open_benchmark("toybox", config.benchmarks["toybox"])
        evaluation = run.prepare(
            config, opened, model=model_identity(engine.model_path), family=engine.family
        )
        run.cache_frames(config, evaluation)
        engine.run(run.answer(config, evaluation, engine.engine))
        run.conclude(config, evaluation, engine.model_path)

    @property
    def predictions(self) -> list[dict[str, Any]]:
        files = list(self.outputs.glob("evaluate/toybox/*/predictions.jsonl"))
        return [row for file in files for row in jsonl.read(file)]

    @property
    def folder(self) -> Path:
        (folder,) = self.outputs.glob("evaluate/toybox/*")
        return folder

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture
def evaluation(tmp_path: Path, toybox_dir: Path, tiny_model_path: str) -> Run:
    return Run(tmp_path, toybox_dir, tiny_model_path)


def num_questions(toybox_dir: Path) -> int:
    return len((toybox_dir / "validation.jsonl").read_text().splitlines())


def kill(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """SIGKILL, which leaves no time to tidy up; returns what it had started."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return children


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert not [process.cmdline() for process in alive if process.is_running()]


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
def test_killed_at_any_moment_it_ends_as_an_undisturbed_run(
    evaluation: Run, toybox_dir: Path, tiny_model_path: str, tmp_path: Path
) -> None:
    undisturbed = Run(tmp_path / "undisturbed", toybox_dir, tiny_model_path)
    undisturbed.finish()
    rng = random.Random(0)
    for _ in range(6):
        process = evaluation.start("pipeline.max_requests=1")
        time.sleep(rng.uniform(2, 30))
        if process.poll() is None:
            assert_gone(kill(process))
    evaluation.finish()
    assert_each_sample_once(evaluation, toybox_dir)
    texts = [
        {row["sample_id"]: row["text"] for row in run.predictions}
        for run in (evaluation, undisturbed)
    ]
    assert texts[0] == texts[1]
    assert evaluation.summary["official"] == undisturbed.summary["official"]
