"""Data files written on the fly, in the shapes of published annotations; all texts are ours."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.schema.readers import SampleTable, read_samples

Rows = list[dict[str, Any]]
WriteRows = Callable[[str, Rows], Path]
ReadRows = Callable[..., SampleTable]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    """Write rows to a file of `tmp_path`, as a JSON list or as JSONL by its suffix."""

    def write(name: str, rows: Rows) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            text = json.dumps(rows, ensure_ascii=False, indent=1)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def read(tmp_path: Path) -> ReadRows:
    """`read_samples` with a cache of the test's own."""

    def read_with_cache(sources: Any, **options: Any) -> SampleTable:
        return read_samples(sources, cache_dir=tmp_path / "cache", progress=False, **options)

    return read_with_cache


@pytest.fixture
def read_rows(write_rows: WriteRows, read: ReadRows) -> ReadRows:
    """The samples of rows that are written to `data.json` first."""

    def write_and_read(rows: Rows, name: str = "data.json", **options: Any) -> SampleTable:
        return read(write_rows(name, rows), **options)

    return write_and_read
