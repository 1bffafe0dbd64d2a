"""Runs programs that nobody trusts, in processes of their own that cannot get out.

A program runs in a fork of a server that never sees programs or tests. Before it is read, the fork
puts on itself, for good (`inside.child`):

- Landlock: it may read Python's own library and write into one scratch folder, nothing else;
- a seccomp filter over a list of allowed calls (`inside.syscalls`): no sockets but pairs of
  connected streams, no processes, no signals to others, no tracing, mounts, keys, io_uring, …;
- limits on processor time, memory, open files, file size, and on the number of threads and files;
- no capabilities, no way to gain any, and where the host allows: another user, and user, network,
  ipc, pid and uts namespaces.

Landlock, the filter and its counting listener are the minimum; a host that lacks one of them, or
where a program can get out after all (`probes`, run by every server), raises `SandboxError`.

What a program reports is only values. What they are compared with is never in its process, and the
comparison is made outside (`code_checks`), or in a tester process that runs no line of the program
(`inside.remote`). What remains: a test whose both sides come from the answer (`f(1) == f(2)`, or an
object of the answer's own class compared with another one) says what the answer says.
"""

from easyvideor1.rewards.sandbox.executor import (
    Outcome,
    SandboxError,
    check_host,
    close,
    run_calls,
    run_stdio,
    run_tests,
)  # fmt: skip
from easyvideor1.rewards.sandbox.limits import Limits

__all__ = [
    "Limits", "Outcome", "SandboxError", "check_host", "close", "run_calls", "run_stdio",
    "run_tests",
]  # fmt: skip
