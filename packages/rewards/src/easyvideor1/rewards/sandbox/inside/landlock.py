"""Landlock: which files a process may open. Everything that no rule names is refused.

Rights are for folders and all beneath. Where the kernel's version knows them, TCP, signals to
others and abstract sockets are refused as well; the system-call filter refuses them everywhere.
"""

import ctypes
import os
import stat
import struct

from . import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_DIR, MAKE_REG = 1 << 7, 1 << 8
TRUNCATE = 1 << 14

READ = READ_FILE | READ_DIR
SCRATCH = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE
OF_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
"""Rights that a rule on something else than a folder may grant."""

_NUM_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""Rights over files that a version knows; 16 from version 5."""
_NETWORK_FROM, _NETWORK_RIGHTS = 4, 0b11
_SCOPES_FROM, _SCOPES = 6, 0b11
_PATH_BENEATH = 1
_VERSION_FLAG = 1


def version() -> int:
    """The kernel's Landlock version; 0 where it has none or it is switched off."""
    try:
        return kernel.call("landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


class Ruleset:
    """Rules that any number of processes can put on themselves, each for good."""

    def __init__(self) -> None:
        known = version()
        self._rights = (1 << _NUM_RIGHTS.get(known, 16)) - 1
        handled = struct.pack("<Q", self._rights)
        if known >= _NETWORK_FROM:
            handled += struct.pack("<Q", _NETWORK_RIGHTS)
        if known >= _SCOPES_FROM:
            handled += struct.pack("<Q", _SCOPES)
        attribute = ctypes.create_string_buffer(handled, len(handled))
        self.descriptor = kernel.call("landlock_create_ruleset", attribute, len(handled), 0)

    def allow(self, path: str, rights: int) -> None:
        """Grant `rights` on a file, or on a folder and all beneath; nothing if it is not there."""
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= OF_A_FILE
            rule = struct.pack("<Qi", rights & self._rights, descriptor)
            memory = ctypes.create_string_buffer(rule, len(rule))
            kernel.call("landlock_add_rule", self.descriptor, _PATH_BENEATH, memory, 0)
        finally:
            os.close(descriptor)

    def enforce(self) -> None:
        """Put the rules on this process. It needs PR_SET_NO_NEW_PRIVS.

        Raises:
            OSError: the kernel refuses.
        """
        kernel.call("landlock_restrict_self", self.descriptor, 0)
