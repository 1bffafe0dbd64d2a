"""Counting shared by the restated formulas: shares of right answers, in all and by field."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any


def share(right: Iterable[bool]) -> float:
    """Share of true values, from exact arithmetic."""
    values = [int(value) for value in right]
    return float(Fraction(sum(values), len(values)))


def average(values: Iterable[float]) -> float:
    numbers = [Fraction(value) for value in values]
    return float(sum(numbers) / len(numbers))


def by(
    rows: list[Mapping[str, Any]], right: list[bool], fields: Mapping[str, Callable[[Any], list]]
) -> dict[str, float]:
    """`field=value` to the share of right answers among the rows that have the value."""
    found: dict[str, float] = {}
    for field, values_of in fields.items():
        values = {str(value) for row in rows for value in values_of(row)}
        for value in sorted(values):
            found[f"{field}={value}"] = share(
                hit
                for row, hit in zip(rows, right, strict=True)
                if value in [str(one) for one in values_of(row)]
            )
    return found


def one(field: str) -> Callable[[Any], list]:
    return lambda row: [row[field]]
