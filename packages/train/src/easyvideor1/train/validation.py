"""Accuracy on held-out samples, answered greedily by the live engine."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from easyvideor1.schema.records import Completion, Sample, Score
from easyvideor1.train.interfaces import Position, Runtime
from easyvideor1.train.stopping import StopRequestedError


def validate(runtime: Runtime, position: Position) -> Position:
    """Log accuracy in total and by problem type, over the prompts that the engine answered.

    Returns:
        `position` with the accuracy; unchanged where there is none, or the run is to stop.
    """
    if not runtime.validation:
        return position
    try:
        completions = runtime.sampler.answer(runtime.validation)
    except StopRequestedError:
        return position
    answers = [
        (prompt.sample, completion)
        for prompt, completion in zip(runtime.validation, completions, strict=True)
        if completion is not None
    ]
    metrics = {"validation/refused": float(len(completions) - len(answers))}
    if answers:
        metrics |= _accuracy(answers, runtime.score(answers))
    runtime.tracker.log(metrics, step=position.step)
    return replace(position, validation=metrics.get("validation/accuracy"))


def _accuracy(
    answers: Sequence[tuple[Sample, Completion]], scores: Sequence[Score]
) -> dict[str, float]:
    by_task: dict[str, list[float]] = defaultdict(list)
    for (sample, _), score in zip(answers, scores, strict=True):
        by_task[sample.problem_type.value].append(score.parts["accuracy"])
    return {
        "validation/accuracy": fmean(value for values in by_task.values() for value in values),
        "validation/reward": fmean(score.value for score in scores),
        "validation/tokens": fmean(len(completion.token_ids) for _, completion in answers),
        **{f"validation/accuracy/{task}": fmean(v) for task, v in sorted(by_task.items())},
    }
