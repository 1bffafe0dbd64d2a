"""What a program must not be able to do, as code that tries it: run before the first answer."""

import json
from typing import Any

_SETUP = """
import ctypes, os, socket

def refused(attempt, *arguments):
    try:
        attempt(*arguments)
    except OSError:
        return True
    return False

def system_call(number, *arguments):
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
"""

_ATTEMPTS = {
    "read a file outside": "refused(open, {outside!r})",
    "write a file outside": "refused(open, {outside!r}, 'a')",
    "make a file outside": "refused(open, {outside!r} + '.new', 'w')",
    "remove a file outside": "refused(os.remove, {outside!r})",
    "change the rights of a file outside": "refused(os.chmod, {outside!r}, 0o777)",
    "list the root folder": "refused(os.listdir, '/')",
    "open an internet socket": "refused(socket.socket, socket.AF_INET, socket.SOCK_STREAM)",
    "open a datagram socket": "refused(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)",
    "open a Unix socket": "refused(socket.socket, socket.AF_UNIX, socket.SOCK_STREAM)",
    "start a process": "refused(os.fork)",
    "run another program": "refused(os.execv, '/bin/true', ['true'])",
    "signal another process": "refused(os.kill, os.getppid(), 0)",
    "see another process": "refused(os.listdir, '/proc/%d' % os.getppid())",
    "read its own memory by path": "refused(open, '/proc/self/mem', 'rb')",
    "use io_uring": "refused(system_call, 425, 1, None)",
}
"""What an expression that is false would mean."""


def job(outside: str, scratch: str) -> dict[str, Any]:
    """The job of `inside.programs.run_calls` that tries everything.

    Args:
        outside: an existing file that no program may touch.
        scratch: where a program may write, as a counter-check.
    """
    attempts = [attempt.format(outside=outside) for attempt in _ATTEMPTS.values()]
    attempts.append(f"open({scratch!r} + '/probe', 'w').write('1') == 1")
    steps = [[number, "eval", attempt] for number, attempt in enumerate(attempts)]
    return {"program": "", "setup": _SETUP, "steps": steps}


def failed(report: bytes) -> list[str]:
    """What a program could do though it must not, by the report of the job.

    A program that did not report at all could do nothing, but proves nothing either.
    """
    results = {number: value for number, _, value in map(json.loads, report.splitlines())}
    names = [*_ATTEMPTS, "not write into its own folder"]
    return [name for number, name in enumerate(names) if results.get(number) is not True]
