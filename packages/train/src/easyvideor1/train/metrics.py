"""What a step's groups say, how long its phases took and where its frames came from.

Flat numbers for the tracker.
"""

import functools
import operator
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING

from easyvideor1.schema.records import Completion, Group, Score, ScoreStatus, Source
from easyvideor1.train.interfaces import Experience

if TYPE_CHECKING:
    from easyvideor1.preprocess.store import LoadCounts


def summarize(experiences: Sequence[Experience]) -> dict[str, float]:
    """Rewards by part, task and source, lengths, ties and offline share of one step.

    Args:
        experiences: that the step learns from.
    """
    groups = [experience.group for experience in experiences]
    return {
        "groups/skipped_step": float(not groups),
        **(_describe(groups) if groups else {}),
        **_rewards("reward/greedy", [e.greedy for e in experiences if e.greedy is not None]),
        **_rewards("reward/control", [score for e in experiences for score in e.control]),
    }


WARM_START = "warm_start/"
"""Begins the names of metrics of the warm start, which counts steps of its own."""


def is_warm_start(names: Iterable[str]) -> bool:
    """Whether metrics, by their names, are those of the warm start."""
    return any(name.startswith(WARM_START) for name in names)


def rates(metrics: Mapping[str, float], seconds: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second: of sequences in an update, sampled in a rollout; over all processes.

    Args:
        metrics: with `learner/tokens` and `rollout/tokens`, as far as there are any.
        seconds: of the step, by phase.

    Returns:
        `learner/tokens_per_s` and `rollout/tokens_per_s`, of those that were counted.
    """
    phases = {"learner": "seconds/update", "rollout": "seconds/rollout"}
    return {
        f"{part}/tokens_per_s": metrics[f"{part}/tokens"] / seconds[phase]
        for part, phase in phases.items()
        if metrics.get(f"{part}/tokens")
    }


def _describe(groups: Sequence[Group]) -> dict[str, float]:
    pairs = [(g, c, s) for g in groups for c, s in zip(g.completions, g.scores, strict=True)]
    by_task: dict[str, list[Score]] = defaultdict(list)
    for group, _, score in pairs:
        by_task[group.sample.problem_type.value].append(score)
    fresh = [(c, s) for _, c, s in pairs if c.source is Source.policy]
    offline = [(c, s) for _, c, s in pairs if c.source is Source.offline]
    metrics = {
        **_rewards("reward", [score for _, _, score in pairs]),
        **_rewards("reward/policy", [score for _, score in fresh]),
        **_rewards("reward/offline", [score for _, score in offline]),
        "groups/tied": fmean(len(set(group.rewards)) == 1 for group in groups),
        "offline/share": len(offline) / len(pairs),
        "offline/token_share": _num_tokens(c for c, _ in offline)
        / _num_tokens(c for _, c, _ in pairs),
        **_lengths([completion for completion, _ in fresh]),
        **_gain(groups),
    }
    for task, scores in sorted(by_task.items()):
        metrics |= _rewards(f"reward/{task}", scores)
    for status in ScoreStatus:
        if status is not ScoreStatus.ok:
            metrics[f"reward/{status.value}"] = fmean(s.status is status for _, _, s in pairs)
    return metrics


def _gain(groups: Sequence[Group]) -> dict[str, float]:
    """By how much offline completions are better than the sampled ones of their group."""
    gains = []
    for group in groups:
        by_source = {
            source: [
                reward
                for completion, reward in zip(group.completions, group.rewards, strict=True)
                if completion.source is source
            ]
            for source in Source
        }
        if all(by_source.values()):
            gains.append(fmean(by_source[Source.offline]) - fmean(by_source[Source.policy]))
    return {"offline/gain": fmean(gains)} if gains else {}


def _rewards(name: str, scores: Sequence[Score]) -> dict[str, float]:
    """Mean reward, and the mean of each of its parts."""
    if not scores:
        return {}
    parts = sorted({part for score in scores for part in score.parts})
    return {
        name if "/" in name else f"{name}/mean": fmean(score.value for score in scores),
        **{
            f"{name}/{part}": fmean(s.parts[part] for s in scores if part in s.parts)
            for part in parts
        },
    }


def _lengths(completions: Sequence[Completion]) -> dict[str, float]:
    """Lengths of sampled completions, in tokens, and the share that hit the limit."""
    if not completions:
        return {}
    lengths = [len(completion.token_ids) for completion in completions]
    return {
        "completion/tokens": fmean(lengths),
        "completion/tokens_max": float(max(lengths)),
        "completion/truncated": fmean(c.finish_reason == "length" for c in completions),
    }


def _num_tokens(completions: Iterable[Completion]) -> int:
    return sum(len(completion.token_ids) for completion in completions)


class CacheMetrics:
    """How often the frames that some processes loaded came from the cache.

    Args:
        reader: names the processes, `rollout` or `learner`.
    """

    def __init__(self, reader: str):
        self._reader = reader
        self._told: dict[int, LoadCounts] = {}

    def since_last(self, counts: "Sequence[LoadCounts]") -> dict[str, float]:
        """Hit rate and misses since the last call; nothing where no frames were loaded.

        Args:
            counts: of each process, since it began.
        """
        told, self._told = self._told, dict(enumerate(counts))
        new = functools.reduce(
            operator.add,
            (now - told[index] if index in told else now for index, now in enumerate(counts)),
        )
        if new.hit_rate is None:
            return {}
        return {
            f"cache/hit_rate/{self._reader}": new.hit_rate,
            f"cache/misses/{self._reader}": float(new.misses),
        }

    def forget(self, processes: Iterable[int]) -> None:
        """These were started anew and count from 0."""
        for index in processes:
            self._told.pop(index, None)


class Stopwatch:
    """Wall-clock seconds of the named phases of a step."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Generator[None]:
        """Measure the body of a `with` under `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, and `seconds/step` since the stopwatch was made."""
        return {**self.phases(), "seconds/step": time.perf_counter() - self._start}

    def phases(self) -> dict[str, float]:
        """Seconds by phase."""
        return {f"seconds/{phase}": seconds for phase, seconds in self._seconds.items()}
