"""Means and counts per problem type over any number of scores, as a table. Used by `score_file`."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from easyvideor1.schema.records import Score, ScoreStatus

FAILURES = [status for status in ScoreStatus if status is not ScoreStatus.ok]


@dataclass(slots=True)
class Totals:
    """What is known of the scores added so far."""

    count: int = 0
    value: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    statuses: Counter[ScoreStatus] = field(default_factory=Counter)

    def add(self, score: Score) -> None:
        self.count += 1
        self.value += score.value
        self.statuses[score.status] += 1
        for name, part in score.parts.items():
            self.parts[name] += part

    @property
    def mean(self) -> float:
        return self.value / self.count


class ScoreTable:
    """Totals per problem type and of all."""

    def __init__(self) -> None:
        self.all = Totals()
        self._by_type: dict[str, Totals] = {}

    def add(self, problem_type: str, score: Score) -> None:
        self._by_type.setdefault(problem_type, Totals()).add(score)
        self.all.add(score)

    def __str__(self) -> str:
        """How many answers, mean reward and parts, counts of failures."""
        parts = ["accuracy", "format"]
        parts += sorted(set(self.all.parts) - set(parts))
        lines = [["problem_type", "n", "mean", *parts, *(status.value for status in FAILURES)]]
        lines += [_line(name, self._by_type[name], parts) for name in sorted(self._by_type)]
        if len(self._by_type) > 1:
            lines.append(_line("all", self.all, parts))
        return aligned(lines)


def _line(name: str, totals: Totals, parts: Sequence[str]) -> list[str]:
    means = [totals.mean, *(totals.parts[part] / totals.count for part in parts)]
    failures = [str(totals.statuses[status]) for status in FAILURES]
    return [name, str(totals.count), *(f"{mean:.4f}" for mean in means), *failures]


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns side by side: the first to the left, the others to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
