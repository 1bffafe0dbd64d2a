"""Instruction, extraction, score and reward of any sample: its task plus what all tasks share.

Shared are status, format part, weights and penalties. In this process, one answer at a time;
`batch.score_many` adds deadlines and turns failures of scorers into statuses. Called by train,
evaluate and evr-score.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from easyvideor1.rewards import judge_prompts
from easyvideor1.rewards import tasks as _tasks  # noqa: F401  registers them
from easyvideor1.rewards.config import RewardConfig, TaskConfig
from easyvideor1.rewards.judge import NoVerdictError, judge_of
from easyvideor1.rewards.penalties import penalties
from easyvideor1.rewards.prompts import own_prompt
from easyvideor1.rewards.reading import NoAnswer, read_answer
from easyvideor1.rewards.registry import Task, require_gold, task_of
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


def scoring_settings(config: RewardConfig) -> dict[str, Any]:
    """The settings that a score depends on, JSON-serialisable: not how fast it is found."""
    settings = asdict(config)
    for name in ("workers", "deadline_s"):
        del settings[name]
    settings["judge"] = {
        "model": config.judge.model,
        "max_chars": config.judge.max_chars,
        "version": [judge_prompts.version(kind, config.judge) for kind in ("grade", "compare")],
    }
    own = {name: task for name, task in config.tasks.items() if task != TaskConfig()}
    return settings | {"tasks": {name: asdict(task) for name, task in own.items()}}


def instruction(sample: Sample, config: RewardConfig = DEFAULT) -> str:
    """What the model is told after the question: how to answer, and in which form.

    Raises:
        UserError: for an own prompt (`reward.prompts`) that cannot be rendered.
    """
    text = task_of(sample).instruction(sample, config)
    return own_prompt(sample, text, config)


def render_gold(sample: Sample, config: RewardConfig = DEFAULT) -> str:
    """The gold answer as a model would write it; its reward is 1.

    Raises:
        GoldError: the sample has no gold answer, or one that its problem type cannot use.
    """
    require_gold(sample)
    return f"<answer>{task_of(sample).render_gold(sample, config)}</answer>"


def check_gold(sample: Sample, config: RewardConfig = DEFAULT) -> None:
    """Refuse a sample that no answer could be scored against.

    Raises:
        GoldError: it has no gold answer, or one that its problem type cannot use.
    """
    task_of(sample).check_gold(sample, config)


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
        ScorerUnavailableError: a judge or another thing that the score needs is not there.
    """
    task = task_of(sample)
    needs_judge = task.needs_judge(sample, config)
    if not needs_judge:
        require_gold(sample)
    if extracted.status is not ScoreStatus.ok:
        return weigh(0.0, extracted, sample, config)
    if not needs_judge:
        return weigh(task.score(extracted.value, sample, config), extracted, sample, config)
    request = task.judge_request(extracted.value, sample, config)
    try:
        verdict = judge_of(config.judge).ask(request)
    except NoVerdictError as reason:
        return failure(ScoreStatus.no_verdict, str(reason), extracted)
    return judged(verdict, task, extracted, sample, config)


def judged(
    verdict: float, task: Task[Any], extracted: Extracted, sample: Sample, config: RewardConfig
) -> Score:
    """The score of an answer after the verdict of the judge."""
    accuracy = task.score_verdict(verdict, extracted.value, sample, config)
    return weigh(accuracy, extracted, sample, config)


def weigh(accuracy: float, extracted: Extracted, sample: Sample, config: RewardConfig) -> Score:
    """The score that accuracy and format make together."""
    if not (math.isfinite(accuracy) and 0.0 <= accuracy <= 1.0):
        raise ValueError(f"{sample.problem_type.value} scored {accuracy}, outside 0 to 1")
    accuracy_weight, format_weight = config.weights(sample.problem_type.value)
    return Score(
        value=accuracy_weight * accuracy + format_weight * extracted.format,
        parts={"accuracy": accuracy, "format": extracted.format},
        status=extracted.status,
        extracted=extracted.value,
        detail=extracted.detail,
    )


def failure(status: ScoreStatus, detail: str, extracted: Extracted | None = None) -> Score:
    """The score of an answer that could not be scored: 0, with the reason."""
    return Score(
        value=0.0,
        parts={"accuracy": 0.0, "format": 0.0},
        status=status,
        extracted=None if extracted is None else extracted.value,
        detail=detail,
    )


def add_parts(scored: Score, parts: Mapping[str, float]) -> Score:
    """`scored` with further parts, each added to the value."""
    if not parts:
        return scored
    return replace(
        scored, value=scored.value + sum(parts.values()), parts={**scored.parts, **parts}
    )


def reward(
    sample: Sample, text: str, config: RewardConfig = DEFAULT, num_tokens: int | None = None
) -> Score:
    """The reward of a model's text for a sample: `extract` and `score` in one, plus penalties.

    Args:
        sample: the question, with its gold answer.
        text: all that the model wrote.
        config: of the rewards.
        num_tokens: length of the text in the model's tokens; for the overlong penalty.

    Example:
        >>> reward(sample, "It is blue. <answer>B</answer>").parts
        {'accuracy': 1.0, 'format': 1.0}
    """
    deductions = penalties(text, num_tokens, config)
    return add_parts(score(extract(text, sample, config), sample, config), deductions)
