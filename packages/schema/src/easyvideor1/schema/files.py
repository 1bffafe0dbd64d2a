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


@contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder to fill, which becomes `path` when the block ends well and vanishes otherwise.

    If another process made `path` meanwhile, that one stays: use it for content that does not
    depend on who writes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        draft.chmod(0o755)  # mkdtemp's 0o700 would shut others out of a shared folder
        yield draft
        for entry in draft.rglob("*"):
            sync_entry(entry)
        sync_entry(draft)
        try:
            draft.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        sync_entry(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
