"""Runs programs that nobody trusts: the scorer's side of the sandbox.

`run_stdio`, `run_calls` and `run_tests` each hand a job to the fork server of this process, which
is started on first use, and read what comes back. Whatever comes back is the program's word. Every
server first has to show, by programs that try to get out, that it holds them in.
"""

import atexit
import contextlib
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from easyvideor1.rewards.sandbox import probes
from easyvideor1.rewards.sandbox.limits import Limits

START_TIMEOUT_S = 60.0
"""For the server to import what programs use."""
GRACE_S = 5.0
"""What the server may take beyond a run's own time, before it counts as lost."""
_READ_BYTES = 1 << 16
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from inside.server import main; "
    "del sys.path[0]; main()"
)


class SandboxError(Exception):
    """The sandbox cannot run programs, or not safely, on this host; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended, and what its processes wrote."""

    ended: str
    """Empty where the program ended by itself; else `wall`, `counted` or `output`: the limit that
    it broke."""
    status: int
    """Exit code; negative for the signal that ended it."""
    output: bytes
    """Of stdout, or of the report."""
    cpu_s: float
    wall_s: float

    @property
    def finished(self) -> bool:
        """Ended by itself, with exit code 0."""
        return not self.ended and self.status == 0


def run_stdio(program: str, stdin: str, limits: Limits) -> Outcome:
    """Run a program as a script over `stdin`; its stdout is the output."""
    job = {"program": program}
    with _file(_as_json(job)) as job_file, _file(_as_bytes(stdin)) as stdin_file, _pipe() as pipe:
        return _run([("stdio", True)], [job_file, stdin_file, pipe.writer], pipe, limits)


def run_calls(program: str, setup: str, steps: Sequence[Sequence[Any]], limits: Limits) -> Outcome:
    """Run a program's definitions, then steps; see `inside.programs.run_calls` for the report."""
    job = {"program": program, "setup": setup, "steps": steps}
    with _file(_as_json(job)) as job_file, _pipe() as pipe:
        return _run([("calls", True)], [job_file, pipe.writer], pipe, limits)


def run_tests(
    program: str, setup: str, tests: Sequence[str], names: Sequence[str], limits: Limits
) -> Outcome:
    """Run tests against a program in another process; see `inside.remote` for the report.

    Args:
        program: defines `names`.
        setup: runs before the program, and before the tests.
        tests: texts of Python, run one after the other.
        names: what the tests use of the program.
        limits: for each of the two processes.
    """
    answer = {"program": program, "setup": setup, "names": names}
    tester = {"tests": tests, "setup": setup, "names": names}
    ours, theirs = socket.socketpair()
    with (
        ours, theirs, _pipe() as pipe,
        _file(_as_json(tester)) as tests_file, _file(_as_json(answer)) as answer_file,
    ):  # fmt: skip
        given = [tests_file, pipe.writer, ours.fileno(), answer_file, theirs.fileno()]
        return _run([("tester", False), ("answer", True)], given, pipe, limits, (ours, theirs))


def check_host() -> list[str]:
    """Start the sandbox and have it show that it holds programs in.

    Returns:
        What isolates them beyond the minimum: namespaces and another user.

    Raises:
        SandboxError: this host cannot isolate programs.
    """
    return _server().own


def close() -> None:
    """End this process's server; the next run starts another."""
    global _current
    with _lock:
        if _current is not None:
            _current.close()
        _current = None


def _run(
    children: Sequence[tuple[str, bool]],
    given: Sequence[int],
    pipe: "_Pipe",
    limits: Limits,
    closing: Sequence[socket.socket] = (),
) -> Outcome:
    server = _server()
    try:
        return server.run(children, given, pipe, limits, closing)
    except BaseException:
        # Even where it was only this process that was interrupted, the two are out of step.
        close()
        raise


class _Pipe:
    """A pipe whose writing end goes to a program."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
        self.writer = -1


@contextlib.contextmanager
def _pipe() -> Generator[_Pipe]:
    pipe = _Pipe()
    try:
        yield pipe
    finally:
        pipe.close_writer()
        os.close(pipe.reader)


@contextlib.contextmanager
def _file(content: bytes) -> Generator[int]:
    """A file in memory that holds `content`, at its start."""
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _as_json(job: dict[str, Any]) -> bytes:
    return json.dumps(job).encode()


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _Server:
    """The fork server of this process.

    Raises:
        SandboxError: it cannot be started here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        interpreter = getattr(sys, "_base_executable", None) or sys.executable
        with theirs:
            self._process = subprocess.Popen(
                # No site-packages and no user's folder; nothing of our environment.
                [interpreter, "-P", "-S", "-s", "-B", "-c", _START,
                 str(Path(__file__).parent), str(theirs.fileno())],
                env={
                    "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC",
                    "TMPDIR": tempfile.gettempdir(),
                    # Else each thread reserves 64 MB, which would count.
                    "MALLOC_ARENA_MAX": "1",
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )  # fmt: skip
        hello = self._hello()
        self.own: list[str] = hello["own"]
        self.scratch: str = hello["scratch"]

    def _hello(self) -> dict[str, Any]:
        self._socket.settimeout(START_TIMEOUT_S)
        try:
            if said := self._socket.recv(_READ_BYTES):
                return json.loads(said)
            reason = "it ended at once"
        except OSError as error:
            reason = str(error)
        self._process.kill()
        lines = self._process.communicate()[1].decode(errors="replace").strip().splitlines()
        self._socket.close()
        raise SandboxError(lines[-1] if lines else f"its server did not start: {reason}")

    def run(
        self,
        children: Sequence[tuple[str, bool]],
        given: Sequence[int],
        pipe: _Pipe,
        limits: Limits,
        closing: Sequence[socket.socket] = (),
    ) -> Outcome:
        """Run a job, and read what it writes into `pipe`.

        Raises:
            SandboxError: the program could not be isolated (it did not run), or the server is lost.
        """
        with self._lock:
            request = {"children": children, "limits": asdict(limits)}
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], list(given))
                pipe.close_writer()
                for end in closing:
                    end.close()
                output, broke, reply = self._read(pipe, limits)
            except OSError as error:
                raise SandboxError(f"its server is gone: {error}") from None
        if reply["ended"] == "unisolated":
            raise SandboxError(f"a program could not be isolated: {reply['problem']}")
        return Outcome(
            ended="output" if broke else reply["ended"],
            status=reply["status"],
            output=output,
            cpu_s=reply["cpu_s"],
            wall_s=reply["wall_s"],
        )

    def _read(self, pipe: _Pipe, limits: Limits) -> tuple[bytes, bool, dict[str, Any]]:
        """What the program wrote, whether it was too much, and the server's reply."""
        output, broke, reply = bytearray(), False, None
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(pipe.reader, selectors.EVENT_READ)
            while len(selector.get_map()):
                ready = selector.select(limits.wall_s + GRACE_S)
                if not ready:
                    raise OSError("no reply in time")
                for key, _ in ready:
                    if key.fileobj is self._socket:
                        reply = self._reply()
                        selector.unregister(self._socket)
                        continue
                    part = os.read(pipe.reader, _READ_BYTES)
                    output += part
                    if not part or len(output) > limits.output_bytes:
                        selector.unregister(pipe.reader)
                    if len(output) > limits.output_bytes:
                        broke = True
                        if reply is None:
                            self._socket.send(b"stop")
        assert reply is not None
        return bytes(output[: limits.output_bytes]), broke, reply

    def _reply(self) -> dict[str, Any]:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise OSError("it has ended")
        return json.loads(data)

    def close(self) -> None:
        """End the server and all it runs."""
        self._socket.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def forget(self) -> None:
        """In a fork of this process: the server belongs to the parent."""
        self._socket.close()


_lock = threading.Lock()
_current: _Server | None = None


def _server() -> _Server:
    global _current
    with _lock:
        if _current is None:
            server = _Server()
            try:
                _prove(server)
            except BaseException:
                server.close()
                raise
            _current = server
        return _current


def _prove(server: _Server) -> None:
    """Have programs try to get out.

    Raises:
        SandboxError: naming what one could do.
    """
    with (
        tempfile.NamedTemporaryFile(prefix="evr-probe-") as outside,
        _file(_as_json(probes.job(outside.name, server.scratch))) as job_file,
        _pipe() as pipe,
    ):
        outcome = server.run([("calls", True)], [job_file, pipe.writer], pipe, Limits())
        if failed := probes.failed(outcome.output):
            raise SandboxError(f"a program in the sandbox could {', '.join(failed)}")


def _after_fork() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.forget()
    _current = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(close)
