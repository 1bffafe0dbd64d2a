"""Which system calls a program in the sandbox may make: everything else fails with EPERM.

A list of what is allowed, not of what is forbidden, so that what a kernel gains later is refused.
A row holds the call's name, its number on x86_64 and on aarch64 (None where that machine has no
such call), and its rules. The first rule whose conditions all hold decides; without any, EPERM.
"""

import errno
import fcntl
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class If:
    """Holds where `argument & mask == value`, in the low 32 bits that the kernel reads."""

    argument: int
    value: int
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True)
class IsNull:
    """Holds where all 64 bits of a pointer are zero."""

    argument: int


@dataclass(frozen=True)
class IsOwnPid:
    """Holds where the argument is the process itself."""

    argument: int


Condition = If | IsNull | IsOwnPid


@dataclass(frozen=True)
class Rule:
    """What happens to a call: it is allowed, counted and allowed, or fails with `error`."""

    conditions: tuple[Condition, ...] = ()
    error: int = 0
    counted: bool = False
    """The server counts it and refuses it beyond a limit: new threads and new files."""


def _allow(*conditions: Condition) -> Rule:
    return Rule(conditions)


def _count(*conditions: Condition) -> Rule:
    return Rule(conditions, counted=True)


def _fail(error: int, *conditions: Condition) -> Rule:
    return Rule(conditions, error)


_ALWAYS = (_allow(),)
_COUNTED = (_count(),)
_ABSENT = (_fail(errno.ENOSYS),)
"""The C library then uses an older call, whose arguments a filter can see."""

_O_TMPFILE = 0x400000
_THREAD = 0x7D0F00
"""Flags of clone(2) that a C library sets for a thread; CLONE_THREAD is among them."""
_CLONE_THREAD = 0x10000
_LOW_BYTE_AND_THREAD_FLAGS = 0xFFFFFFFF & ~(_THREAD | 0xFF) | _CLONE_THREAD


def _open(flags: int) -> tuple[Rule, ...]:
    """Of open(2) and openat(2): paths are Landlock's matter, new files are counted.

    Emptying a file needs no right to write it under the oldest Landlock, so it must ask for one.
    """
    return (
        _fail(errno.EOPNOTSUPP, If(flags, _O_TMPFILE, _O_TMPFILE)),
        _fail(errno.EPERM, If(flags, os.O_TRUNC, os.O_TRUNC | os.O_ACCMODE)),
        _count(If(flags, os.O_CREAT, os.O_CREAT)),
        _allow(),
    )


def _any_of(argument: int, *values: int) -> tuple[Rule, ...]:
    return tuple(_allow(If(argument, value)) for value in values)


Row = tuple[str, int | None, int | None, tuple[Rule, ...]]

SYSCALLS: list[Row] = [
    # Reading and writing what is open.
    ("read", 0, 63, _ALWAYS),
    ("write", 1, 64, _ALWAYS),
    ("readv", 19, 65, _ALWAYS),
    ("writev", 20, 66, _ALWAYS),
    ("pread64", 17, 67, _ALWAYS),
    ("pwrite64", 18, 68, _ALWAYS),
    ("preadv", 295, 69, _ALWAYS),
    ("pwritev", 296, 70, _ALWAYS),
    ("lseek", 8, 62, _ALWAYS),
    ("close", 3, 57, _ALWAYS),
    ("close_range", 436, 436, _ALWAYS),
    ("dup", 32, 23, _ALWAYS),
    ("dup2", 33, None, _ALWAYS),
    ("dup3", 292, 24, _ALWAYS),
    ("fsync", 74, 82, _ALWAYS),
    ("fdatasync", 75, 83, _ALWAYS),
    # F_SETOWN and F_SETSIG would send any signal to any process of the user: they are left out.
    ("fcntl", 72, 25, _any_of(1, fcntl.F_DUPFD, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL,
                              fcntl.F_SETFL, fcntl.F_DUPFD_CLOEXEC)),
    # Is it a terminal, its size, bytes to read, non-blocking, close on exec. FIOSETOWN is not here.
    ("ioctl", 16, 29, (*_any_of(1, 0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451),
                       _fail(errno.ENOTTY))),
    # Files by path: Landlock decides which.
    ("open", 2, None, _open(1)),
    ("openat", 257, 56, _open(2)),
    ("openat2", 437, 437, _ABSENT),
    ("stat", 4, None, _ALWAYS),
    ("lstat", 6, None, _ALWAYS),
    ("fstat", 5, 80, _ALWAYS),
    ("newfstatat", 262, 79, _ALWAYS),
    ("statx", 332, 291, _ALWAYS),
    ("statfs", 137, 43, _ALWAYS),
    ("fstatfs", 138, 44, _ALWAYS),
    ("access", 21, None, _ALWAYS),
    ("faccessat", 269, 48, _ALWAYS),
    ("faccessat2", 439, 439, _ALWAYS),
    ("readlink", 89, None, _ALWAYS),
    ("readlinkat", 267, 78, _ALWAYS),
    ("getdents64", 217, 61, _ALWAYS),
    ("getcwd", 79, 17, _ALWAYS),
    ("chdir", 80, 49, _ALWAYS),
    ("fchdir", 81, 50, _ALWAYS),
    ("umask", 95, 166, _ALWAYS),
    ("mkdir", 83, None, _COUNTED),
    ("mkdirat", 258, 34, _COUNTED),
    ("rmdir", 84, None, _ALWAYS),
    ("unlink", 87, None, _ALWAYS),
    ("unlinkat", 263, 35, _ALWAYS),
    ("rename", 82, None, _ALWAYS),
    ("renameat", 264, 38, _ALWAYS),
    ("renameat2", 316, 276, _ALWAYS),
    ("ftruncate", 77, 46, _ALWAYS),
    ("fallocate", 285, 47, (_fail(errno.EOPNOTSUPP),)),
    # Memory.
    ("mmap", 9, 222, _ALWAYS),
    ("munmap", 11, 215, _ALWAYS),
    ("mprotect", 10, 226, _ALWAYS),
    ("mremap", 25, 216, _ALWAYS),
    ("madvise", 28, 233, _ALWAYS),
    ("msync", 26, 227, _ALWAYS),
    ("brk", 12, 214, _ALWAYS),
    # Threads: a clone that is one, and nothing else.
    ("clone", 56, 220, (_count(If(0, _CLONE_THREAD, _LOW_BYTE_AND_THREAD_FLAGS)),)),
    ("clone3", 435, 435, _ABSENT),
    ("futex", 202, 98, _ALWAYS),
    ("set_robust_list", 273, 99, _ALWAYS),
    ("set_tid_address", 218, 96, _ALWAYS),
    ("rseq", 334, 293, _ALWAYS),
    ("sched_yield", 24, 124, _ALWAYS),
    ("sched_getaffinity", 204, 123, _ALWAYS),
    ("getcpu", 309, 168, _ALWAYS),
    ("exit", 60, 93, _ALWAYS),
    ("exit_group", 231, 94, _ALWAYS),
    ("wait4", 61, 260, _ALWAYS),
    ("waitid", 247, 95, _ALWAYS),
    ("restart_syscall", 219, 128, _ALWAYS),
    # Time.
    ("clock_gettime", 228, 113, _ALWAYS),
    ("clock_getres", 229, 114, _ALWAYS),
    ("clock_nanosleep", 230, 115, _ALWAYS),
    ("nanosleep", 35, 101, _ALWAYS),
    ("gettimeofday", 96, 169, _ALWAYS),
    ("time", 201, None, _ALWAYS),
    ("times", 100, 153, _ALWAYS),
    ("alarm", 37, None, _ALWAYS),
    ("getitimer", 36, 102, _ALWAYS),
    ("setitimer", 38, 103, _ALWAYS),
    # Signals, to itself alone.
    ("kill", 62, 129, (_allow(IsOwnPid(0)),)),
    ("tgkill", 234, 131, (_allow(IsOwnPid(0)),)),
    ("pause", 34, None, _ALWAYS),
    ("rt_sigaction", 13, 134, _ALWAYS),
    ("rt_sigprocmask", 14, 135, _ALWAYS),
    ("rt_sigreturn", 15, 139, _ALWAYS),
    ("rt_sigpending", 127, 136, _ALWAYS),
    ("rt_sigtimedwait", 128, 137, _ALWAYS),
    ("rt_sigsuspend", 130, 133, _ALWAYS),
    ("sigaltstack", 131, 132, _ALWAYS),
    # Who and where it is.
    ("getpid", 39, 172, _ALWAYS),
    ("getppid", 110, 173, _ALWAYS),
    ("gettid", 186, 178, _ALWAYS),
    ("getuid", 102, 174, _ALWAYS),
    ("geteuid", 107, 175, _ALWAYS),
    ("getgid", 104, 176, _ALWAYS),
    ("getegid", 108, 177, _ALWAYS),
    ("getresuid", 118, 148, _ALWAYS),
    ("getresgid", 120, 150, _ALWAYS),
    ("getgroups", 115, 158, _ALWAYS),
    ("getpgrp", 111, None, _ALWAYS),
    ("getpgid", 121, 155, (_allow(If(0, 0)),)),
    ("getsid", 124, 156, (_allow(If(0, 0)),)),
    ("uname", 63, 160, _ALWAYS),
    ("sysinfo", 99, 179, _ALWAYS),
    ("getrusage", 98, 165, _ALWAYS),
    ("getrlimit", 97, 163, _ALWAYS),
    ("setrlimit", 160, 164, _ALWAYS),  # it cannot exceed the hard limits
    ("prlimit64", 302, 261, (_allow(If(0, 0)), _allow(IsOwnPid(0)))),
    ("getrandom", 318, 278, _ALWAYS),
    # Waiting for descriptors, and pairs of them: what an event loop needs.
    ("poll", 7, None, _ALWAYS),
    ("ppoll", 271, 73, _ALWAYS),
    ("select", 23, None, _ALWAYS),
    ("pselect6", 270, 72, _ALWAYS),
    ("epoll_create", 213, None, _ALWAYS),
    ("epoll_create1", 291, 20, _ALWAYS),
    ("epoll_ctl", 233, 21, _ALWAYS),
    ("epoll_wait", 232, None, _ALWAYS),
    ("epoll_pwait", 281, 22, _ALWAYS),
    ("eventfd2", 290, 19, _ALWAYS),
    ("pipe", 22, None, _ALWAYS),
    ("pipe2", 293, 59, _ALWAYS),
    # A pair of connected streams leads nowhere else; datagrams could be sent to any address.
    ("socketpair", 53, 199, (_allow(If(0, socket.AF_UNIX), If(1, socket.SOCK_STREAM, 0xF)),)),
    ("sendto", 44, 206, (_allow(IsNull(4), If(3, 0, socket.MSG_OOB)),)),
    ("recvfrom", 45, 207, (_allow(If(3, 0, socket.MSG_OOB)),)),
    ("shutdown", 48, 210, _ALWAYS),
]  # fmt: skip
