"""A real run in a process of its own, to be watched and killed: `evr-train` with a small model."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from easyvideor1.schema import jsonl
from easyvideor1.train.run_folder import RunFolder

COMMAND = "from easyvideor1.train.cli import main; main()"
GONE_WITHIN_S = 20.0
"""From the end of a command to that of its last process."""


class RunProcess:
    """One start of a run's command; remembers every process that it starts.

    Args:
        overrides: of the config.
        outputs: where its folder `run` and its log are.
        program: what Python runs.
        environment: variables besides those of this process.
    """

    def __init__(
        self,
        overrides: list[str],
        outputs: Path,
        *,
        program: tuple[str, str] = ("-c", COMMAND),
        **environment: str,
    ):
        self.folder = RunFolder(outputs / "run")
        self._log = outputs / "command.log"
        outputs.mkdir(parents=True, exist_ok=True)
        self._begins_at = self._log.stat().st_size if self._log.exists() else 0
        variables = {**os.environ, "EVR_OUTPUTS": str(outputs), "OMP_NUM_THREADS": "1"}
        with self._log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, *program, *overrides, f"output_dir={self.folder.path}"],
                env=variables | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._seen: set[psutil.Process] = set()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def _look(self) -> None:
        while self.popen.poll() is None:
            try:
                self._seen |= set(psutil.Process(self.popen.pid).children(recursive=True))
            except psutil.NoSuchProcess:
                return
            time.sleep(0.1)

    @property
    def output(self) -> str:
        """What this start has printed so far."""
        with self._log.open("rb") as log:
            log.seek(self._begins_at)
            return log.read().decode(errors="replace")

    @property
    def last_words(self) -> str:
        """The last line it printed."""
        return self.output.strip().splitlines()[-1]

    def processes(self, name: str) -> list[psutil.Process]:
        """Living processes of this start whose command line holds `name`."""
        found = []
        for process in list(self._seen):
            try:
                if process.is_running() and name in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def until(self, is_so: Callable[[], bool], timeout_s: float = 300.0) -> None:
        """Wait for something to be so while the command runs."""
        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert self.popen.poll() is None, f"ended too early:\n{self.output[-3000:]}"
            assert time.monotonic() < deadline, f"waited in vain:\n{self.output[-3000:]}"
            time.sleep(0.05)

    def until_step(self, step: int) -> None:
        """Wait until a step of reinforcement learning has been logged."""
        self.until(lambda: step in self.steps())

    def steps(self) -> list[int]:
        """Steps in `metrics.jsonl`, in its order."""
        if not self.folder.metrics.exists():
            return []
        return [row["step"] for row in jsonl.read(self.folder.metrics) if "reward/mean" in row]

    def metric(self, name: str) -> list[float]:
        """Values of a metric in `metrics.jsonl`."""
        return [row[name] for row in jsonl.read(self.folder.metrics) if name in row]

    def end(self, timeout_s: float = 400.0) -> int:
        """Exit status, once the command has ended."""
        return self.popen.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL the command alone, as an out-of-memory killer would."""
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()

    def left_over(self) -> list[psutil.Process]:
        """Processes of this start that outlive it for longer than they may."""
        self._watch.join()
        assert len(self._seen) > 4, "Ray, an engine and a rank were not even seen"
        return psutil.wait_procs(self._seen, timeout=GONE_WITHIN_S)[1]


@contextmanager
def started(overrides: list[str], outputs: Path, **more: Any) -> Generator[RunProcess]:
    """A start that does not outlive the test, however that ends; see `RunProcess`."""
    run = RunProcess(overrides, outputs, **more)
    try:
        yield run
    finally:
        if run.popen.poll() is None:
            run.kill()


def small_run(model_path: str | Path, data: Path, *more: str) -> list[str]:
    """Overrides of a run whose steps take a second."""
    return [
        f"model.path={model_path}",
        "model.build=null",
        "data.toybox=null",
        f"data.train=[{data / 'train.jsonl'}]",
        "data.validation=[]",
        "mixing=replace",
        "rollout.batch_size=4",
        "rollout.group_size=4",
        "rollout.max_new_tokens=16",
        "rollout.engine.kv_cache_bytes=33554432",
        "learner.optimizer.lr=1e-3",
        "tracking.mlflow=false",
        "train.save_every=1",
        *more,
    ]
