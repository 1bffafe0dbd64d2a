"""EasyVideoR1's converted benchmark files: one vocabulary for all, some facts of the release lost.

Their rows hold `problem`, `options`, `solution` and `path`. `layout.converted` gives back the names
of the release to the fields that they kept, so that ids and categories are the same in both.
"""

from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmark_config import LayoutConfig
from easyvideor1.schema.formats import Context, parse
from easyvideor1.schema.records import Sample

MARKS = frozenset({"problem", "problem_type", "solution", "path"})
CONVERTED_FIELDS = MARKS | {"options", "data_type", "data_source", "process", "problem_id"}
"""Of its vocabulary; the others are a benchmark's own."""


def is_converted(row: dict[str, Any]) -> bool:
    """Whether a row is one of EasyVideoR1's converted files."""
    return row.keys() >= MARKS


def parsed(row: dict[str, Any], number: int, path: Path, layout: LayoutConfig) -> Sample:
    """The sample in a converted row, with the release's names in `extra`.

    Raises:
        DataError: naming the field that breaks a rule.
    """
    kind = str(row["problem_type"])
    known = row | {"problem_type": layout.converted_types.get(kind, kind)}
    return parse(known, number, Context(path=path, format="easyvideor1"))


def released_names(row: dict[str, Any], layout: LayoutConfig) -> dict[str, Any]:
    """The row with the fields that `layout.converted` names, as the release names them."""
    kept = {ours: row[theirs] for ours, theirs in layout.converted.items() if theirs in row}
    return row | kept
