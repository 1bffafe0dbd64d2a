"""What an official rule says about an answer; the shape all rules share."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.rewards import reward
from easyvideor1.rewards.judge import Grade
from easyvideor1.schema.records import ProblemType, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What was read from a text, and what it is worth.

    Example:
        Reading(extracted="B", accuracy=1.0)
    """

    extracted: Any = None
    """JSON-serialisable; None where the rule reads nothing."""
    accuracy: float = 0.0
    """0 to 1; of no account where a judge decides."""
    judge: Grade | None = None
    """What a judge is asked, where the official script asks one."""
    parts: dict[str, float] = field(default_factory=dict)
    """More numbers about the answer, 0 to 1, kept beside the accuracy."""
    steps: Grade | None = None
    """What a judge is asked about the reasoning; its grade is the part `steps` of the score."""


OfficialRule = Callable[[str, Sample, ExtractorConfig], Reading]
"""From a model's text after its thinking, the question and the settings to a reading."""


def compared(extracted: str, sample: Sample) -> Reading:
    """Right if it is the gold answer; an empty text is no answer."""
    if not extracted:
        return Reading()
    return Reading(extracted=extracted, accuracy=float(extracted == sample.answer))


def judged(text: str, sample: Sample) -> Reading:
    """A judge decides whether all of the text says what the gold answer does."""
    text = text.strip()
    if not text:
        return Reading()
    return Reading(extracted=text, judge=Grade(sample.problem, str(sample.answer), text))


def strict_or_judge(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The strict reading of `easyvideor1.rewards` where there are options, else a judge."""
    if sample.problem_type is ProblemType.open_ended:
        return judged(text, sample)
    score = reward(sample, text)
    return Reading(extracted=score.extracted, accuracy=score.parts["accuracy"])


def with_steps(reading: Reading, text: str, sample: Sample, field: str) -> Reading:
    """The reading, with the reasoning to be held to the steps in a field of the row."""
    steps = sample.extra.get(field)
    if not steps or not text.strip():
        return reading
    shown = "\n".join(steps) if isinstance(steps, list) else str(steps)
    return replace(reading, steps=Grade(sample.problem, shown, text.strip()))
