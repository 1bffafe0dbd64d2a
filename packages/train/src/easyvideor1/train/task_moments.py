"""Moving mean and deviation of the rewards of each task: the state of EMA-GRPO."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class TaskMoments:
    """Exponential moving moments of the rewards, task by task.

    With the mean mu and the second moment nu of a task's rewards in a step, and the decay b,
    m1 <- b m1 + (1 - b) mu and m2 <- b m2 + (1 - b) nu; the deviation is sqrt(m2 - m1^2). The first
    step of a task sets m1 = mu and m2 = nu. Source: OneThinker, arXiv 2512.03043, equations 9 and
    10; the first step is that of its code (EasyR1/verl/trainer/core_algos.py).

    Held are m1 and the variance v = m2 - m1^2, which follows
    v <- b v + (1 - b) (nu - mu^2) + b (1 - b) (m1 - mu)^2:
    the same numbers without the difference of two large squares.
    """

    def __init__(self, decay: float):
        self._decay = decay
        self._moments: dict[str, tuple[float, float]] = {}

    def update(self, rewards_N: Tensor, tasks: Sequence[str]) -> None:
        """Take in the rewards of a step.

        Args:
            rewards_N: [N] float64 rewards.
            tasks: [N] task of each.
        """
        by_task: dict[str, list[int]] = defaultdict(list)
        for index, task in enumerate(tasks):
            by_task[task].append(index)
        for task, indices in by_task.items():
            rewards = rewards_N[indices]
            mean = rewards.mean().item()
            variance = rewards.var(correction=0).item()
            if task in self._moments:
                mean, variance = self._follow(self._moments[task], mean, variance)
            self._moments[task] = (mean, variance)

    def deviations(self, tasks: Sequence[str]) -> Tensor:
        """[N] float64 deviation of each completion's task, which `update` has seen."""
        by_task = self.by_task()
        return torch.tensor([by_task[task] for task in tasks], dtype=torch.float64)

    def by_task(self) -> dict[str, float]:
        """The deviation of each task seen so far."""
        return {task: variance**0.5 for task, (_, variance) in sorted(self._moments.items())}

    def state(self) -> dict[str, Any]:
        """JSON-serialisable."""
        return {
            task: {"mean": mean, "variance": variance}
            for task, (mean, variance) in self._moments.items()
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        self._moments = {task: (held["mean"], held["variance"]) for task, held in state.items()}

    def _follow(
        self, held: tuple[float, float], mean: float, variance: float
    ) -> tuple[float, float]:
        keep, take = self._decay, 1 - self._decay
        old_mean, old_variance = held
        return (
            keep * old_mean + take * mean,
            keep * old_variance + take * variance + keep * take * (old_mean - mean) ** 2,
        )
