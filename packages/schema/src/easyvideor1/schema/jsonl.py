"""Append-only result files: one JSON object per line, safe against being killed while writing.

`append` leaves complete lines on the disk or a torn last one; `read` drops a torn last line and
says so. A damaged line anywhere else means that something else wrote the file: an error.
"""

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.files import new_file, sync_entry

_log = logging.getLogger(__name__)


def append(path: str | Path, records: Iterable[Any]) -> None:
    """Add `records` to `path` and return when they are on the disk.

    A torn last line left by a killed writer is removed first. One writer per file at a time.

    Args:
        path: created with its folders if absent.
        records: mappings or records of `schema.records`.
    """
    path = Path(path)
    lines = [_line(record) for record in records]
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("ab+") as file:
        _repair_tail(path, file.fileno())
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_entry(path.parent)


def keep(path: str | Path, is_kept: Callable[[dict[str, Any]], bool]) -> None:
    """Remove the other objects from `path`, all at once; a file that is not there stays so."""
    path = Path(path)
    if not path.exists():
        return
    rows = read(path)
    kept = [row for row in rows if is_kept(row)]
    if len(kept) < len(rows):
        with new_file(path) as draft:
            draft.write_bytes(b"".join(map(_line, kept)))


def _line(record: Any) -> bytes:
    values = to_plain(record) if dataclasses.is_dataclass(record) else dict(record)
    return (json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _repair_tail(path: Path, descriptor: int) -> None:
    """End the file at its last complete line."""
    size = os.fstat(descriptor).st_size
    tail = _after_last_newline(descriptor, size)
    if not tail:
        return
    if _parse(tail) is not None:  # complete but for its newline
        os.write(descriptor, b"\n")
        return
    _log.warning("%s: removed a torn last line of %d bytes", path, len(tail))
    os.ftruncate(descriptor, size - len(tail))


def _after_last_newline(descriptor: int, size: int) -> bytes:
    block, tail, end = 1 << 16, b"", size
    while end > 0:
        start = max(0, end - block)
        tail = os.pread(descriptor, end - start, start) + tail
        if b"\n" in tail:
            return tail.rpartition(b"\n")[2]
        end = start
    return tail


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read(path: str | Path) -> list[dict[str, Any]]:
    """All objects of `path`; a torn last line is left out and reported by a warning.

    Raises:
        DataError: for a damaged line that is not the last, or a complete one that is no object.
    """
    lines = Path(path).read_bytes().split(b"\n")
    unfinished = lines.pop()  # empty when the file ends with a newline
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _parse(line)
        if row is None:
            shown = line[:80].decode(errors="replace")
            raise DataError(
                path, number, "line", shown, "a JSON object", "The file was damaged or edited."
            )
        rows.append(row)
    if unfinished.strip():
        row = _parse(unfinished)
        if row is None:
            _log.warning("%s:%d: left out a torn last line", path, len(lines) + 1)
        else:
            rows.append(row)
    return rows
