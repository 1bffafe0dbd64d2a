"""Files that appear complete or not at all: written among the drafts of a run, synced, renamed.

A run's drafts lie in a folder of its own (`lease`), on the file system of the cache. Another run
removes that folder when the run is dead, so nothing is ever left half written. Used by both cache
formats.
"""

import contextlib
import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from easyvideor1.preprocess.errors import LeaseLostError
from easyvideor1.schema.files import sync_entry


class SealedFile:
    """A file being written; `seal` gives it its name. An error in its context discards it.

    Args:
        path: its name once it is sealed.
        drafts: existing folder for the time until then, on the same file system.

    Attributes:
        file: to write to, binary.

    Raises:
        LeaseLostError: if the folder of drafts is gone, here or in `seal`.
    """

    def __init__(self, path: Path, drafts: Path):
        self.path = path
        # A name of its own, because two writers may be after the same path.
        self._draft = drafts / uuid.uuid4().hex
        try:
            self.file = self._draft.open("xb")
        except FileNotFoundError as error:
            raise LeaseLostError(str(drafts)) from error

    def seal(self) -> None:
        """Make the file durable and visible; an older one of that name is replaced."""
        self.file.flush()
        os.fsync(self.file.fileno())
        _make_folder(self.path.parent)
        try:
            self._draft.rename(self.path)
        except FileNotFoundError as error:
            raise LeaseLostError(str(self._draft.parent)) from error
        finally:
            self.file.close()
        sync_entry(self.path.parent)

    def discard(self) -> None:
        """Drop the file."""
        self._draft.unlink(missing_ok=True)
        # Closing flushes, which fails again where the disk is full.
        with contextlib.suppress(OSError):
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()


def _make_folder(folder: Path) -> None:
    """As `mkdir -p`, and durable: a file is only as safe as the entries that lead to it."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_entry(folder.parent)
