"""Accuracy on held-out samples, answered greedily by the live engine, and benchmarks.

A prompt that the engine refuses counts as answered wrongly: the denominator is the same at every
step and for every run on the same samples.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from easyvideor1.schema.records import Completion, Sample, Score
from easyvideor1.train.interfaces import Position, Runtime
from easyvideor1.train.live_benchmarks import headline, metrics_of
from easyvideor1.train.stopping import StopRequestedError


def validate(runtime: Runtime, position: Position) -> Position:
    """Log the accuracy over all prompts, by problem type too, and what the benchmarks say.

    Returns:
        `position` with what `best_by` names; unchanged where there is nothing to validate on, or
        the run is to stop.
    """
    values: dict[str, float] = {}
    if runtime.validation:
        try:
            completions = runtime.sampler.answer(runtime.validation)
        except StopRequestedError:
            return position
        metrics = _prompt_metrics(runtime, completions)
        runtime.tracker.log(metrics, step=position.step)
        values["accuracy"] = metrics["validation/accuracy"]
    if runtime.benchmarks is not None:
        summaries = runtime.benchmarks(position.step)
        runtime.tracker.log(metrics_of(summaries), step=position.step)
        if runtime.best_by != "accuracy":
            values[runtime.best_by] = headline(summaries, runtime.best_by)
    return replace(position, validation=values.get(runtime.best_by, position.validation))


def _prompt_metrics(runtime: Runtime, completions: Sequence[Completion | None]) -> dict[str, float]:
    answered = [
        (prompt.sample, completion)
        for prompt, completion in zip(runtime.validation, completions, strict=True)
        if completion is not None
    ]
    refused = [p.sample for p, c in zip(runtime.validation, completions, strict=True) if c is None]
    metrics = {"validation/refused": float(len(refused))}
    return metrics | _accuracy(answered, runtime.score(answered) if answered else [], refused)


def _accuracy(
    answered: Sequence[tuple[Sample, Completion]],
    scores: Sequence[Score],
    refused: Sequence[Sample],
) -> dict[str, float]:
    by_task: dict[str, list[float]] = defaultdict(list)
    for (sample, _), score in zip(answered, scores, strict=True):
        by_task[sample.problem_type.value].append(score.parts["accuracy"])
    for sample in refused:
        by_task[sample.problem_type.value].append(0.0)
    num_asked = len(answered) + len(refused)
    lengths = [len(completion.token_ids) for _, completion in answered]
    return {
        "validation/accuracy": sum(sum(values) for values in by_task.values()) / num_asked,
        "validation/reward": sum(score.value for score in scores) / num_asked,
        **({"validation/tokens": fmean(lengths)} if lengths else {}),
        **{f"validation/accuracy/{task}": fmean(v) for task, v in sorted(by_task.items())},
    }
