"""What a task is, and the one table from problem type to task.

A task lives in one file under `tasks/` and registers itself with `@register_task(ProblemType.…)`.
`scoring` is the only caller; it adds status, format part and weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample


class GoldError(UserError):
    """A gold answer that its problem type cannot use, or that is hidden."""

    def __init__(self, sample: Sample, expected: str):
        self.sample, self.expected = sample, expected
        shown = repr(sample.answer)
        if len(shown) > 120:
            shown = shown[:117] + "…"
        super().__init__(f"sample {sample.id}: answer: got {shown}, expected {expected}")

    def __reduce__(self):
        """Rebuild from the fields, so that the error crosses process boundaries."""
        return type(self), (self.sample, self.expected)


class ScorerUnavailableError(Exception):
    """What a score needs is not there: a sandbox, a judge. The answer is not to blame for it."""


V = TypeVar("V")
"""What a task reads from a text; JSON-serialisable."""


class Task(ABC, Generic[V]):
    """How one kind of question is asked, its answer read, and the answer scored.

    All methods are pure and get the settings. A gold answer that the task cannot use is a
    `GoldError`; anything about the model's text is `NoAnswer`, never another exception.
    """

    @abstractmethod
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        """What the model is told after the question: one to three short sentences."""

    @abstractmethod
    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> V:
        """The answer that the text states.

        Raises:
            NoAnswer: the text states none, or more than one.
        """

    @abstractmethod
    def score(self, value: V, sample: Sample, config: RewardConfig) -> float:
        """Accuracy of an extracted answer against the gold answer, 0 to 1.

        Raises:
            ScorerUnavailableError: what it takes is not there; the answer gets a status.
        """

    @abstractmethod
    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        """The gold answer in the form the instruction asks for, without the answer tag."""

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        """Whether a tag's content, which `extract` could read, has the form asked for."""
        return True

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        """Whether the text is surely scored so soon that it needs no deadline."""
        return True

    def load(self) -> None:
        """Import what the first score needs, so that it does not count against a deadline."""

    def check(self, config: RewardConfig) -> None:
        """Called once before the first answer is scored.

        Raises:
            UserError: answers cannot be scored on this host or with these settings.
        """


_TASKS: dict[ProblemType, Task[Any]] = {}

C = TypeVar("C", bound=type[Task[Any]])


def register_task(problem_type: ProblemType) -> Callable[[C], C]:
    """Class decorator: an instance of the class becomes the task of `problem_type`.

    Raises:
        ValueError: if the type has a task already.
    """

    def register(task_class: C) -> C:
        if problem_type in _TASKS:
            known = type(_TASKS[problem_type]).__qualname__
            raise ValueError(f"problem type {problem_type.value!r} is registered already: {known}")
        _TASKS[problem_type] = task_class()
        return task_class

    return register


def task_of(sample: Sample) -> Task[Any]:
    """The task that asks and scores `sample`.

    Raises:
        UserError: if its problem type has none; the text lists those that have.
    """
    task = _TASKS.get(sample.problem_type)
    if task is None:
        known = ", ".join(sorted(kind.value for kind in _TASKS))
        raise UserError(
            f"sample {sample.id}: no reward for problem_type {sample.problem_type.value!r}; "
            f"known: {known}"
        )
    return task


def registered_types() -> list[ProblemType]:
    """All problem types that have a task, in order of registration."""
    return list(_TASKS)
