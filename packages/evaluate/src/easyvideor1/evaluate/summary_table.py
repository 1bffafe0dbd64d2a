"""One row per benchmark, as Markdown for people and as CSV for spreadsheets.

Of the summaries that `scoring.write_summary` makes; written by `run` where several benchmarks are
evaluated together.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.report import headlines

Summary = dict[str, Any]

COLUMNS = (
    "benchmark",
    "metric",
    "official",
    "strict",
    "low_95",
    "high_95",
    "chance",
    "coverage",
    "questions",
    "complete",
    "folder",
)
"""Scores are shares, 0 to 1; so is the coverage, of answers that came."""


def row_of(summary: Summary) -> dict[str, Any]:
    """The row of a benchmark: its first official number, as the report shows it.

    Empty cells where it has none, because its answers are hidden.
    """
    first = next(iter(headlines(summary)), {})
    low, high = first.get("interval") or (None, None)
    return {
        "benchmark": summary["benchmark"],
        "metric": first.get("metric"),
        "official": first.get("official"),
        "strict": first.get("strict"),
        "low_95": low,
        "high_95": high,
        "chance": summary["chance"],
        "coverage": summary["coverage"],
        "questions": summary["questions"],
        "complete": summary["complete"],
        "folder": summary["folder"],
    }


def write_table(folder: Path, summaries: Sequence[Summary]) -> Path:
    """Write `summary.csv` and `summary.md` into `folder`; returns the path of the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row_of(summary) for summary in summaries]
    with (folder / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    path = folder / "summary.md"
    path.write_text(markdown(rows), encoding="utf-8")
    return path


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """A table in per cent, the interval of 95 %; `–` where there is no such number."""
    lines = [
        "| benchmark | metric | official | strict | interval | chance | coverage | questions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        interval = f"{_percent(row['low_95'])} to {_percent(row['high_95'])}"
        cells = [
            row["benchmark"],
            row["metric"] or "–",
            _percent(row["official"]),
            _percent(row["strict"]),
            "–" if row["low_95"] is None else interval,
            _percent(row["chance"]),
            _percent(row["coverage"]),
            f"{row['questions']}" + ("" if row["complete"] else ", not all"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
