"""Files and folders that appear complete or not at all, and survive a power cut once they do.

Whatever we store goes through here or through `schema.jsonl`; checkpoints and cache shards, which
others write, keep the same order: write beside, sync, rename, sync the folder.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def sync_entry(path: Path) -> None:
    """Make a file's content, or a folder's list of entries, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_bytes(folder: Path) -> int:
    """Of all files in a folder and below; 0 if it is not there."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def new_file(path: Path) -> Generator[Path]:
    """A path to write to, which becomes `path` when the block ends well and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        sync_entry(draft)
        draft.replace(path)
        sync_entry(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write a whole JSON file, or leave the one that is there."""
    with new_file(path) as draft:
        draft.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class DraftFolder:
    """A folder to fill, out of sight until `seal` gives it its name.

    Args:
        path: the name. If another process makes it meanwhile, that one stays: use this for content
            that does not depend on who writes it.
    """

    def __init__(self, path: Path):
        self.target = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        self.path.chmod(0o755)  # mkdtemp's 0o700 would shut others out of a shared folder

    def seal(self) -> None:
        """Make the content durable and the folder visible."""
        for entry in self.path.rglob("*"):
            sync_entry(entry)
        sync_entry(self.path)
        try:
            self.path.rename(self.target)
        except OSError:
            if not self.target.is_dir():
                raise
        sync_entry(self.target.parent)
        self.discard()  # what is left where another process came first

    def discard(self) -> None:
        """Remove the draft; nothing is left to remove once it is sealed."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A `DraftFolder` to fill, sealed when the block ends well and discarded otherwise."""
    draft = DraftFolder(path)
    try:
        yield draft.path
        draft.seal()
    finally:
        draft.discard()
