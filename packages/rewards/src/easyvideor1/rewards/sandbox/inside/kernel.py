"""System calls that Python has no function for, by ctypes; each raises `OSError` on failure."""

import ctypes
import os
import platform

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

MACHINE = platform.machine()
"""`x86_64` or `aarch64` where the sandbox can work."""

CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_NUMBERS = {  # (x86_64, aarch64)
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}


def call(name: str, *arguments: object) -> int:
    """The system call `name`; integers are passed as C longs, the rest as ctypes passes them."""
    number = _NUMBERS[name][MACHINE == "aarch64"]
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *words), name)


def prctl(option: int, value: int = 0) -> None:
    """Set an option of this process; arguments after the first are zero, as most demand."""
    zero = ctypes.c_ulong(0)
    _checked(_LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero), "prctl")


def unshare(flags: int) -> None:
    """Leave the namespaces of `flags`."""
    _checked(_LIBC.unshare(flags), "unshare")


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
