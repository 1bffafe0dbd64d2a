"""Rows of a release's table, whichever file type it comes as."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from easyvideor1.schema.errors import DataError
from easyvideor1.schema.sources import raw_rows

UNSEEN = "unseen"
"""Field of a row that is asked without its video."""


def table_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row number from 1 and row of a JSON, JSONL, Parquet or Arrow file.

    Raises:
        DataError: at the first row that cannot be read.
    """
    for number, row in raw_rows(path, lambda _: None):
        if isinstance(row, DataError):
            raise row
        yield number, row
