"""Advantage estimators: rewards of one group in, one advantage per completion out.

Pure functions in float64, each with its formula and source. `ADVANTAGES` holds them by their name
in the config; the loop calls `group_advantages` once per group.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName

# Legend: G completions of one prompt.


def grpo(rewards_G: Tensor, *, epsilon: float) -> Tensor:
    """Group-normalised reward: A_i = (r_i - mean(r)) / (std(r) + epsilon).

    `std` is the sample deviation (divisor G - 1). A group without spread gives exactly 0, so that
    rounding is never divided by epsilon. Source: DeepSeekMath, arXiv 2402.03300, section 4.1.2.

    Args:
        rewards_G: [G] rewards.
        epsilon: added to the deviation.

    Returns:
        [G] advantages.
    """
    if bool((rewards_G == rewards_G[0]).all()):
        return torch.zeros_like(rewards_G)
    return (rewards_G - rewards_G.mean()) / (rewards_G.std() + epsilon)


ADVANTAGES: dict[AdvantageName, Callable[..., Tensor]] = {AdvantageName.grpo: grpo}


def group_advantages(rewards: Sequence[float], config: AdvantageConfig) -> list[float]:
    """The advantage of each completion of one group, by the estimator the config names."""
    rewards_G = torch.tensor(rewards, dtype=torch.float64)
    return ADVANTAGES[config.name](rewards_G, epsilon=config.epsilon).tolist()
