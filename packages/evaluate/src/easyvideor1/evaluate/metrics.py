"""What a summary says about scored answers: official numbers, breakdowns, interval, chance.

A question that could not be loaded or answered is wrong and stays in every count. The confidence
interval treats the questions about one video as one observation, since they rise and fall together.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from easyvideor1.evaluate.aggregates import METRICS, by_field, group_metric, mean, mean_accuracy
from easyvideor1.evaluate.benchmark_config import Metric
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.rewards import render_gold, reward
from easyvideor1.schema.records import PredictionStatus, ProblemType, Sample

MAX_CONSTANT_ANSWERS = 20
"""Most frequent gold answers tried as the constant one; each costs a pass over the questions."""
NO_CHANCE = frozenset(
    {
        ProblemType.open_ended,
        ProblemType.math,
        ProblemType.ocr,
        ProblemType.code,
        ProblemType.svg_code,
        ProblemType.html_code,
    }
)
"""Types whose questions have an answer of their own each, which takes long to compare."""


def breakdown(outcomes: Sequence[Outcome], metric: Metric, field: str) -> dict[str, dict[str, Any]]:
    """The metric for each value of a field, with the number of questions; sorted by value."""
    measure = group_metric(metric)
    return {
        value: {"questions": len(part), **measure(part)}
        for value, part in by_field(outcomes, field).items()
    }


def interval_95(outcomes: Sequence[Outcome]) -> tuple[float, float] | None:
    """95 % confidence interval of the mean accuracy, clustered by video; None below two videos."""
    error = clustered_error(
        [outcome.accuracy for outcome in outcomes], [video_of(o.sample) for o in outcomes]
    )
    if error is None:
        return None
    average = mean_accuracy(outcomes)
    return max(0.0, average - 1.96 * error), min(1.0, average + 1.96 * error)


def clustered_error(values: Sequence[float], clusters: Sequence[str]) -> float | None:
    """Standard error of the mean of values that rise and fall together within a cluster.

    The variance of a mean of clustered observations is the sum over clusters of the squared sum
    of their residuals, over n², times G/(G-1) for G clusters (the sandwich estimator, Cameron and
    Miller 2015, section II).

    Args:
        values: [n], in any unit.
        clusters: [n], the cluster of each.

    Returns:
        In the unit of the values; None below two clusters.
    """
    residuals: dict[str, list[float]] = defaultdict(list)
    average = mean(values) if values else 0.0
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster].append(value - average)
    groups = len(residuals)
    if groups < 2:
        return None
    squares = math.fsum(math.fsum(part) ** 2 for part in residuals.values())
    return math.sqrt(squares * groups / (groups - 1)) / len(values)


def video_of(sample: Sample) -> str:
    """What the questions about one video have in common: its file, or the first of its frames."""
    if not sample.media:
        return sample.id
    medium = sample.media[0]
    return medium.path or medium.frames[0]


def constant_answer_accuracy(samples: Sequence[Sample]) -> float:
    """What the best constant answer scores on questions of one type: chance, in effect.

    It is 0 where each question has an answer of its own that takes long to compare, and for
    questions that a judge decides.
    """
    rated = [s for s in samples if s.problem_type not in NO_CHANCE and _has_label(s)]
    golds = Counter(render_gold(sample) for sample in rated)
    candidates = [gold for gold, _ in golds.most_common(MAX_CONSTANT_ANSWERS)]
    totals = [
        math.fsum(reward(sample, candidate).parts["accuracy"] for sample in rated)
        for candidate in candidates
    ]
    return max(totals, default=0.0) / len(samples)


def _has_label(sample: Sample) -> bool:
    if sample.answer is None:
        return False
    return sample.problem_type is not ProblemType.preference or isinstance(sample.answer, str | int)


def summarize(
    outcomes: Sequence[Outcome], metric: Metric, group_by: Sequence[str]
) -> dict[str, Any]:
    """Everything a summary says about the answers; rates are 0 to 1."""
    samples = list({outcome.sample.id: outcome.sample for outcome in outcomes}.values())
    by_type = breakdown(outcomes, Metric.accuracy, "problem_type")
    for name, row in by_type.items():
        row["chance"] = constant_answer_accuracy(
            [sample for sample in samples if sample.problem_type.value == name]
        )
    answered = [
        o for o in outcomes if o.status in (PredictionStatus.ok, PredictionStatus.truncated)
    ]
    statuses = Counter(outcome.status for outcome in outcomes)
    strictly = [outcome.strictly() for outcome in outcomes]
    return {
        "official": METRICS[metric](outcomes),
        "strict": METRICS[metric](strictly),
        "accuracy": mean_accuracy(outcomes),
        "accuracy_interval_95": interval_95(outcomes),
        "strict_accuracy": mean_accuracy(strictly),
        "strict_accuracy_interval_95": interval_95(strictly),
        "chance": sum(row["chance"] * row["questions"] for row in by_type.values()) / len(outcomes),
        "questions": len(outcomes),
        "videos": len({video_of(sample) for sample in samples}),
        "coverage": len(answered) / len(outcomes),
        "statuses": dict(sorted(statuses.items())),
        "score_statuses": _score_statuses(outcomes),
        "strict_score_statuses": _score_statuses(strictly),
        "by_type": by_type,
        "by": {field: breakdown(outcomes, metric, field) for field in group_by},
    }


def _score_statuses(outcomes: Sequence[Outcome]) -> dict[str, int]:
    scored = Counter(outcome.score.status.value for outcome in outcomes if outcome.score)
    return dict(sorted(scored.items()))
