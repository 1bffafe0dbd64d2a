"""One fork of the server: it isolates itself for good, then runs a program that nobody trusts.

Order matters. Everything here happens before the program is even read; a step that fails is told to
the server, and the program never runs.
"""

import fcntl
import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from . import filters, kernel, programs, remote
from .landlock import Ruleset

JOB, FIRST, SECOND = 3, 4, 5
"""Descriptors of a child: the job it reads, and up to two more."""

KINDS: dict[str, tuple[tuple[int, ...], Callable[[], int]]] = {
    "stdio": ((JOB, 0, 1), lambda: programs.run_stdio(JOB)),
    "calls": ((JOB, FIRST), lambda: programs.run_calls(JOB, FIRST)),
    "tester": ((JOB, FIRST, SECOND), lambda: remote.run_tester(JOB, FIRST, SECOND)),
    "answer": ((JOB, FIRST), lambda: remote.run_answer(JOB, FIRST)),
}
"""What a child can be: where the descriptors it was given go, and what it runs."""

SERVER_ONLY = ("MALLOC_ARENA_MAX", "PYTHONHASHSEED")
"""Variables that do their work when the server starts, and that programs do not see."""
_MEGABYTE = 1024 * 1024
_CHANNEL, _RULES = 6, 7
_BEYOND = 64
"""No descriptor that a child keeps is moved from here on."""


def become(
    kind: str,
    given: Sequence[int],
    limits: dict[str, Any],
    channel: socket.socket,
    rules: Ruleset,
    folder: str,
    server_pid: int,
) -> None:
    """Isolate this process and run a job; never returns.

    Args:
        kind: a key of `KINDS`.
        given: descriptors in the order of that kind.
        limits: see `sandbox.limits.Limits`.
        channel: to the server; gets the descriptor of the counting filter, then `ready`.
        rules: which files it may open.
        folder: its scratch folder, or one that it may not read.
        server_pid: with whom it dies.
    """
    places, run = KINDS[kind]
    try:
        _end_with(server_pid)
        os.chdir(folder)
        os.umask(0o077)
        _keep_only({**dict(zip(places, given, strict=True)),
                    _CHANNEL: channel.detach(), _RULES: rules.descriptor})  # fmt: skip
        rules.descriptor = _RULES
        channel = socket.socket(fileno=_CHANNEL)
        _limit(limits)
        rules.enforce()
        os.close(_RULES)
        listener = filters.install(filters.count_filter(os.getpid()), filters.FLAG_NEW_LISTENER)
        socket.send_fds(channel, [b"counted"], [listener])
        os.close(listener)
        filters.install(filters.deny_filter(os.getpid()))
        os.write(_CHANNEL, b"ready")
        channel.close()
    except BaseException as error:
        os.write(channel.fileno(), f"{type(error).__name__}: {error}".encode()[:500])
        os._exit(1)
    _forget_the_server(folder)
    code = 1
    try:
        code = run()
    finally:
        os._exit(code)


def _end_with(server_pid: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server_pid:
        os._exit(1)


def _keep_only(wanted: dict[int, int]) -> None:
    """Move each descriptor to its place, /dev/null to 0, 1 and 2 where none is; close the rest."""
    null = os.open(os.devnull, os.O_RDWR)
    sources = {place: null for place in (0, 1, 2)} | wanted
    moved = {place: fcntl.fcntl(at, fcntl.F_DUPFD, _BEYOND) for place, at in sources.items()}
    for place, at in moved.items():
        os.dup2(at, place, inheritable=False)
    last = max(sources)
    for place in range(last):
        if place not in sources:
            _close(place)
    os.closerange(last + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return


def _limit(limits: dict[str, Any]) -> None:
    for what, value in (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_mb"] * _MEGABYTE),
        (resource.RLIMIT_STACK, limits["stack_mb"] * _MEGABYTE),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * _MEGABYTE),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_SIGPENDING, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))


def _forget_the_server(folder: str) -> None:
    """Leave the program an interpreter as it would find one."""
    sys.argv = ["answer.py"]
    for at, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = open(at, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    package = __package__ or ""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    for name in SERVER_ONLY:
        os.environ.pop(name, None)
    os.environ["HOME"] = os.environ["TMPDIR"] = folder
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.SIG_DFL)
