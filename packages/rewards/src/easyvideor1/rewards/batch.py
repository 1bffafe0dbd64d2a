"""Scores of many answers: quick ones in this process, the others in workers that can be killed.

Answers that a judge decides are asked about in the background. An answer past its deadline, a
scorer that raises and a worker that dies each become a status, never a silent 0. Called by train,
evaluate and evr-score.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from easyvideor1.rewards import plugins
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.judge import NoVerdictError, Ruling, judge_of
from easyvideor1.rewards.penalties import penalties, require_num_tokens
from easyvideor1.rewards.registry import (
    ScorerUnavailableError,
    Task,
    installed_tasks,
    registered_types,
    task_of,
    task_of_type,
)
from easyvideor1.rewards.scoring import (
    DEFAULT,
    Extracted,
    add_parts,
    extract,
    failure,
    judged,
    score,
    weigh,
)
from easyvideor1.rewards.workers import Handover, Job
from easyvideor1.schema.records import ProblemType, Sample, Score, ScoreStatus

Item = tuple[Sample, str]


def score_many(
    items: Sequence[Item],
    config: RewardConfig = DEFAULT,
    *,
    num_tokens: Sequence[int | None] | None = None,
) -> list[Score]:
    """The reward of each (sample, text), in order. No content of an item makes it raise.

    Args:
        items: samples with what the model wrote.
        config: of the rewards.
        num_tokens: length of each text in the model's tokens; for the overlong penalty.

    Raises:
        UserError: what the scores take is not there: a judge, a sandbox, numbers of tokens, a
            function of the user's.

    Example:
        >>> count_statuses(score_many([(sample, "<answer>B</answer>")]))["ok"]
        1
    """
    if num_tokens is not None and len(num_tokens) != len(items):
        raise ValueError(f"{len(items)} answers, but {len(num_tokens)} numbers of tokens")
    counts = [None] * len(items) if num_tokens is None else num_tokens
    if config.overlong.max_tokens is not None:
        for count in counts:
            require_num_tokens(count)
    if config.function is None:
        scores = _score_by_tasks(items, config)
    else:
        scores = plugins.score_many(items, counts, config)
    return [
        add_parts(one, penalties(text, count, config))
        for one, (_, text), count in zip(scores, items, counts, strict=True)
    ]


_checked: set[tuple[ProblemType, str]] = set()


def check_scoring(problem_types: Iterable[ProblemType], config: RewardConfig = DEFAULT) -> None:
    """Let each task say, once, that its answers cannot be scored here.

    Called before the first answer of a type is scored, and by commands before they start anything.

    Raises:
        UserError: a sandbox, a program or a setting is missing.
    """
    if config.function is not None:
        plugins.load_function(config.function)
        return
    installed_tasks()
    for problem_type in sorted(set(problem_types) & set(registered_types())):
        task = task_of_type(problem_type)
        if type(task).check is Task.check:
            continue
        key = problem_type, repr(config)
        if key not in _checked:
            task.check(config)
            _checked.add(key)


def count_statuses(scores: Iterable[Score]) -> dict[str, int]:
    """How many scores have each status; all statuses are listed."""
    counts = Counter(score.status for score in scores)
    return {status.value: counts[status] for status in ScoreStatus}


class _Route(Enum):
    """Where an answer is scored."""

    here = auto()
    worker = auto()
    judge = auto()


@dataclass(slots=True)
class _Running:
    """What has been begun elsewhere, with the places of its answers."""

    handovers: list[tuple[list[int], Handover]] = field(default_factory=list)
    questions: dict[int, "_Question"] = field(default_factory=dict)

    def cancel(self) -> None:
        for _, handover in self.handovers:
            handover.cancel()
        for question in self.questions.values():
            question.ruling.cancel()


def _score_by_tasks(items: Sequence[Item], config: RewardConfig) -> list[Score]:
    routes: dict[_Route, list[int]] = defaultdict(list)
    for place, (sample, text) in enumerate(items):
        routes[_route(sample, text, config)].append(place)
    check_scoring({sample.problem_type for sample, _ in items}, config)
    if routes[_Route.judge]:
        judge_of(config.judge)  # says what is not set before anything is scored
    scores: dict[int, Score] = {}
    running = _Running()
    try:
        # All that runs elsewhere is begun before the first quick one is scored here.
        running.handovers += _hand_over(routes[_Route.worker], items, config)
        for place in routes[_Route.judge]:
            asked = _ask(*items[place], config)
            if isinstance(asked, Score):
                scores[place] = asked
            else:
                running.questions[place] = asked
        for place in routes[_Route.here]:
            scores[place] = _score_here(*items[place], config)
        for places, handover in running.handovers:
            scores.update(zip(places, handover.scores(), strict=True))
        for place, question in running.questions.items():
            scores[place] = question.score()
    except BaseException:
        running.cancel()
        raise
    return [scores[place] for place in range(len(items))]


def _route(sample: Sample, text: str, config: RewardConfig) -> _Route:
    try:
        task = task_of(sample)
        if task.needs_judge(sample, config):
            return _Route.judge
        return _Route.here if task.is_quick(text, sample, config) else _Route.worker
    except Exception:
        return _Route.here  # scoring it raises too, and `_score_here` makes a status of that


# --- in this process ----------------------------------------------------------------------------


def _score_here(sample: Sample, text: str, config: RewardConfig) -> Score:
    try:
        return score(extract(text, sample, config), sample, config)
    except Exception as error:
        return _status_of(error)


def _status_of(error: Exception) -> Score:
    if isinstance(error, ScorerUnavailableError):
        return failure(ScoreStatus.unavailable, str(error))
    return failure(ScoreStatus.error, f"{type(error).__name__}: {error}")


# --- in workers ---------------------------------------------------------------------------------


def _hand_over(
    places: Sequence[int], items: Sequence[Item], config: RewardConfig
) -> list[tuple[list[int], Handover]]:
    """Begin to score the answers at `places`; several of a type go to a worker together."""
    by_type: dict[ProblemType, list[int]] = defaultdict(list)
    for place in places:
        by_type[items[place][0].problem_type].append(place)
    begun: list[tuple[list[int], Handover]] = []
    for same_type in by_type.values():
        task = task_of(items[same_type[0]][0])
        deadline_s = task.deadline_s(config)
        fair_share = math.ceil(len(same_type) / (2 * config.workers))
        size = max(1, min(task.batch_size, fair_share))
        for start in range(0, len(same_type), size):
            part = same_type[start : start + size]
            jobs = [Job(*items[place], _score_here, config, deadline_s) for place in part]
            begun.append((part, Handover(jobs, config.workers)))
    return begun


# --- by a judge ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """An answer that a judge has been asked about."""

    sample: Sample
    extracted: Extracted
    config: RewardConfig
    ruling: Ruling

    def score(self) -> Score:
        """Raises UserError where the judge fails and failures end the run."""
        try:
            verdict = self.ruling.verdict()
        except NoVerdictError as reason:
            return failure(ScoreStatus.no_verdict, str(reason), self.extracted)
        except ScorerUnavailableError as reason:
            return failure(ScoreStatus.unavailable, str(reason), self.extracted)
        try:
            task = task_of(self.sample)
            return judged(verdict, task, self.extracted, self.sample, self.config)
        except Exception as error:
            return _status_of(error)


def _ask(sample: Sample, text: str, config: RewardConfig) -> _Question | Score:
    """Ask the judge about an answer; a text without an answer has its score at once."""
    try:
        extracted = extract(text, sample, config)
        if extracted.status is not ScoreStatus.ok:
            return weigh(0.0, extracted, sample, config)
        request = task_of(sample).judge_request(extracted.value, sample, config)
    except Exception as error:
        return _status_of(error)
    return _Question(sample, extracted, config, judge_of(config.judge).submit(request))
