"""Reading and writing samples: any data file in, one `SampleTable` out.

`read_samples` finds the files, has each converted to Arrow once, and maps them. Formats are
described in `schema.formats` and docs/data.md; media files are named, not opened.
"""

import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from easyvideor1.schema.arrow import SAMPLE_SCHEMA, to_arrow
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.convert import convert
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.files import new_file
from easyvideor1.schema.formats import FORMATS
from easyvideor1.schema.records import ProblemType, Sample, parse_problem_type
from easyvideor1.schema.sources import find_files, is_ipc_file, is_own_sample_file
from easyvideor1.schema.table import Part, SampleTable

__all__ = ["SampleTable", "missing_media", "read_samples", "write_samples"]

_log = logging.getLogger(__name__)


def read_samples(
    sources: str | Path | Sequence[str | Path],
    *,
    format: str = "auto",
    media_root: str | Path | None = None,
    on_bad_row: str = "raise",
    problem_type: ProblemType | str | None = None,
    cache_dir: Path | None = None,
    progress: bool = True,
) -> SampleTable:
    """All samples of one or more data files, in order.

    Args:
        sources: `.json`, `.jsonl`, `.parquet` or `.arrow` files, folders of them, or globs.
        format: one of `formats.FORMATS`; `auto` tells it for each file from its fields.
        media_root: where relative media paths start; None is the folder of their data file.
        on_bad_row: `raise` at the first bad row, or `skip` them into `SampleTable.skipped`.
        problem_type: of rows that name none (EasyR1 files).
        cache_dir: conversions go to its folder `samples`; None is `outputs/cache`.
        progress: show a bar while a file is converted.

    Raises:
        DataError: for a bad row, with file, row and field.
        UserError: for a missing file, an unknown format, or an id that two files share.
    """
    _check_choice("format", format, FORMATS)
    _check_choice("on_bad_row", on_bad_row, ("raise", "skip"))
    wanted_type = _parse_type(problem_type)
    files = find_files(sources)
    if media_root is not None and not Path(media_root).expanduser().is_dir():
        raise UserError(f"media_root={media_root} is not a folder")
    cache_dir = Path(cache_dir) if cache_dir else resolve_output("outputs/cache")
    parts: list[Part] = []
    skipped: list[DataError] = []
    for file in files:
        arrow_path = file
        if not (file.suffix == ".arrow" and is_own_sample_file(file) and is_ipc_file(file)):
            conversion = convert(
                file,
                format=format,
                problem_type=wanted_type,
                on_bad_row=on_bad_row,
                cache_dir=cache_dir,
                progress=progress,
            )
            arrow_path = conversion.arrow_path
            skipped += conversion.skipped
        root = Path(media_root).expanduser() if media_root else file.parent
        parts.append(Part(arrow_path=arrow_path, media_root=root.absolute(), source=file))
    table = SampleTable(parts, skipped=skipped)
    _refuse_shared_ids(table)
    if skipped:
        _log.warning(
            "skipped %d bad rows, kept %d; the first: %s", len(skipped), len(table), skipped[0]
        )
    return table


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _parse_type(name: ProblemType | str | None) -> ProblemType | None:
    try:
        return None if name is None else parse_problem_type(name)
    except ValueError as error:
        raise UserError(f"problem_type: {error}") from None


def _refuse_shared_ids(table: SampleTable) -> None:
    """Results are stored by id, so an id may stand for one sample only."""
    if (shared := table.shared_id()) is None:
        return
    name, files = shared
    raise UserError(
        f"the id {name!r} stands in {' and '.join(map(str, files))} more than once; ids "
        "must be unique over all files read together. Ids of published formats begin with the "
        "file's name, so rename one of two files of the same name, or read them apart"
    )


def missing_media(samples: Iterable[Sample]) -> list[tuple[str, str]]:
    """Sample id and path of every media file that is not there; each path is looked up once."""
    exists: dict[str, bool] = {}
    missing = []
    for sample in samples:
        for medium in sample.media:
            for path in filter(None, (medium.path, *medium.frames)):
                if path not in exists:
                    exists[path] = os.path.isfile(path)
                if not exists[path]:
                    missing.append((sample.id, path))
    return missing


def write_samples(path: str | Path, samples: Iterable[Sample]) -> None:
    """Write samples in our own format; the suffix picks JSONL, Arrow or Parquet.

    The file appears complete or not at all. Media paths are written as they are in the samples.

    Raises:
        UserError: for another suffix.
    """
    path = Path(path)
    writers = {".jsonl": _write_jsonl, ".arrow": _write_arrow, ".parquet": _write_parquet}
    if path.suffix not in writers:
        raise UserError(f"{path}: samples are written as {', '.join(writers)}")
    with new_file(path) as draft:
        writers[path.suffix](draft, samples)


def _write_jsonl(path: Path, samples: Iterable[Sample]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            values = _without_defaults(sample, to_plain(sample))
            file.write(json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")


def _without_defaults(record: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a reader would fill in anyway, so that files stay readable."""
    kept = {}
    for field in fields(record):
        value = getattr(record, field.name)
        factory = field.default_factory
        default = factory() if factory is not MISSING else field.default
        if default is not MISSING and value == default:
            continue
        kept[field.name] = plain[field.name]
    for name in ("media", "offline"):
        if name in kept:
            kept[name] = [
                _without_defaults(item, values)
                for item, values in zip(getattr(record, name), kept[name], strict=True)
            ]
    return kept


def _write_arrow(path: Path, samples: Iterable[Sample]) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SAMPLE_SCHEMA) as writer:
        writer.write_table(to_arrow(samples, Sample), max_chunksize=1024)


def _write_parquet(path: Path, samples: Iterable[Sample]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(to_arrow(samples, Sample), path)
