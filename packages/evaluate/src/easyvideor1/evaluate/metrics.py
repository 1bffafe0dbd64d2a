"""From scored answers to a benchmark's numbers: pure functions, with a fixed denominator.

A question that could not be loaded or answered is wrong and stays in every count. The confidence
interval treats the questions about one video as one observation, since they rise and fall together.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from easyvideor1.evaluate.config import Metric
from easyvideor1.rewards import render_gold, reward
from easyvideor1.schema.records import Prediction, PredictionStatus, ProblemType, Sample, Score

IOU_THRESHOLDS = (0.3, 0.5, 0.7)
MAX_CONSTANT_ANSWERS = 20
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
"""Most frequent gold answers tried as the constant one; each costs a pass over the questions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one question, one repeat of it."""

    sample: Sample
    prediction: Prediction | None
    """None where nothing is stored."""
    score: Score | None
    """None where there is no text to score."""

    @property
    def accuracy(self) -> float:
        """0 to 1; 0 for whatever went wrong before an answer."""
        return self.score.parts["accuracy"] if self.score else 0.0

    @property
    def status(self) -> str:
        """`ok`, `truncated`, `load_failed`, `refused`, `generate_failed` or `missing`."""
        return self.prediction.status.value if self.prediction else "missing"


def accuracy(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean accuracy over all questions."""
    return {"accuracy": _mean([outcome.accuracy for outcome in outcomes])}


def temporal_grounding(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """R@1 at IoU 0.3, 0.5 and 0.7 (at or above), and mean IoU; one interval per question.

    Source: Gao et al., TALL, arXiv 1705.02101 for R@1; mIoU as Qwen2.5-VL reports it.
    """
    ious = [outcome.accuracy for outcome in outcomes]
    recalls = {
        f"R@1 IoU={threshold}": _mean([float(iou >= threshold) for iou in ious])
        for threshold in IOU_THRESHOLDS
    }
    return recalls | {"mIoU": _mean(ious)}


METRICS: dict[Metric, Callable[[Sequence[Outcome]], dict[str, float]]] = {
    Metric.accuracy: accuracy,
    Metric.temporal_grounding: temporal_grounding,
}


def breakdown(outcomes: Sequence[Outcome], metric: Metric, field: str) -> dict[str, dict[str, Any]]:
    """The metric for each value of a field, with the number of questions; sorted by value."""
    parts: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        parts[_field(outcome.sample, field)].append(outcome)
    return {
        value: {"questions": len(parts[value]), **METRICS[metric](parts[value])}
        for value in sorted(parts)
    }


def _field(sample: Sample, field: str) -> str:
    if field == "problem_type":
        return sample.problem_type.value
    if field in ("category", "source"):
        return getattr(sample, field) or "-"
    return str(sample.extra.get(field, "-"))


def interval_95(outcomes: Sequence[Outcome]) -> tuple[float, float] | None:
    """95 % confidence interval of the mean accuracy, clustered by video; None below two videos.

    The variance of a mean of clustered observations is the sum over clusters of the squared sum
    of their residuals, over n², times G/(G-1) for G clusters (the sandwich estimator, Cameron and
    Miller 2015, section II).
    """
    clusters: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        clusters[_video(outcome.sample)].append(outcome.accuracy)
    count, groups = len(outcomes), len(clusters)
    if groups < 2:
        return None
    mean = _mean([outcome.accuracy for outcome in outcomes])
    squares = sum(sum(x - mean for x in values) ** 2 for values in clusters.values())
    error = math.sqrt(squares * groups / (groups - 1)) / count
    return max(0.0, mean - 1.96 * error), min(1.0, mean + 1.96 * error)


def _video(sample: Sample) -> str:
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
    scored = Counter(outcome.score.status.value for outcome in outcomes if outcome.score)
    return {
        "official": METRICS[metric](outcomes),
        "accuracy": _mean([outcome.accuracy for outcome in outcomes]),
        "accuracy_interval_95": interval_95(outcomes),
        "chance": sum(row["chance"] * row["questions"] for row in by_type.values()) / len(outcomes),
        "questions": len(outcomes),
        "videos": len({_video(sample) for sample in samples}),
        "coverage": len(answered) / len(outcomes),
        "statuses": dict(sorted(statuses.items())),
        "score_statuses": dict(sorted(scored.items())),
        "by_type": by_type,
        "by": {field: breakdown(outcomes, metric, field) for field in group_by},
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
