"""Advantage estimators: the rewards of a step in, the advantage of every token out.

`ADVANTAGES` holds them by their name in the config: what each reads of a step and of its settings,
around the formulas of `advantage_formulas`. `AdvantageEstimator` is what the loop calls per step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.train.advantage_formulas import (
    ROUNDING,
    ema_grpo,
    gdpo,
    group_mean,
    grpo,
    pass_at_k,
    reinforce_pp,
    reinforce_pp_baseline,
    remax,
    rloo,
    temporal_bonus,
)
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    OfflineConfig,
    Whitening,
)
from easyvideor1.train.interfaces import Experience
from easyvideor1.train.offline_baseline import (
    has_offline,
    is_offline,
    sampled_alone,
    with_offline,
    without_offline,
)
from easyvideor1.train.step_rewards import StepRewards, float64, parts
from easyvideor1.train.task_moments import TaskMoments

# Legend: N completions of a step in order, T tokens of all of these that the loss counts, G
# completions of one prompt, L tokens of one completion.


def _reinforce_pp(step: StepRewards, config: AdvantageConfig, _: TaskMoments) -> Tensor:
    return reinforce_pp(
        step.scores_N,
        step.penalties_T,
        step.lengths_N,
        discount=config.discount,
        epsilon=config.epsilon,
    )


def _gdpo(step: StepRewards, config: AdvantageConfig, _: TaskMoments) -> Tensor:
    by_token = config.whiten is Whitening.token
    return step.over_tokens(
        gdpo(
            torch.stack([step.part_N(key) for key in config.keys]),
            float64(list(config.keys.values())),
            step.groups_N,
            step.lengths_N if by_token else torch.ones_like(step.lengths_N),
            epsilon=config.epsilon,
        )
    )


def _ema_grpo(step: StepRewards, config: AdvantageConfig, moments: TaskMoments) -> Tensor:
    moments.update(step.rewards_N, step.tasks)
    return step.over_tokens(
        ema_grpo(
            step.rewards_N,
            step.groups_N,
            moments.deviations(step.tasks),
            clip=config.ema_clip,
            epsilon=config.epsilon,
        )
    )


def _t_grpo(step: StepRewards, config: AdvantageConfig, _: TaskMoments) -> Tensor:
    """GRPO on rewards with the bonus."""
    bonuses_N = torch.cat([_bonuses(experience, config) for experience in step.experiences])
    return step.over_tokens(grpo(step.rewards_N + bonuses_N, step.groups_N, epsilon=config.epsilon))


def _bonuses(experience: Experience, config: AdvantageConfig) -> Tensor:
    """[G] T-GRPO's bonus of each completion; without a control there is none.

    Offline completions have no part in it: they say nothing about what the policy saw.
    """
    completions = experience.group.completions
    bonuses_G = float64([0.0] * len(completions))
    sampled_G = torch.tensor([not is_offline(completion) for completion in completions])
    if experience.control and sampled_G.any():
        accuracies_G = parts(experience, experience.group.scores, "accuracy")
        bonuses_G[sampled_G] = temporal_bonus(
            accuracies_G[sampled_G],
            parts(experience, experience.control, "accuracy"),
            right_from=config.right_from,
            factor=config.control_factor,
            bonus=config.control_bonus,
        )
    return bonuses_G


def _pass_at_k(step: StepRewards, config: AdvantageConfig, _: TaskMoments) -> Tensor:
    sizes = [len(experience.group.scores) for experience in step.experiences]
    for experience, size in zip(step.experiences, sizes, strict=True):
        if size < config.k:
            raise UserError(
                f"sample {experience.prompt.sample.id} has {size} completions, fewer than "
                f"algorithm.advantage.k={config.k}; lower it or raise rollout.group_size"
            )
    return step.over_tokens(
        torch.cat(
            [
                pass_at_k(rewards_G, k=config.k, epsilon=config.epsilon)
                for rewards_G in step.rewards_N.split(sizes)
            ]
        )
    )


Estimator = Callable[[StepRewards, AdvantageConfig, TaskMoments], Tensor]
"""[T] advantages of a step; the moments are those of earlier steps, and `ema_grpo` updates them."""

ADVANTAGES: dict[AdvantageName, Estimator] = {
    AdvantageName.grpo: lambda step, config, _: step.over_tokens(
        grpo(step.rewards_N, step.groups_N, epsilon=config.epsilon)
    ),
    AdvantageName.group_mean: lambda step, config, _: step.over_tokens(
        group_mean(step.rewards_N, step.groups_N)
    ),
    AdvantageName.rloo: lambda step, config, _: step.over_tokens(
        rloo(step.rewards_N, step.groups_N)
    ),
    AdvantageName.reinforce_pp: _reinforce_pp,
    AdvantageName.reinforce_pp_baseline: lambda step, config, _: step.over_tokens(
        reinforce_pp_baseline(step.rewards_N, step.groups_N, step.lengths_N, epsilon=config.epsilon)
    ),
    AdvantageName.remax: lambda step, config, _: step.over_tokens(
        remax(step.rewards_N, step.greedy_N)
    ),
    AdvantageName.gdpo: _gdpo,
    AdvantageName.ema_grpo: _ema_grpo,
    AdvantageName.t_grpo: _t_grpo,
    AdvantageName.pass_at_k: _pass_at_k,
}


class AdvantageEstimator:
    """The estimator that the config names, with what it remembers from step to step."""

    def __init__(self, config: AdvantageConfig, offline: OfflineConfig | None = None):
        self._config = config
        self._offline = offline or OfflineConfig()
        self._moments = TaskMoments(config.ema_decay)
        self._metrics: dict[str, float] = {}

    def __call__(
        self,
        experiences: Sequence[Experience],
        penalties: Sequence[Sequence[float]] | None = None,
    ) -> list[list[float]]:
        """The advantages of a step; to be called once for all of it.

        Args:
            experiences: all of the step.
            penalties: per completion of all experiences in order, [L] what is added to the reward
                at each token; None for nothing.

        Returns:
            Per completion in order, [L] advantage of each token, 0 where the loss does not count.

        Raises:
            UserError: if a score lacks a part that the estimator reads, or a group is too small.
        """
        self._metrics = {}
        if not experiences:
            return []
        if self._offline.in_baseline or not any(map(has_offline, experiences)):
            return self._of_all(experiences, penalties)
        own_penalties = None if penalties is None else sampled_alone(experiences, penalties)
        own = self._of_all([without_offline(e) for e in experiences], own_penalties)
        return with_offline(own, experiences, penalties)

    def _of_all(
        self,
        experiences: Sequence[Experience],
        penalties: Sequence[Sequence[float]] | None,
    ) -> list[list[float]]:
        """Every completion is part of its group's baseline."""
        step = StepRewards(experiences, penalties)
        advantages_T = ADVANTAGES[self._config.name](step, self._config, self._moments)
        self._metrics = {
            "advantage/groups_with_signal": step.share_of_groups(advantages_T.abs() > ROUNDING)
        }
        return step.per_completion(advantages_T)

    def metrics(self) -> dict[str, float]:
        """Share of the last step's groups with an advantage other than 0; each task's deviation.

        The latter for `ema_grpo` alone.
        """
        return self._metrics | {
            f"advantage/deviation/{task}": deviation
            for task, deviation in self._moments.by_task().items()
        }

    def state(self) -> dict[str, Any]:
        """What is remembered, JSON-serialisable."""
        return {"tasks": self._moments.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        self._moments.load_state(state["tasks"])
