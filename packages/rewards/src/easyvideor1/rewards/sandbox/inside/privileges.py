"""Namespaces of its own, no capabilities, and another user where the server is started as root.

All of this is in addition: the minimum is Landlock and the system-call filter, which need neither
root nor namespaces. What could be had is returned, for `check` and the tests to show.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from . import kernel

NOBODY = 65534
_NAMESPACES = {
    "network": kernel.CLONE_NEWNET,
    "ipc": kernel.CLONE_NEWIPC,
    "pid": kernel.CLONE_NEWPID,
    "uts": kernel.CLONE_NEWUTS,
}
_CAPABILITY_VERSION = 0x20080522
_MAX_CAPABILITY = 63


def drop(needed: Iterable[str]) -> list[str]:
    """Give up what can be given up; returns the names of what this process has of its own now.

    A pid namespace is for the children that come after this.

    Args:
        needed: files and folders that must stay readable. Where another user could not reach them
            (an interpreter under root's home), root stays root, without any capability.
    """
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    wanted = sum(_NAMESPACES.values())
    own = list(_NAMESPACES) if _unshare(wanted) else []
    if os.geteuid() == 0 and all(_others_reach(path) for path in needed) and _leave_root():
        own.append("user id")
    if _unshare(kernel.CLONE_NEWUSER | (0 if own[:1] == ["network"] else wanted)):
        own = [*dict.fromkeys([*_NAMESPACES, *own]), "user"]
    _drop_capabilities()
    # Nobody of the same user may trace it or read its /proc entry.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    return own


def _unshare(flags: int) -> bool:
    try:
        kernel.unshare(flags)
    except OSError:
        return False
    return True


def _others_reach(path: str) -> bool:
    """Whether any user may read what is at `path`."""
    path = os.path.realpath(path)
    while path != "/":
        try:
            mode = os.stat(path).st_mode
        except OSError:
            return False
        wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
        if not mode & wanted:
            return False
        path = os.path.dirname(path)
    return True


def _leave_root() -> bool:
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:  # a container whose ids do not reach so far, or without CAP_SETUID
        return False
    return True


def _drop_capabilities() -> None:
    """Empty all capability sets; without no_new_privs a later exec could fill them again."""
    for capability in range(_MAX_CAPABILITY + 1):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError:  # beyond the last one, or not ours to drop
            break
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION, 0), 8)
    kernel.call("capset", header, ctypes.create_string_buffer(24))
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
