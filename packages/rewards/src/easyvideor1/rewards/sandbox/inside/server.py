"""The fork server: one process that knows no program and no test, and forks one for each run.

It speaks with the scorer over a socket: a request names what to fork and carries the descriptors of
each, which the server never reads; the reply says how the run ended. It watches the clock, counts
new threads and files, and kills. When the scorer is gone, so is everything here.
"""

import _sitebuiltins
import builtins
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from . import child, filters, kernel, landlock, privileges

MAX_REQUEST_BYTES = 65_536
MAX_DESCRIPTORS = 16
COUNTED_AND_KILLED = 256
"""Refused threads and files after which a program is killed: each takes time of the server."""

PRELOADED = (
    "abc", "array", "ast", "asyncio", "base64", "bisect", "bz2", "calendar", "cmath", "collections",
    "collections.abc", "contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "gc", "hashlib", "heapq", "hmac", "inspect", "io",
    "itertools", "json", "keyword", "locale", "lzma", "math", "numbers", "operator", "os", "pickle",
    "pprint", "queue", "random", "re", "secrets", "shutil", "sqlite3", "ssl", "statistics",
    "string", "struct", "sys", "tempfile", "textwrap", "threading", "time", "traceback", "types",
    "typing", "unicodedata", "unittest", "uuid", "xml.etree.ElementTree", "zlib",
)  # fmt: skip
"""What answers import most, and all that needs libraries outside Python's own folders."""


def main() -> None:
    """Serve on the descriptor that the command line names, until its other end is closed."""
    if reason := _missing():
        sys.exit(reason)
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.path = [path for path in sys.path if os.path.exists(path)]
    library = _library()
    _be_first_to_go()
    own = privileges.drop(library)
    if "pid" in own and (first := os.fork()):
        # The namespace's first process is the server; this one only waits for it.
        control.close()
        os.waitpid(first, 0)
        return
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:  # a Python built without it
            continue
    # Without the module site, which looks for installed packages, Python has no exit().
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "end of file"))
    server = Server(control, library)
    gc.freeze()
    server.hello(own)
    try:
        server.serve()
    finally:
        if os.getpid() == server.pid:
            server.close()


def _missing() -> str:
    """Why nothing can be isolated here; empty where the minimum is there."""
    if not filters.is_supported():
        return f"the system-call filter knows x86_64 and aarch64, not {kernel.MACHINE}"
    if not landlock.version():
        return (
            "the kernel offers no Landlock: it takes Linux 5.13 or later with `landlock` among its "
            "security modules (/sys/kernel/security/lsm), and in a container a runtime that lets "
            "its system calls through (Docker 23 or later)"
        )
    return ""


def _library() -> list[str]:
    """Everything in Python's own folders, without packages that were installed there."""
    found = []
    for path in sys.path:
        if os.path.isdir(path):
            names = (n for n in os.listdir(path) if n not in ("site-packages", "dist-packages"))
            inside = os.path.realpath(path) + os.sep
            found += [p for n in names if (p := os.path.realpath(inside + n)).startswith(inside)]
        else:
            found.append(path)
    return found


def _be_first_to_go() -> None:
    """Where memory runs out, the kernel shall end a program in here and nothing else."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return


@dataclass
class _Child:
    """A fork, as the server sees it."""

    pid: int
    channel: socket.socket | None
    """Until it is isolated."""
    counter: filters.Counter | None = None
    isolated: bool = False
    problem: str = ""
    status: int | None = None
    cpu_s: float = 0.0


@dataclass
class _Run:
    children: list[_Child] = field(default_factory=list)
    ended: str = ""
    """Why the server ended it; empty where the first child ended by itself."""


class Server:
    """One run at a time.

    Args:
        control: a connected socket that keeps messages apart.
        library: what programs may read.
    """

    def __init__(self, control: socket.socket, library: list[str]):
        self._control = control
        self.pid = os.getpid()
        self.scratch = tempfile.mkdtemp(prefix="evr-sandbox-")
        self._rules = {True: landlock.Ruleset(), False: landlock.Ruleset()}
        for writes, rules in self._rules.items():
            for path in library:
                rules.allow(path, landlock.READ)
            for path in ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
                rules.allow(path, landlock.READ_FILE)
            rules.allow("/dev/null", landlock.READ_FILE | landlock.WRITE_FILE)
            if writes:
                rules.allow(self.scratch, landlock.SCRATCH)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)

    def hello(self, own: list[str]) -> None:
        """Say what isolates the programs."""
        said = {"own": own, "landlock": landlock.version(), "scratch": self.scratch}
        self._control.send(json.dumps(said).encode())

    def close(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def serve(self) -> None:
        """Answer requests until the scorer is gone."""
        while True:
            try:
                data, given, _, _ = socket.recv_fds(
                    self._control, MAX_REQUEST_BYTES, MAX_DESCRIPTORS
                )
            except ConnectionResetError:
                return
            if not data:
                return
            if data == b"stop":  # its run has ended by itself meanwhile
                continue
            reply = self._run(json.loads(data), given)
            try:
                self._control.send(json.dumps(reply).encode())
            except (BrokenPipeError, ConnectionResetError):
                return

    def _run(self, request: dict[str, Any], given: list[int]) -> dict[str, Any]:
        """Fork and watch `request["children"]`: [kind, whether it has the scratch folder] each."""
        limits = request["limits"]
        start = time.monotonic()
        run = _Run()
        rest = list(given)
        for kind, writes in request["children"]:
            count = len(child.KINDS[kind][0])
            run.children.append(self._fork(kind, rest[:count], limits, writes))
            del rest[:count]
        for descriptor in given:
            os.close(descriptor)
        try:
            self._watch(run, start + limits["wall_s"], limits["counted"])
        finally:
            for each in run.children:
                self._end(each)
        self._empty_scratch()
        first = run.children[0]
        problem = next((c.problem or "?" for c in run.children if not c.isolated), "")
        return {
            "ended": run.ended,
            "problem": problem,
            "status": first.status,
            "cpu_s": max(c.cpu_s for c in run.children),
            "wall_s": time.monotonic() - start,
        }

    def _fork(self, kind: str, given: list[int], limits: dict[str, Any], writes: bool) -> _Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                folder = self.scratch if writes else "/"
                child.become(kind, given, limits, theirs, self._rules[writes], folder, self.pid)
            finally:
                os._exit(1)
        theirs.close()
        return _Child(pid, ours)

    def _watch(self, run: _Run, deadline: float, counted: int) -> None:
        """Until the first child has ended, time is up, or the scorer says so."""
        while run.children[0].status is None and not run.ended:
            poller = select.poll()
            poller.register(self._control, select.POLLIN)
            poller.register(self._woken, select.POLLIN)
            waiting: dict[int, _Child] = {}
            for each in run.children:
                if each.status is not None:
                    continue
                for source in (each.channel, each.counter):
                    if source is not None:
                        at = source.fileno() if isinstance(source, socket.socket) else source.at
                        waiting[at] = each
                        poller.register(at, select.POLLIN)
            left = deadline - time.monotonic()
            ready = poller.poll(max(0.0, left) * 1000) if left > 0 else []
            if not ready and time.monotonic() >= deadline:
                run.ended = "wall"
            for at, events in ready:
                if at == self._woken:
                    os.read(self._woken, 512)
                elif at == self._control.fileno():
                    run.ended = "stopped"
                else:
                    self._hear(run, waiting[at], at, events, counted)
            for each in run.children:
                self._reap(each, os.WNOHANG)
        first = run.children[0]
        while first.status is not None and first.channel is not None:
            self._hear(run, first, first.channel.fileno(), select.POLLIN, counted)

    def _hear(self, run: _Run, each: _Child, at: int, events: int, counted: int) -> None:
        """Take a message of a child that isolates itself, or decide on a counted call."""
        if each.counter is not None and at == each.counter.at:
            if not events & select.POLLIN:  # its process is about to end
                each.counter.close()
                each.counter = None
                return
            each.counter.answer()
            if each.counter.seen > each.counter.limit + COUNTED_AND_KILLED:
                run.ended = "counted"
            return
        if each.channel is None:
            return
        text, passed, _, _ = socket.recv_fds(each.channel, 1024, 1)
        if text == b"counted" and passed:
            each.counter = filters.Counter(passed[0], counted)
            return
        each.isolated = text == b"ready"
        each.problem = "" if each.isolated else text.decode(errors="replace")
        each.channel.close()
        each.channel = None
        if not each.isolated:
            run.ended = "unisolated"

    def _reap(self, each: _Child, flags: int) -> None:
        if each.status is not None:
            return
        pid, status, usage = os.wait4(each.pid, flags)
        if pid:
            each.status = os.waitstatus_to_exitcode(status)
            each.cpu_s = usage.ru_utime + usage.ru_stime

    def _end(self, each: _Child) -> None:
        if each.status is None:
            os.kill(each.pid, signal.SIGKILL)
            self._reap(each, 0)
        for source in (each.channel, each.counter):
            if source is not None:
                source.close()

    def _empty_scratch(self) -> None:
        """Remove what a run left. Folders may lie deeper than any path can name, and be closed."""
        while entries := list(os.scandir(self.scratch)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in list(os.scandir(entry.path)):
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, 0o700)
                    os.rename(inner.path, os.path.join(self.scratch, uuid.uuid4().hex))
                os.rmdir(entry.path)
