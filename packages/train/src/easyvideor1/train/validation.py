"""Accuracy on held-out samples, answered greedily by the live engine."""

from collections import defaultdict
from dataclasses import replace
from statistics import fmean

from easyvideor1.train.interfaces import Position, Runtime


def validate(runtime: Runtime, position: Position) -> Position:
    """Log accuracy in total and by problem type; `position` with it, unchanged without samples."""
    if not runtime.validation:
        return position
    answers = zip(runtime.validation, runtime.sampler.answer(runtime.validation), strict=True)
    answered = [(prompt.sample, answer) for prompt, answer in answers if answer is not None]
    scores = runtime.score(answered)
    by_task: dict[str, list[float]] = defaultdict(list)
    for (sample, _), score in zip(answered, scores, strict=True):
        by_task[sample.problem_type.value].append(score.parts["accuracy"])
    accuracy = fmean(value for values in by_task.values() for value in values)
    runtime.tracker.log(
        {
            "validation/accuracy": accuracy,
            "validation/reward": fmean(score.value for score in scores),
            "validation/tokens": fmean(len(answer.token_ids) for _, answer in answered),
            **{f"validation/accuracy/{task}": fmean(v) for task, v in sorted(by_task.items())},
        },
        step=position.step,
    )
    return replace(position, validation=accuracy)
