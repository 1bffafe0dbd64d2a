"""The table of `syscalls` as two seccomp-BPF filters, and their installation.

The first filter passes the counted calls to the server, by a descriptor; the second refuses what
the table does not allow. The stricter verdict of the two counts. Both end the process on a call of
a foreign machine type (32-bit, x32), whose numbers mean other calls.
"""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable

from . import kernel
from .syscalls import SYSCALLS, Condition, If, IsNull, Row, Rule

SET_MODE_FILTER = 1
FLAG_NEW_LISTENER = 1 << 3

KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
USER_NOTIFY = 0x7FC00000
ALLOW = 0x7FFF0000

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data."""
_X32 = 0x40000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

Instruction = tuple[int, int, int, int]
"""Code, jumps over so many where true and where false, and its operand."""


def is_supported() -> bool:
    """Whether the table has numbers for this machine."""
    return kernel.MACHINE in _ARCHITECTURES


def count_filter(pid: int) -> list[Instruction]:
    """Passes the counted calls on, lets all others through."""
    counted = [row for row in SYSCALLS if any(rule.counted for rule in row[-1])]
    return _filter(counted, lambda rule: USER_NOTIFY if rule.counted else ALLOW, ALLOW, pid)


def deny_filter(pid: int) -> list[Instruction]:
    """Refuses what the table does not allow."""
    return _filter(
        SYSCALLS,
        lambda rule: ERRNO | rule.error if rule.error else ALLOW,
        ERRNO | errno.EPERM,
        pid,
    )


def _filter(
    rows: list[Row], verdict: Callable[[Rule], int], otherwise: int, pid: int
) -> list[Instruction]:
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[kernel.MACHINE]),
        (_RETURN, 0, 0, KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if kernel.MACHINE == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, KILL_PROCESS)]
    for _, on_x86_64, on_aarch64, rules in rows:
        number = on_aarch64 if kernel.MACHINE == "aarch64" else on_x86_64
        if number is None:
            continue
        block = [step for rule in rules for step in _rule(rule, verdict(rule), pid)]
        if rules[-1].conditions:
            block.append((_RETURN, 0, 0, otherwise))
        program += [(_EQUAL, 0, len(block), number), *block]
    return [*program, (_RETURN, 0, 0, otherwise)]


def _rule(rule: Rule, verdict: int, pid: int) -> list[Instruction]:
    """Returns `verdict` where all conditions hold; where one does not, goes on behind its end."""
    steps: list[Instruction] = [(_RETURN, 0, 0, verdict)]
    for condition in reversed(rule.conditions):
        for offset, mask, value in reversed(_words(condition, pid)):
            skip = len(steps)
            steps = [
                (_LOAD, 0, 0, offset),
                (_AND, 0, 0, mask),
                (_EQUAL, 0, skip, value),
                *steps,
            ]
    return steps


def _words(condition: Condition, pid: int) -> list[tuple[int, int, int]]:
    """Offset, mask and value of the 32-bit words that a condition compares (little endian)."""
    low = _ARGUMENTS + 8 * condition.argument
    if isinstance(condition, If):
        return [(low, condition.mask, condition.value)]
    if isinstance(condition, IsNull):
        return [(low, 0xFFFFFFFF, 0), (low + 4, 0xFFFFFFFF, 0)]
    return [(low, 0xFFFFFFFF, pid)]


def install(program: list[Instruction], flags: int = 0) -> int:
    """Put a filter on this process for good; with FLAG_NEW_LISTENER returns the descriptor.

    Raises:
        OSError: the kernel has no such filter.
    """
    code = b"".join(struct.pack("<HBBI", *step) for step in program)
    memory = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a count and, aligned, a pointer.
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(memory))
    return kernel.call("seccomp", SET_MODE_FILTER, flags, ctypes.create_string_buffer(header))


class Counter:
    """The server's side of the first filter: lets `limit` counted calls through, then refuses.

    Args:
        descriptor: what `install` returned in the child.
        limit: how many calls go through.
    """

    _RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV, of the 80 bytes of struct seccomp_notif
    _SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND, of the 24 bytes of struct seccomp_notif_resp
    _CONTINUE = 1

    def __init__(self, descriptor: int, limit: int):
        self.at, self.limit, self.seen = descriptor, limit, 0

    def answer(self) -> None:
        """Decide on one call that waits."""
        notice = bytearray(80)
        try:
            fcntl.ioctl(self.at, self._RECEIVE, notice)
        except OSError:  # its process was killed meanwhile, or a signal came
            return
        self.seen += 1
        (cookie,) = struct.unpack_from("<Q", notice)
        allowed = self.seen <= self.limit
        error = 0 if allowed else -errno.EAGAIN
        reply = struct.pack("<QqiI", cookie, 0, error, self._CONTINUE if allowed else 0)
        try:
            fcntl.ioctl(self.at, self._SEND, bytearray(reply))
        except OSError:
            return

    def close(self) -> None:
        os.close(self.at)
