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
from easyvideor1.evaluate.benchmarks.nested import QUESTION_ONLY
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
    if field == "num_options":
        return [str(len(sample.options))]
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
        groups[str(outcome.sample.extra.get("video_id")), outcome.repeat].append(outcome)
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


VSI_DIRECTIONS = tuple(f"object_rel_direction_{level}" for level in ("easy", "medium", "hard"))


def vsi_bench(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`overall`: mean over eight tasks, the relative direction being the mean of its three levels.

    Source: vision-x-nyu/thinking-in-space, lmms_eval/tasks/vsibench/utils.py.
    """
    tasks = {name: mean_accuracy(part) for name, part in by_field(outcomes, "category").items()}
    if "-" in tasks:
        return accuracy(outcomes)
    levels = [tasks.pop(name) for name in VSI_DIRECTIONS if name in tasks]
    if levels:
        tasks["object_rel_direction"] = mean(levels)
    return {"overall": mean(list(tasks.values()))} | tasks | accuracy(outcomes)


def ovo_bench(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`total`: mean of backward, realtime and forward, each the mean of its tasks.

    Source: JoeLeelyf/OVO-Bench, utils/OVOBenchScore.py.
    """
    groups = {
        name: mean([mean_accuracy(task) for task in by_field(part, "category").values()])
        for name, part in by_field(outcomes, "group").items()
    }
    return {"total": mean(list(groups.values()))} | groups | accuracy(outcomes)


def tempcompass(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Accuracy of each task and each aspect within it, and over all questions."""
    numbers: dict[str, float] = {}
    for task, part in by_field(outcomes, "task").items():
        numbers[task] = mean_accuracy(part)
        for aspect, rows in by_field(part, "dim").items():
            numbers[f"{task} {aspect}"] = mean_accuracy(rows)
    return numbers | accuracy(outcomes)


def video_mmmu(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Accuracy over all three tracks and of each; Δknowledge of the adaptation track.

    Δknowledge = (after - before) / (1 - before), before: the same questions without the video.
    Source: README of EvolvingLMMs-Lab/VideoMMMU.
    """
    tracks = by_field(outcomes, "category")
    before = tracks.pop(QUESTION_ONLY, [])
    numbers = accuracy([outcome for part in tracks.values() for outcome in part])
    numbers |= {track: mean_accuracy(part) for track, part in tracks.items() if track != "-"}
    if before:
        known = mean_accuracy(before)
        numbers[QUESTION_ONLY] = known
        if "Adaptation" in numbers and known < 1:
            numbers["Δknowledge"] = (numbers["Adaptation"] - known) / (1 - known)
    return numbers


PAIRS = 4
"""Of a question in VideoMathQA, each with one wrong option."""


def videomathqa(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """`mcq`: accuracy with five options; `mbin`: share of questions with all four pairs right.

    A question that lacks a pair is wrong. `steps`: mean grade of the reasoning, 0 to 1, where a
    judge gave one. Source: lmms-eval, tasks/videomathqa/utils.py and cot_step_evaluation.py.
    """
    mcq = [outcome for outcome in outcomes if len(outcome.sample.options) > 2]
    pairs: dict[tuple[str, int], list[float]] = defaultdict(list)
    for outcome in outcomes:
        if len(outcome.sample.options) == 2:
            question = str(outcome.sample.extra.get("question_id"))
            pairs[question, outcome.repeat].append(outcome.accuracy)
    numbers: dict[str, float] = {}
    if mcq:
        numbers["mcq"] = mean_accuracy(mcq)
        numbers |= {name: grade for name, grade in steps(mcq).items() if name == "steps"}
    if pairs:
        right = [float(len(p) >= PAIRS and all(x == 1 for x in p)) for p in pairs.values()]
        numbers["mbin"] = mean(right)
    return numbers


def tube(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean IoUs in time, space and of the tube (vIoU), and shares of tubes above 0.3 and 0.5.

    Sources: eval_hcvg.py of tzhhhh123/HC-STVG for the shares, which are strict; LLaVA-ST for the
    mean over the boxes that both have.
    """
    ious = [outcome.accuracy for outcome in outcomes]

    def part(name: str) -> float:
        return mean([o.score.parts.get(name, 0.0) if o.score else 0.0 for o in outcomes])

    shares = {f"vIoU@{bound}": mean([float(iou > bound) for iou in ious]) for bound in (0.3, 0.5)}
    return {"m_vIoU": mean(ious), "m_tIoU": part("tIoU"), "m_sIoU": part("sIoU")} | shares


def steps(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Accuracy; `steps`: mean grade of the reasoning, 0 to 1, where a judge gave any."""
    grades = [o.score.parts.get("steps") for o in outcomes if o.score]
    if all(grade is None for grade in grades):
        return accuracy(outcomes)
    return accuracy(outcomes) | {"steps": math.fsum(g or 0.0 for g in grades) / len(outcomes)}


METRICS: dict[Metric, Callable[[Sequence[Outcome]], dict[str, float]]] = {
    Metric.accuracy: accuracy,
    Metric.answered: answered,
    Metric.temporal_grounding: temporal_grounding,
    Metric.video_mme_v2: video_mme_v2,
    Metric.mlvu: mlvu,
    Metric.vsi_bench: vsi_bench,
    Metric.ovo_bench: ovo_bench,
    Metric.tempcompass: tempcompass,
    Metric.video_mmmu: video_mmmu,
    Metric.videomathqa: videomathqa,
    Metric.tube: tube,
    Metric.steps: steps,
}

PER_GROUP = frozenset(
    {
        Metric.accuracy,
        Metric.answered,
        Metric.temporal_grounding,
        Metric.tube,
        Metric.steps,
        Metric.videomathqa,
    }
)
"""Metrics that say something about a part of the questions; of others the accuracy is shown."""


def group_metric(metric: Metric) -> Callable[[Sequence[Outcome]], dict[str, float]]:
    """What a breakdown reports for each of its groups."""
    return METRICS[metric] if metric in PER_GROUP else accuracy
