"""`evr-preprocess` as processes that a test may kill, on generated clips."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

from easyvideor1.preprocess import decode_counter
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import ProblemType, Sample
from tests.media import video, write_video

MARK = "EVR_TEST_RUN"
"""Environment variable that a run hands down to all its processes."""


class Data:
    """Clips, a data file about them, and one cache for all runs.

    Args:
        folder: for all of it.
        model_path: whose rules hold.
        num_clips: each of them different.
        num_frames: of each clip; all of them are decoded.
        height: of each clip; its width is 4 / 3 of it.
    """

    def __init__(
        self, folder: Path, model_path: str, *, num_clips: int, num_frames: int, height: int = 96
    ):
        self.cache, self.counts = folder / "cache", folder / "counts"
        self.num_clips, self.model_path = num_clips, model_path
        self.file = folder / "train.jsonl"
        paths = [
            write_video(
                folder / "clips" / f"{number}.mp4",
                num_frames=num_frames,
                height=height,
                width=height * 4 // 3,
                seed=number,
            )
            for number in range(num_clips)
        ]
        samples = [
            Sample(
                id=f"s{number}",
                problem="?",
                answer="A",
                problem_type=ProblemType.open_ended,
                media=(video(path),),
            )
            for number, path in enumerate(paths)
        ]
        write_samples(self.file, samples)

    @property
    def num_decoded(self) -> int:
        """Calls of `decode` by all runs so far."""
        return decode_counter.total(self.counts)

    def start(self, *overrides: str) -> "Run":
        return Run(self, *overrides)


class Run:
    """One `evr-preprocess job=cache`, started."""

    def __init__(self, data: Data, *overrides: str):
        self.mark = uuid.uuid4().hex
        self.decoded_before = data.num_decoded
        arguments = [
            *("data=files", f"data.train=[{data.file}]", f"cache.dir={data.cache}"),
            *(f"model.path={data.model_path}", "model.build=null"),
            *("decode.workers=2", "decode.decoder=pyav", "budget.video.fps=12"),
            *overrides,
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "easyvideor1.preprocess.cli", *arguments],
            env={**os.environ, MARK: self.mark, decode_counter.VARIABLE: str(data.counts)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self, timeout_s: float = 250.0) -> str:
        """Its output, once it has ended well."""
        output, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, output
        return output

    def workers(self) -> list[int]:
        """Every living process of this run but the driver."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def await_workers_gone(self, timeout_s: float) -> list[int]:
        """Those that are still there after this time."""
        deadline_s = time.monotonic() + timeout_s
        while (left := self.workers()) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return left

    def end(self) -> None:
        """Whatever is left of it, by PID."""
        if self.process.poll() is None:
            self.kill()
        for pid in self.await_workers_gone(15.0):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """Every living process that was started, directly or not, with this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found


def command_of(pid: int) -> bytes:
    """Its command line; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def verify(data: Data, *overrides: str) -> str:
    """The output of `job=verify`, which must end well."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "easyvideor1.preprocess.cli"),
            *("job=verify", f"cache.dir={data.cache}", *overrides),
        ],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
