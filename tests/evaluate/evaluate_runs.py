"""Evaluations of a small benchmark as processes that a test may kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from easyvideor1.evaluate import run
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from tests.live_engine import LiveEngine

COMMAND = [sys.executable, "-c", "from easyvideor1.evaluate.cli import main; main()"]


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
