"""Instruction, extraction, score and reward of any sample: its task plus what all tasks share.

Shared are status, format part and weights. Pure and in-process; `batch.score_many` adds deadlines
and turns failures of scorers into statuses. Called by train, evaluate and evr-score.
"""

import math
from dataclasses import dataclass
from typing import Any

from easyvideor1.rewards import tasks as _tasks  # noqa: F401  registers them
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import NoAnswer, read_answer
from easyvideor1.rewards.registry import GoldError, task_of
from easyvideor1.schema.records import Sample, Score, ScoreStatus

DEFAULT = RewardConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class Extracted:
    """What was read from a model's text.

    Example:
        Extracted(value="B", format=1.0)
    """

    value: Any = None
    """JSON-serialisable; None where there is no answer."""
    status: ScoreStatus = ScoreStatus.ok
    """`ok` or `no_answer`."""
    detail: str = ""
    """Why there is no answer."""
    format: float = 0.0
    """1: exactly one answer tag with content in the form asked for. 0.5: a tag with other content,
    or several tags. 0: no tag, or an empty one."""


def instruction(sample: Sample, config: RewardConfig = DEFAULT) -> str:
    """What the model is told after the question: how to answer, and in which form."""
    return task_of(sample).instruction(sample, config)


def render_gold(sample: Sample, config: RewardConfig = DEFAULT) -> str:
    """The gold answer as a model would write it; its reward is 1.

    Raises:
        GoldError: the sample has no gold answer, or one that its problem type cannot use.
    """
    _require_gold(sample)
    return f"<answer>{task_of(sample).render_gold(sample, config)}</answer>"


def extract(text: str, sample: Sample, config: RewardConfig = DEFAULT) -> Extracted:
    """Read the answer out of a model's text. Never a guess: what is not stated is `no_answer`."""
    task, answer = task_of(sample), read_answer(text)
    present = answer.tagged and bool(answer.text)
    try:
        value = task.extract(answer, sample, config)
    except NoAnswer as reason:
        return Extracted(
            status=ScoreStatus.no_answer, detail=str(reason), format=0.5 if present else 0.0
        )
    as_asked = answer.single and task.has_asked_form(answer, sample, config)
    grade = (1.0 if as_asked else 0.5) if present else 0.0
    return Extracted(value=value, format=grade)


def score(extracted: Extracted, sample: Sample, config: RewardConfig = DEFAULT) -> Score:
    """Score what `extract` read: accuracy and format, weighed.

    Raises:
        GoldError: the sample has no gold answer, or one that its problem type cannot use.
    """
    _require_gold(sample)
    accuracy = 0.0
    if extracted.status is ScoreStatus.ok:
        accuracy = task_of(sample).score(extracted.value, sample, config)
        if not (math.isfinite(accuracy) and 0.0 <= accuracy <= 1.0):
            raise ValueError(f"{sample.problem_type.value} scored {accuracy}, outside 0 to 1")
    return Score(
        value=config.accuracy_weight * accuracy + config.format_weight * extracted.format,
        parts={"accuracy": accuracy, "format": extracted.format},
        status=extracted.status,
        extracted=extracted.value,
        detail=extracted.detail,
    )


def reward(sample: Sample, text: str, config: RewardConfig = DEFAULT) -> Score:
    """The reward of a model's text for a sample: `extract` and `score` in one.

    Example:
        >>> reward(sample, "It is blue. <answer>B</answer>").parts
        {'accuracy': 1.0, 'format': 1.0}
    """
    return score(extract(text, sample, config), sample, config)


def _require_gold(sample: Sample) -> None:
    if sample.answer is None:
        raise GoldError(sample, "one that is not hidden; this sample cannot be scored")
