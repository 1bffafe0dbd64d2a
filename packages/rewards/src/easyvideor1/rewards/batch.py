"""Scores of many answers: quick ones in this process, the others in workers that can be killed.

An answer past its deadline, a scorer that raises and a worker that dies each become a status, never
a silent 0. Called by train, evaluate and evr-score.
"""

import atexit
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, TimeoutError
from functools import cache
from multiprocessing import get_context

from pebble import ProcessExpired, ProcessPool

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.registry import ScorerUnavailableError, task_of
from easyvideor1.rewards.scoring import DEFAULT, reward
from easyvideor1.rewards.tasks import open_ended
from easyvideor1.schema.records import Sample, Score, ScoreStatus


def score_many(items: Sequence[tuple[Sample, str]], config: RewardConfig = DEFAULT) -> list[Score]:
    """The reward of each (sample, text), in order. No content of an item makes it raise.

    Example:
        >>> count_statuses(score_many([(sample, "<answer>B</answer>")]))
        {'ok': 1, 'no_answer': 0, 'timeout': 0, 'no_verdict': 0, 'unavailable': 0, 'error': 0}
    """
    # All slow ones are handed out before the first quick one is scored here.
    running = {
        place: _pool(config.workers).schedule(
            _reward, args=(sample, text, config), timeout=config.deadline_s
        )
        for place, (sample, text) in enumerate(items)
        if not _is_quick(sample, text, config)
    }
    return [
        _result(running[place], config) if place in running else _reward(sample, text, config)
        for place, (sample, text) in enumerate(items)
    ]


def count_statuses(scores: Iterable[Score]) -> dict[str, int]:
    """How many scores have each status; all statuses are listed."""
    counts = Counter(score.status for score in scores)
    return {status.value: counts[status] for status in ScoreStatus}


def _is_quick(sample: Sample, text: str, config: RewardConfig) -> bool:
    try:
        return task_of(sample).is_quick(text, sample, config)
    except Exception:
        return True  # scoring it raises too, and `_reward` makes a status of that


def _reward(sample: Sample, text: str, config: RewardConfig) -> Score:
    try:
        return reward(sample, text, config)
    except ScorerUnavailableError as error:
        return _failure(ScoreStatus.unavailable, str(error))
    except Exception as error:
        return _failure(ScoreStatus.error, f"{type(error).__name__}: {error}")


def _result(running: Future, config: RewardConfig) -> Score:
    try:
        return running.result()
    except TimeoutError:
        return _failure(ScoreStatus.timeout, f"not scored within {config.deadline_s:g} s")
    except ProcessExpired as error:
        return _failure(ScoreStatus.error, f"the process that scored it died: {error}")


def _failure(status: ScoreStatus, detail: str) -> Score:
    return Score(value=0.0, parts={"accuracy": 0.0, "format": 0.0}, status=status, detail=detail)


@cache
def _pool(workers: int) -> ProcessPool:
    """The pool of this process, kept until it ends.

    Spawned, not forked: this process may hold threads, a GPU, an engine or Ray.
    """
    pool = ProcessPool(
        max_workers=workers, context=get_context("spawn"), initializer=open_ended.load
    )
    atexit.register(_close, pool)
    return pool


def _close(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()
