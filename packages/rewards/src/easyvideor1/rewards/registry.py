"""What a task is, and the one table from problem type to task.

A task lives in one file under `tasks/` and registers itself with `@register_task(ProblemType.…)`.
`scoring` is the only caller; it adds status, format part and weights.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample, parse_problem_type

if TYPE_CHECKING:
    from easyvideor1.rewards.judge import Request

_log = logging.getLogger(__name__)


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

    def check_gold(self, sample: Sample, config: RewardConfig) -> None:
        """Refuse a gold answer that no answer could be scored against.

        Raises:
            GoldError: saying what was expected.
        """
        require_gold(sample)
        self.render_gold(sample, config)

    # What an answer costs, and what it takes.

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        """Whether the text is surely scored so soon that it needs no deadline."""
        return True

    batch_size: int = 1
    """Answers that are not quick, and are handed to a worker together. Above 1 where one answer
    mostly takes a few ms; should they not be done within one deadline, each is scored alone."""

    def deadline_s(self, config: RewardConfig) -> float:
        """Wall-clock seconds for one answer that is not quick."""
        return config.deadline_s

    def load(self) -> None:
        """Import what the first score needs, so that it does not count against a deadline."""

    def check(self, config: RewardConfig) -> None:
        """Called once before the first answer is scored.

        Raises:
            UserError: answers cannot be scored on this host or with these settings.
        """

    # Answers that a judge decides: `judge_request` and `score_verdict` in place of `score`.

    def needs_judge(self, sample: Sample, config: RewardConfig) -> bool:
        """Whether a judge decides about answers to `sample`."""
        return False

    def judge_request(self, value: V, sample: Sample, config: RewardConfig) -> "Request":
        """What the judge is asked about an extracted answer."""
        raise NotImplementedError

    def score_verdict(
        self, verdict: float, value: V, sample: Sample, config: RewardConfig
    ) -> float:
        """Accuracy of an extracted answer after the verdict of the judge."""
        return verdict


def require_gold(sample: Sample) -> None:
    """Refuse a sample whose gold answer is hidden.

    Raises:
        GoldError: it is.
    """
    if sample.answer is None:
        raise GoldError(sample, "one that is not hidden; this sample cannot be scored")


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
    installed_tasks()
    task = _TASKS.get(sample.problem_type)
    if task is None:
        known = ", ".join(sorted(kind.value for kind in _TASKS))
        raise UserError(
            f"sample {sample.id}: no reward for problem_type {sample.problem_type.value!r}; "
            f"known: {known}"
        )
    return task


def task_of_type(problem_type: ProblemType) -> Task[Any]:
    """The task of a registered type.

    Raises:
        KeyError: the type is not registered.
    """
    installed_tasks()
    return _TASKS[problem_type]


def all_tasks() -> list[Task[Any]]:
    """The tasks of all problem types."""
    installed_tasks()
    return list(_TASKS.values())


def registered_types() -> list[ProblemType]:
    """All problem types that have a task, in order of registration."""
    return list(_TASKS)


ENTRY_POINTS = "easyvideor1.tasks"
"""Group under which other packages name tasks: `<problem type> = "module:TaskClass"`."""


@cache
def installed_tasks() -> dict[str, str]:
    """Put the tasks of other installed packages in place of ours; what was put, by problem type.

    Example:
        {"ocr": "better-ocr 1.2 (better_ocr.task:Ocr)"}

    Raises:
        UserError: for a name that is no problem type, a class that is no task or cannot be
            imported, and two packages with a task for one type.
    """
    found: dict[str, str] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        package = "a package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        name = f"{package} ({entry.value})"
        try:
            problem_type = parse_problem_type(entry.name)
            task_class = entry.load()
        except Exception as error:
            raise UserError(f"{name} registers a task {entry.name!r}: {error}") from error
        if not (isinstance(task_class, type) and issubclass(task_class, Task)):
            raise UserError(f"{name} registers {task_class!r}, which is no subclass of Task")
        if other := found.get(problem_type.value):
            raise UserError(f"{name} and {other} both register a task for {problem_type.value}")
        found[problem_type.value] = name
        _TASKS[problem_type] = task_class()
        _log.warning("%s is asked and scored by %s", problem_type.value, name)
    return found
