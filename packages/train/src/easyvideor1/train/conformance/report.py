"""What a conformance run found: one line per check, a table for people and JSON for an issue."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from easyvideor1.schema.files import write_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that must hold.

    Example:
        Check(name="log-probs, video", ok=True, figure=3.1e-6, bound=2e-3, unit="nats")
    """

    name: str
    ok: bool
    figure: float | None = None
    """What was measured; None where there is nothing to measure."""
    bound: float | None = None
    """What the figure must not exceed, or must reach where `at_least`."""
    at_least: bool = False
    unit: str = ""
    detail: str = ""


def at_most(name: str, figure: float, bound: float, *, unit: str = "", detail: str = "") -> Check:
    """Holds while `figure` is no larger than `bound`; a figure that is no number never is."""
    ok = figure <= bound
    return Check(name=name, ok=ok, figure=figure, bound=bound, unit=unit, detail=detail)


def at_least(name: str, figure: float, bound: float, *, unit: str = "", detail: str = "") -> Check:
    """Holds once `figure` reaches `bound`; a figure that is no number never does."""
    return Check(
        name=name,
        ok=figure >= bound,
        figure=figure,
        bound=bound,
        at_least=True,
        unit=unit,
        detail=detail,
    )


def equal(name: str, differences: list[str]) -> Check:
    """Holds where there are no differences."""
    return Check(name=name, ok=not differences, detail="; ".join(differences[:3]))


def table(checks: list[Check]) -> str:
    """One line per check, failed ones marked."""
    width = max(len(check.name) for check in checks)
    return "\n".join(_line(check, width) for check in checks)


def _line(check: Check, width: int) -> str:
    verdict = "ok  " if check.ok else "FAIL"
    parts = [f"{verdict} {check.name:<{width}}"]
    if check.figure is not None and check.bound is not None:
        sign = ">=" if check.at_least else "<="
        parts.append(f"{check.figure:.3g} {sign} {check.bound:.3g} {check.unit}".rstrip())
    if check.detail:
        parts.append(check.detail)
    return "  ".join(parts).rstrip()


def write(path: Path, checks: list[Check], about: dict[str, object]) -> None:
    """Everything as one JSON file."""
    values = {
        **about,
        "passed": all(check.ok for check in checks),
        "checks": [asdict(check) for check in checks],
    }
    write_json(path, json.loads(json.dumps(values, default=str)))
