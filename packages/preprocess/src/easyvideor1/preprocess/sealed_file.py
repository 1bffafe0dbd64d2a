"""Files that appear complete or not at all: written under a hidden name, synced, renamed.

A writer holds a lock on its hidden file, so that `sweep` can tell the remains of a killed writer
from the work of a live one. Used by both cache formats.
"""

import contextlib
import fcntl
import os
import uuid
from pathlib import Path

from easyvideor1.schema.files import sync_entry


class SealedFile:
    """A file being written; `seal` gives it its name.

    Attributes:
        file: to write to, binary.
        path: its name once it is sealed.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own, because two writers may be after the same path.
        self._hidden = path.with_name(f"{_hidden_prefix()}{uuid.uuid4().hex[:12]}-{path.name}")
        self.file = self._hidden.open("wb")
        while not _lock(self.file.fileno()):
            self.file.close()
            self.file = self._hidden.open("wb")

    def seal(self) -> None:
        """Make the file durable and visible."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self._hidden.rename(self.path)
        sync_entry(self.path.parent)
        self.file.close()

    def discard(self) -> None:
        """Drop the file."""
        self.file.close()
        self._hidden.unlink()


def sweep(folder: Path) -> int:
    """Remove hidden files below `folder` whose writers on this machine are dead."""
    return sum(_remove_if_dead(path) for path in folder.rglob(f"{_hidden_prefix()}*"))


def _hidden_prefix() -> str:
    """Names this machine: locks held on another one may not be visible here."""
    return f".writing-{os.uname().nodename}-"


def _lock(descriptor: int) -> bool:
    """Lock a new hidden file; False if a sweep removed it before it was locked."""
    # A file system without locks is never swept either.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def _remove_if_dead(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except OSError:  # locked by its writer, renamed meanwhile, or locks are not supported
        return False
    return True
