"""The pool of processes that score what may take long: they can be killed at a deadline.

Answers that mostly take a few ms are handed over several at a time, and one by one once one of them
needs its deadline. A worker that is killed or dies is replaced. Called by `batch`.
"""

import atexit
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass
from typing import Any

from pebble import ProcessExpired, ProcessPool

from easyvideor1.rewards.fork_server import end_with_parent, fork_context
from easyvideor1.rewards.registry import all_tasks
from easyvideor1.rewards.scoring import failure
from easyvideor1.schema.records import Sample, Score, ScoreStatus

PRELOADED = "easyvideor1.rewards.preloaded"


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be scored by a worker."""

    sample: Sample
    text: str
    function: Callable[[Sample, str, Any], Score]
    """Importable; scores the answer and raises nothing."""
    options: Any
    """Its third argument."""
    deadline_s: float


class Handover:
    """Jobs that a worker does one after the other; `scores` waits for them."""

    def __init__(self, jobs: Sequence[Job], workers: int):
        self._jobs, self._workers = jobs, workers
        self._future = _submit(jobs, workers)

    def scores(self) -> list[Score]:
        """One score for each job; a deadline, and a worker that dies, are statuses."""
        try:
            return self._future.result()
        except (TimeoutError, ProcessExpired) as error:
            if len(self._jobs) == 1:
                return [_lost(self._jobs[0], error)]
        alone = [Handover([job], self._workers) for job in self._jobs]
        return [score for handover in alone for score in handover.scores()]

    def cancel(self) -> None:
        """Do not begin, or end, what is not done."""
        self._future.cancel()


def _submit(jobs: Sequence[Job], workers: int) -> Future:
    # Several are handed over together where each takes a small part of the deadline.
    return pool(workers).schedule(_score_all, args=(jobs,), timeout=jobs[0].deadline_s)


def _score_all(jobs: Sequence[Job]) -> list[Score]:
    return [job.function(job.sample, job.text, job.options) for job in jobs]


def _lost(job: Job, error: Exception) -> Score:
    if isinstance(error, TimeoutError):
        return failure(ScoreStatus.timeout, f"not scored within {job.deadline_s:g} s")
    return failure(ScoreStatus.error, f"the process that scored it died: {error}")


_pools: dict[int, ProcessPool] = {}
_pools_lock = threading.Lock()


def pool(workers: int) -> ProcessPool:
    """The pool of this process, kept until it ends.

    Workers are forked from a small server process that has imported what the tasks need, so that a
    killed one is replaced at once. This process, which may hold threads, a GPU, an engine or Ray,
    is never forked.
    """
    with _pools_lock:
        if workers not in _pools:
            context = fork_context([PRELOADED])
            _pools[workers] = ProcessPool(workers, context=context, initializer=_begin)
            atexit.register(_close, _pools[workers])
        return _pools[workers]


def _begin() -> None:
    end_with_parent()
    load_tasks()


def load_tasks() -> None:
    """Import what the first score of any type would, so that no deadline pays for it."""
    for task in all_tasks():
        task.load()


def _close(started: ProcessPool) -> None:
    started.stop()
    started.join()
