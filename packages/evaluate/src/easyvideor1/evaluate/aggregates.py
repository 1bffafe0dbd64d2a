"""Official metrics: from the outcomes of all questions to a benchmark's numbers, 0 to 1.

Pure functions with a fixed denominator: what failed is wrong. A number that needs fields which the
questions do not have (the types of MLVU in EasyVideoR1's file) is left out, never guessed.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from easyvideor1.evaluate.benchmark_config import Metric
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.schema.records import Sample, ScoreStatus

IOU_THRESHOLDS = (0.3, 0.5, 0.7)


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return math.fsum(values) / len(values)


def mean_accuracy(outcomes: Sequence[Outcome]) -> float:
    """Of at least one outcome."""
    return mean([outcome.accuracy for outcome in outcomes])


def field_values(sample: Sample, field: str) -> list[str]:
    """Values of a field: several where it is a list, `-` where it is absent."""
    if field == "problem_type":
        return [sample.problem_type.value]
    if field in ("category", "source"):
        return [getattr(sample, field) or "-"]
    value = sample.extra.get(field)
    if isinstance(value, list | tuple):
        return [str(item) for item in dict.fromkeys(value)] or ["-"]
    return ["-" if value in (None, "") else str(value)]


def by_field(outcomes: Iterable[Outcome], field: str) -> dict[str, list[Outcome]]:
    """Outcomes for each value of a field, sorted by value; one counts for each of its values."""
    parts: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        for value in field_values(outcome.sample, field):
            parts[value].append(outcome)
    return {value: parts[value] for value in sorted(parts)}


def accuracy(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean accuracy over all questions."""
    return {"accuracy": mean_accuracy(outcomes)}


def answered(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean accuracy over all questions, and over those whose answer the rule could read.

    The second is what scripts print that leave out what they cannot read (Video-MME's).
    """
    read = [o for o in outcomes if o.score and o.score.status is not ScoreStatus.no_answer]
    among = mean_accuracy(read) if read else 0.0
    return accuracy(outcomes) | {"accuracy of answered": among}


def temporal_grounding(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """R@1 at IoU 0.3, 0.5 and 0.7 (at or above), and mean IoU; one interval per question.

    Source: Gao et al., TALL, arXiv 1705.02101 for R@1; mIoU as Qwen2.5-VL reports it.
    """
    ious = [outcome.accuracy for outcome in outcomes]
    recalls = {
        f"R@1 IoU={threshold}": mean([float(iou >= threshold) for iou in ious])
        for threshold in IOU_THRESHOLDS
    }
    return recalls | {"mIoU": mean(ious)}


RELEVANCE = (0, 1 / 16, 4 / 16, 9 / 16, 1)
CHAINS: dict[str, tuple[float, ...]] = {
    "[1,2,3,4]": RELEVANCE,
    "[1,[2,3],4]": (0, 1 / 12, 4 / 12, 7 / 12, 1),
    "[[1,2],3,4]": (0, 1 / 10, 2 / 10, 5 / 10, 1),
}
"""Score of a logic group by the length of its right chain, for each structure."""


def video_mme_v2(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean over groups of four questions, and over the groups of each level, type and head.

    A group is a video's questions in the order of their ids; one without all four is left out.
    Level, type, structure and heads are those of its last question. Source: MME-Benchmarks/
    Video-MME-v2, evaluation/test_video_mme_v2.py. `as scripted` gives answers that cannot be read
    -1 as that script does: counted as right within a chain, and subtracted in a relevance group.
    """
    parts: dict[str, list[float]] = defaultdict(list)
    for group in _groups_of_four(outcomes):
        last = group[-1].sample.extra
        score = _group_score([int(o.accuracy) for o in group], last)
        parts["Non-Lin"].append(score)
        parts["Non-Lin (as scripted)"].append(_group_score(list(map(_scripted, group)), last))
        parts["Consistency" if last["group_type"] == "relevance" else "Coherence"].append(score)
        if str(last.get("level")) != "None":
            parts[f"Level {int(last['level'])}"].append(score)
        for head in ("second_head", "third_head"):
            parts[f"{head} {last.get(head)}"].append(score)
    return {name: mean(parts[name]) for name in parts} | accuracy(outcomes)


def _groups_of_four(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    groups: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        repeat = outcome.prediction.repeat if outcome.prediction else 0
        groups[str(outcome.sample.extra.get("video_id")), repeat].append(outcome)
    return [
        sorted(group, key=lambda outcome: natural(outcome.sample.id))
        for group in groups.values()
        if len(group) == 4
    ]


def natural(text: str) -> list[tuple[int, str]]:
    """Key that sorts numbers within a text by value."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


def _scripted(outcome: Outcome) -> int:
    read = outcome.score is not None and outcome.score.status is not ScoreStatus.no_answer
    return int(outcome.accuracy) if read else -1


def _group_score(right: Sequence[int], last: dict[str, Any]) -> float:
    """Score of a group from what its four questions scored."""
    if last["group_type"] == "relevance":
        count = sum(right)
        return RELEVANCE[count] if count >= 0 else 0.0
    structure = "".join(str(last["group_structure"]).split())
    length = next((place for place, one in enumerate(right) if not one), 4)
    # Where the chain breaks between two exchangeable questions, the other one may stand for it.
    if (structure == "[1,[2,3],4]" and length == 1 and right[2]) or (
        structure == "[[1,2],3,4]" and length == 0 and right[1]
    ):
        length += 1
    return CHAINS[structure][length]


def mlvu(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`M-Avg`: mean over the tasks with options of their accuracy; `G-Avg`: of free answers.

    For the dev and the test part apart. Source: JUNJIE99/MLVU,
    evaluation/multiple_choice_evaluation/choice_bench.py.
    """
    numbers: dict[str, float] = {}
    for part in ("dev", "test"):
        for name, has_options in (("M-Avg", True), ("G-Avg", False)):
            chosen = [
                outcome
                for outcome in outcomes
                if bool(outcome.sample.options) is has_options
                and ("test" in str(outcome.sample.extra.get("file")).lower()) is (part == "test")
            ]
            tasks = by_field(chosen, "category")
            if tasks and "-" not in tasks:
                numbers[f"{part} {name}"] = mean([mean_accuracy(task) for task in tasks.values()])
            if tasks and has_options:
                numbers[f"{part} accuracy"] = mean_accuracy(chosen)
    return numbers


METRICS: dict[Metric, Callable[[Sequence[Outcome]], dict[str, float]]] = {
    Metric.accuracy: accuracy,
    Metric.answered: answered,
    Metric.temporal_grounding: temporal_grounding,
    Metric.video_mme_v2: video_mme_v2,
    Metric.mlvu: mlvu,
}

PER_GROUP = frozenset({Metric.accuracy, Metric.answered, Metric.temporal_grounding})
"""Metrics that say something about a part of the questions; of others the accuracy is shown."""


def group_metric(metric: Metric) -> Callable[[Sequence[Outcome]], dict[str, float]]:
    """What a breakdown reports for each of its groups."""
    return METRICS[metric] if metric in PER_GROUP else accuracy
