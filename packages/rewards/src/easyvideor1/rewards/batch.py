"""Scores for many answers: quick ones in this process, the others in killable workers.

An answer past its deadline, a scorer that raises and a worker that dies become statuses, never a
silent 0. Called by train, evaluate and evr-score.
"""

import atexit
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError
from functools import lru_cache
from multiprocessing import get_context

from pebble import ProcessExpired, ProcessPool

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.registry import task_of
from easyvideor1.rewards.scoring import reward
from easyvideor1.schema.records import Sample, Score, ScoreStatus

DEFAULT = RewardConfig()


def score_many(items: Sequence[tuple[Sample, str]], config: RewardConfig = DEFAULT) -> list[Score]:
    """The reward of each (sample, text), in order; raises for nothing in them.

    Example:
        >>> scores = score_many([(sample, "<answer>B</answer>")])
        >>> count_statuses(scores)
        {'ok': 1, 'no_answer': 0, 'timeout': 0, 'error': 0}
    """
    scores: list[Score | None] = [None] * len(items)
    pending = {}
    for place, (sample, text) in enumerate(items):
        try:
            quick = task_of(sample).is_quick(text, sample)
        except Exception as error:
            scores[place] = _failed(error)
            continue
        if quick:
            scores[place] = _guarded(sample, text, config)
        else:
            task = _pool(config.workers).schedule(
                _guarded, args=(sample, text, config), timeout=config.deadline_s
            )
            pending[place] = task
    for place, task in pending.items():
        scores[place] = _result(task, config)
    return [score for score in scores if score is not None]


def count_statuses(scores: Iterable[Score]) -> dict[str, int]:
    """How many scores have each status; all statuses are listed."""
    counts = Counter(score.status for score in scores)
    return {status.value: counts[status] for status in ScoreStatus}


def _guarded(sample: Sample, text: str, config: RewardConfig) -> Score:
    try:
        return reward(sample, text, config)
    except Exception as error:
        return _failed(error)


def _result(task, config: RewardConfig) -> Score:
    try:
        return task.result()
    except TimeoutError:
        return _nothing(ScoreStatus.timeout, f"not scored within {config.deadline_s:g} s")
    except ProcessExpired as error:
        return _nothing(ScoreStatus.error, f"the scoring process died: {error}")


def _failed(error: Exception) -> Score:
    return _nothing(ScoreStatus.error, f"{type(error).__name__}: {error}")


def _nothing(status: ScoreStatus, detail: str) -> Score:
    return Score(value=0.0, parts={"accuracy": 0.0, "format": 0.0}, status=status, detail=detail)


@lru_cache(maxsize=1)
def _pool(workers: int) -> ProcessPool:
    """Started once per process. Not forked: the caller may hold threads, a GPU or Ray."""
    pool = ProcessPool(max_workers=workers, context=get_context("forkserver"))
    atexit.register(_close, pool)
    return pool


def _close(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()
