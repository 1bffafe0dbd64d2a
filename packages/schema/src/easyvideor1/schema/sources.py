"""From what the user names (files, folders, globs) to raw rows with their numbers.

Knows file types, not data formats: what the fields of a row mean is `schema.formats`' business.
"""

import difflib
import glob
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from easyvideor1.schema import arrow
from easyvideor1.schema.errors import DataError, UserError

SUFFIXES = (".json", ".jsonl", ".parquet", ".arrow")

Advance = Callable[[int], object]
"""Called with the number of bytes (JSON) or rows (Arrow, Parquet) read since the last call."""

RawRow = tuple[int, dict[str, Any] | DataError]
"""Row number from 1 (for `.jsonl` the line) and the row, or what makes it unreadable."""


def find_files(
    sources: str | Path | Sequence[str | Path], suffixes: Sequence[str] = SUFFIXES
) -> list[Path]:
    """The data files that `sources` name, in the order given; within a folder or glob, sorted.

    Args:
        sources: files, folders and globs.
        suffixes: of the file types that the caller reads.

    Raises:
        UserError: for a path that is not there, a glob or folder without data files, an unknown
            file type, or a file named twice.
    """
    if isinstance(sources, str | Path):
        sources = [sources]
    files = [file for source in sources for file in _expand(Path(source).expanduser(), suffixes)]
    if not files:
        raise UserError("no data files are named; give files, folders or globs")
    seen: set[Path] = set()
    for file in files:
        if (resolved := file.resolve()) in seen:
            raise UserError(f"{file} is named twice; every data file may be read once")
        seen.add(resolved)
    return files


def _expand(source: Path, suffixes: Sequence[str]) -> list[Path]:
    if source.is_dir():
        found = sorted(path for path in source.iterdir() if path.suffix in suffixes)
        if not found:
            raise UserError(f"the folder {source} holds no {' '.join(suffixes)} file")
        return found
    if source.is_file():
        return [_of_known_type(source, suffixes)]
    if glob.has_magic(str(source)):
        matches = sorted(Path(match) for match in glob.glob(str(source), recursive=True))
        if not matches:
            raise UserError(f"no file matches {source}")
        return [_of_known_type(path, suffixes) for path in matches if path.is_file()]
    raise UserError(f"{source} does not exist.{_neighbour(source)}")


def _of_known_type(path: Path, suffixes: Sequence[str]) -> Path:
    if path.suffix not in suffixes:
        raise UserError(
            f"{path}: cannot read {path.suffix or 'this'} files, only {' '.join(suffixes)}"
        )
    return path


def _neighbour(source: Path) -> str:
    if not source.parent.is_dir():
        return f" Its folder {source.parent} does not exist either."
    names = [path.name for path in source.parent.iterdir()]
    close = difflib.get_close_matches(source.name, names, n=1)
    return f" Did you mean {source.parent / close[0]}?" if close else ""


def total_units(path: Path) -> tuple[int, str]:
    """Length of a progress bar over `path` and its unit: bytes for JSON, rows otherwise."""
    if path.suffix in (".json", ".jsonl"):
        return path.stat().st_size, "B"
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with _readable(path):
            return pq.read_metadata(path).num_rows, " rows"
    return sum(batch.num_rows for batch in arrow_batches(path)), " rows"


def raw_rows(path: Path, advance: Advance) -> Iterator[RawRow]:
    """Every row of `path`, lazily.

    Raises:
        UserError: for a file that is damaged beyond single rows.
    """
    if path.suffix == ".jsonl":
        return _jsonl_rows(path, advance)
    if path.suffix == ".json":
        return _json_rows(path, advance)
    return _columnar_rows(path, advance)


def _jsonl_rows(path: Path, advance: Advance) -> Iterator[RawRow]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            advance(len(line))
            if line.strip():
                yield number, _jsonl_row(path, number, line)


def _jsonl_row(path: Path, number: int, line: bytes) -> dict[str, Any] | DataError:
    try:
        value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        shown = line.decode(errors="replace").rstrip("\n")
        return DataError(path, number, "line", shown, f"a JSON object ({error})")
    return _object(path, number, value)


def _object(path: Path, number: int, value: Any) -> dict[str, Any] | DataError:
    if isinstance(value, dict):
        return value
    return DataError(path, number, "row", value, "a JSON object")


def _json_rows(path: Path, advance: Advance) -> Iterator[RawRow]:
    """Rows of a JSON list, or of objects one after another; only one is decoded at a time."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from None
    bytes_per_character = path.stat().st_size / max(1, len(text))
    decoder = json.JSONDecoder()
    position, number = _skip_blank(text, 0), 0
    in_list = text.startswith("[", position)
    if in_list:
        position = _skip_blank(text, position + 1)
    while position < len(text) and not (in_list and text[position] == "]"):
        start, number = position, number + 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, number, text, start, str(error)) from None
        yield number, _object(path, number, value)
        position = _skip_blank(text, position)
        if in_list and text.startswith(",", position):
            position = _skip_blank(text, position + 1)
        elif in_list and not text.startswith("]", position):
            raise _damaged(path, number, text, position, "expected , or ] after the row")
        advance(round((position - start) * bytes_per_character))
    if in_list and position >= len(text):
        raise _damaged(path, number, text, position, "the list is never closed: a torn file")


def _skip_blank(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _damaged(path: Path, number: int, text: str, position: int, problem: str) -> DataError:
    line = text.count("\n", 0, position) + 1
    shown = text[position : position + 60]
    expected = f"a JSON list of objects ({problem}; line {line})"
    return DataError(path, number, "row", shown, expected, "Rows after it cannot be read.")


def _columnar_rows(path: Path, advance: Advance) -> Iterator[RawRow]:
    number = 0
    for batch in columnar_batches(path):
        for values in batch.to_pylist():
            number += 1
            yield number, {name: _no_nan(value) for name, value in values.items()}
        advance(batch.num_rows)


def _no_nan(value: Any) -> Any:
    """Pandas writes NaN where a row has no value."""
    return None if isinstance(value, float) and value != value else value


def columnar_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of an `.arrow` (IPC file or stream) or `.parquet` file."""
    if path.suffix == ".arrow":
        return arrow_batches(path)
    return _parquet_batches(path)


def _parquet_batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with _readable(path), pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=1024)


def arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of an Arrow IPC file or stream, memory-mapped."""
    with _readable(path), pa.memory_map(str(path)) as source:
        if is_ipc_file(path):
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)
        else:
            yield from pa.ipc.open_stream(source)


def columnar_schema(path: Path) -> pa.Schema:
    """Schema of an `.arrow` or `.parquet` file, without its rows."""
    with _readable(path):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            return pq.read_schema(path)
        with pa.memory_map(str(path)) as source:
            open_ipc = pa.ipc.open_file if is_ipc_file(path) else pa.ipc.open_stream
            return open_ipc(source).schema


def is_ipc_file(path: Path) -> bool:
    """Whether `path` is an Arrow IPC file with random access, not a stream."""
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"


class _readable:
    """Turns Arrow's complaint about a damaged file into one that names it."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException):
            raise UserError(
                f"{self.path} cannot be read as {self.path.suffix[1:]} ({error}); it is damaged, "
                "incomplete or of another type than its name says"
            ) from error


def is_own_sample_file(path: Path) -> bool:
    """Whether `path` is an Arrow or Parquet file of our own samples, in the version we read.

    Raises:
        UserError: for our own file of another record or version.
    """
    from easyvideor1.schema.records import Sample

    if path.suffix not in (".arrow", ".parquet"):
        return False
    schema = columnar_schema(path)
    if not arrow.is_versioned(schema):
        return False
    arrow.check_schema(schema, Sample, path)
    return True
