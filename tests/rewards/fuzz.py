"""Score many hostile texts of all problem types: `python -m tests.rewards.fuzz --count 200000`.

Shown must be: no exception, every value from 0 to 1, no answer past its deadline; one that would
take longer is ended there, which the column `timeout` counts. Texts come from the grammar in
`fuzz_texts`; the same seed and number give the same text. Types that execute or render answers are
a small share, so that a run takes minutes.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from easyvideor1.rewards import RewardConfig, batch, score_many
from easyvideor1.rewards.registry import task_of
from easyvideor1.rewards.score_table import aligned
from easyvideor1.rewards.workers import load_tasks
from easyvideor1.schema.records import ProblemType, Sample, Score, ScoreStatus
from tests.rewards.fuzz_texts import choose, sample_of, text_for

SHARES = {
    ProblemType.code: 0.005,
    ProblemType.svg_code: 0.02,
    ProblemType.html_code: 0.02,
    ProblemType.math: 0.05,
}
"""Of types whose answers take long; the others share the rest evenly."""
CHUNK = 500
SHOWN = (ScoreStatus.ok, ScoreStatus.no_answer, ScoreStatus.timeout, ScoreStatus.error)

_score_here = batch._score_here


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedScore(Score):
    """A score with what it took, wherever it was found."""

    seconds: float


def timed(sample: Sample, text: str, config: RewardConfig) -> TimedScore:
    """As what `batch` does with each answer, here and in workers."""
    start = time.perf_counter()
    score = _score_here(sample, text, config)
    seconds = time.perf_counter() - start
    return TimedScore(
        value=score.value, parts=score.parts, status=score.status, extracted=score.extracted,
        detail=score.detail, seconds=seconds,
    )  # fmt: skip


@dataclass(slots=True)
class Figures:
    """What is known of the answers of one type."""

    deadline_s: float
    statuses: Counter[ScoreStatus] = field(default_factory=Counter)
    seconds: float = 0.0
    longest_s: float = 0.0
    longest: int = -1
    """Number of the answer that took longest."""

    @property
    def count(self) -> int:
        return self.statuses.total()


@dataclass(slots=True)
class Report:
    """What a run has shown."""

    seconds: float
    by_type: dict[ProblemType, Figures]
    faults: list[str]

    @property
    def count(self) -> int:
        return sum(figures.count for figures in self.by_type.values())

    @property
    def exceptions(self) -> int:
        return sum(figures.statuses[ScoreStatus.error] for figures in self.by_type.values())

    def __str__(self) -> str:
        head = ["type", "answers", *(status.value for status in SHOWN)]
        lines = [[*head, "mean ms", "longest s", "deadline s", "longest"]]
        for kind, one in self.by_type.items():
            counts = [one.count, *(one.statuses[status] for status in SHOWN)]
            mean_ms = 1000 * one.seconds / max(1, one.count)
            figures = [f"{mean_ms:.3f}", f"{one.longest_s:.3f}", f"{one.deadline_s:g}"]
            lines.append([kind.value, *map(str, counts), *figures, f"#{one.longest}"])
        total = (
            f"{self.count} answers in {self.seconds:.0f} s, {self.count / self.seconds:.0f}/s; "
            f"{self.exceptions} exceptions, {len(self.faults)} faults"
        )
        return "\n".join([aligned(lines), total, *self.faults[:20]])


def weights(only: ProblemType | None) -> list[float]:
    """How often each type comes, in the order of `ProblemType`."""
    if only is not None:
        return [float(kind is only) for kind in ProblemType]
    rest = (1 - sum(SHARES.values())) / (len(ProblemType) - len(SHARES))
    return [SHARES.get(kind, rest) for kind in ProblemType]


def answer(seed: int, number: int, only: ProblemType | None) -> tuple[Sample, str]:
    """The answer of a number; the same for the same seed and the same types."""
    rng = random.Random(f"{seed}/{number}")
    sample = sample_of(choose(weights(only), rng), rng)
    return sample, text_for(sample, rng)


def chunks(count: int) -> Iterator[range]:
    for start in range(0, count, CHUNK):
        yield range(start, min(count, start + CHUNK))


def run(
    count: int, seed: int, *, only: ProblemType | None = None, progress: bool = False
) -> Report:
    """Score `count` answers.

    Args:
        count: of answers.
        seed: of all of them.
        only: a type; None is all of them.
        progress: show a bar.
    """
    from tqdm import tqdm

    config = RewardConfig()
    load_tasks()  # as the workers do, so that no answer pays for an import
    figures = {
        kind: Figures(task_of(sample_of(kind, random.Random(0))).deadline_s(config))
        for kind in ([only] if only else ProblemType)
    }
    faults: list[str] = []
    batch._score_here = timed
    start = time.perf_counter()
    try:
        with tqdm(total=count, unit="answer", disable=not progress) as bar:
            for numbers in chunks(count):
                items = [answer(seed, number, only) for number in numbers]
                scores = score_many(items, config)
                for number, (sample, _), score in zip(numbers, items, scores, strict=True):
                    add(figures[sample.problem_type], number, score)
                    where = f"answer {number} ({sample.problem_type.value})"
                    found = faults_of(score, figures[sample.problem_type])
                    faults += [f"{where}: {fault}" for fault in found]
                bar.update(len(items))
    finally:
        batch._score_here = _score_here
    return Report(seconds=time.perf_counter() - start, by_type=figures, faults=faults)


def add(figures: Figures, number: int, score: Score) -> None:
    seconds = score.seconds if isinstance(score, TimedScore) else figures.deadline_s
    figures.statuses[score.status] += 1
    figures.seconds += seconds
    if seconds > figures.longest_s:
        figures.longest_s, figures.longest = seconds, number


def faults_of(score: Score, figures: Figures) -> list[str]:
    """What is wrong with a score, whatever the text was."""
    faults = []
    values = [score.value, *score.parts.values()]
    if not all(math.isfinite(value) and 0 <= value <= 1 for value in values):
        faults.append(f"values {values}")
    if score.status not in (ScoreStatus.ok, ScoreStatus.no_answer, ScoreStatus.timeout):
        faults.append(f"{score.status.value}: {score.detail[:300]}")
    if isinstance(score, TimedScore) and score.seconds > figures.deadline_s:
        faults.append(f"took {score.seconds:.2f} s")
    try:
        json.dumps(score.extracted, allow_nan=False)
    except (TypeError, ValueError) as error:
        faults.append(f"extracted is not JSON: {error}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=ProblemType, choices=ProblemType, help="a problem type")
    parser.add_argument("--show", type=int, help="print the answer of this number instead")
    arguments = parser.parse_args()
    if arguments.show is not None:
        sample, text = answer(arguments.seed, arguments.show, arguments.only)
        print(sample, repr(text), sep="\n")
        return
    report = run(arguments.count, arguments.seed, only=arguments.only, progress=True)
    print(report)
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
