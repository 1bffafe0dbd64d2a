"""Data files to Arrow, once: a folder per content and options under `<cache>/samples/`.

    <key>/samples.arrow    the good rows, in our schema
    <key>/skipped.jsonl    the bad rows, if any
    <key>/images/          images that were embedded in the rows, if any

A conversion is written beside and renamed; a file whose size and times are unchanged since its
content was hashed is not read again. Called by `schema.readers`.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from easyvideor1.schema import jsonl
from easyvideor1.schema.arrow import SAMPLE_SCHEMA, VERSIONS, to_json_text, to_row
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.files import new_file, new_folder
from easyvideor1.schema.formats import EXTRACTED, Context, detect, parse
from easyvideor1.schema.records import ProblemType
from easyvideor1.schema.sources import (
    RawRow,
    columnar_batches,
    is_own_sample_file,
    raw_rows,
    total_units,
)

READER_VERSION = 2
"""Raise it when the same row would become another sample."""

ROWS_PER_BATCH = 1024
DETECTION_ROWS = 20
BAR_DELAY_S = 1.0  # small files need no bar
SHOWN = 200  # characters of a bad value that are kept for its message
_RACY_NS = 2_000_000_000  # a file may change within one tick of its modification time


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversion:
    """A data file in Arrow."""

    arrow_path: Path
    skipped: tuple[DataError, ...]


def convert(
    path: Path,
    *,
    format: str,
    problem_type: ProblemType | None,
    on_bad_row: str,
    cache_dir: Path,
    progress: bool,
) -> Conversion:
    """The Arrow form of `path`, from the cache or made now.

    Raises:
        DataError: for the first bad row, unless `on_bad_row` is `skip`.
        UserError: for a file whose format cannot be told, or without good rows.
    """
    root = cache_dir / "samples"
    digest = content_digest(path, root / "index")
    options = [digest, READER_VERSION, VERSIONS["Sample"], format, problem_type, path.name]
    key = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:32]
    folder = root / key
    if not folder.is_dir():
        with new_folder(folder) as draft:
            _write(path, draft, format, problem_type, on_bad_row, progress)
    skipped = _stored_errors(path, folder / "skipped.jsonl")
    if skipped and on_bad_row == "raise":
        raise skipped[0]
    return Conversion(arrow_path=folder / "samples.arrow", skipped=skipped)


def _write(
    path: Path,
    draft: Path,
    format: str,
    problem_type: ProblemType | None,
    on_bad_row: str,
    progress: bool,
) -> None:
    """Fill the folder `draft` from `path`."""
    total, unit = total_units(path)
    bar = tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        desc=f"reading {path.name}",
        disable=not progress,
        delay=BAR_DELAY_S,
        mininterval=0.2 if sys.stderr.isatty() else 10.0,  # a log file keeps every update
    )
    errors: list[DataError] = []
    with (
        bar,
        pa.OSFile(str(draft / "samples.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, SAMPLE_SCHEMA) as writer,
    ):
        if is_own_sample_file(path):
            batches = columnar_batches(path)
        else:
            context, rows = _open(path, draft, format, problem_type, bar)
            batches = _batches(_parsed(rows, context, on_bad_row, errors))
        count = 0
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    if not count:
        raise errors[0] if errors else UserError(f"{path} holds no rows")
    jsonl.append(draft / "skipped.jsonl", [_stored(error) for error in errors])


def _open(
    path: Path, draft: Path, format: str, problem_type: ProblemType | None, bar: tqdm
) -> tuple[Context, Iterator[RawRow]]:
    rows = raw_rows(path, bar.update)
    first = list(islice(rows, DETECTION_ROWS))
    if not first:
        raise UserError(f"{path} holds no rows")
    if format == "auto":
        format = _detect(path, first)

    def store_image(data: bytes, name: str) -> str:
        target = draft / "images" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
        return f"{EXTRACTED}images/{name}"

    context = Context(path=path, format=format, problem_type=problem_type, store_image=store_image)
    return context, chain(first, rows)


def _detect(path: Path, first: list[RawRow]) -> str:
    readable = [values for _, values in first if isinstance(values, dict)]
    unreadable = [error for _, error in first if isinstance(error, DataError)]
    if unreadable and not readable:
        raise unreadable[0]
    return detect(path, readable)


def _parsed(
    rows: Iterator[RawRow], context: Context, on_bad_row: str, errors: list[DataError]
) -> Iterator[dict[str, Any]]:
    """Good rows as columns; bad ones raise or join `errors`."""
    numbers: dict[str, int] = {}
    for number, values in rows:
        try:
            if isinstance(values, DataError):
                raise values
            sample = parse(values, number, context)
            if (before := numbers.setdefault(sample.id, number)) != number:
                raise DataError(
                    context.path, number, "id", sample.id, f"an id of its own; row {before} has it"
                )
            yield to_row(sample)
        except DataError as error:
            if on_bad_row == "raise":
                raise
            errors.append(error)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    while batch := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_pylist(batch, schema=SAMPLE_SCHEMA)


def _stored(error: DataError) -> dict[str, Any]:
    """Without the path: the same content may later be read from another place."""
    value = error.value
    if isinstance(value, str):
        value = value[:SHOWN]
    elif len(repr(value)) > SHOWN or not _is_json(value):
        value = repr(value)[:SHOWN]
    return {
        "row": error.row,
        "field": error.field,
        "value": value,
        "expected": error.expected,
        "fix": error.fix,
    }


def _is_json(value: Any) -> bool:
    try:
        to_json_text(value)
    except (TypeError, ValueError):
        return False
    return True


def _stored_errors(path: Path, file: Path) -> tuple[DataError, ...]:
    if not file.exists():
        return ()
    return tuple(DataError(path, **row) for row in jsonl.read(file))


def content_digest(path: Path, index_dir: Path) -> str:
    """SHA-256 of a file's content; not read again while size, times and inode stay the same."""
    stat = path.stat()
    state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    index = index_dir / f"{name}.json"
    if index.exists():
        known = json.loads(index.read_text())
        if known["state"] == state:
            return known["sha256"]
    started = time.time_ns()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if started - max(stat.st_mtime_ns, stat.st_ctime_ns) > _RACY_NS:
        with new_file(index) as draft:
            draft.write_text(json.dumps({"state": state, "sha256": digest, "path": str(path)}))
    return digest
