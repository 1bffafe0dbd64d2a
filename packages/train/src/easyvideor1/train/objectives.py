"""Per-token losses and their aggregation: log-probs in, losses out.

Pure functions over tensors, each with its formula and source. `OBJECTIVES` holds the policy losses
by their name in the config; the learner sums what they return with `weighted_sum`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import ObjectiveConfig, ObjectiveName

# Legend: T tokens, of all completions of a micro-batch, one after another.

MAX_LOG_RATIO = 20.0
"""exp() stays finite when sampler and learner disagree beyond reason."""


class PolicyLoss(NamedTuple):
    """Loss of each token and what is logged about it."""

    loss_T: Tensor
    ratio_T: Tensor
    """pi / pi_old, without gradient."""
    clipped_low_T: Tensor
    """True where the lower bound holds the token, which then has no gradient."""
    clipped_high_T: Tensor


def clipped_surrogate(
    logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, *, low: float, high: float
) -> PolicyLoss:
    """Clipped surrogate: -min(r A, clip(r, 1 - low, 1 + high) A) with r = pi / pi_old.

    Source: PPO, arXiv 1707.06347, equation 7; separate bounds ("clip-higher"): DAPO, arXiv
    2503.14476, equation 10.

    Args:
        logprobs_T: [T] log-probs under the weights being trained.
        old_logprobs_T: [T] log-probs under the weights that sampled, constant.
        advantages_T: [T] advantage of each token's completion.
        low: the ratio's bound is 1 - low below.
        high: and 1 + high above.
    """
    log_ratio_T = (logprobs_T - old_logprobs_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio_T = log_ratio_T.exp()
    bounded_T = ratio_T.clamp(1 - low, 1 + high)
    loss_T = -torch.minimum(ratio_T * advantages_T, bounded_T * advantages_T)
    ratio_T = ratio_T.detach()
    return PolicyLoss(
        loss_T,
        ratio_T,
        clipped_low_T=(ratio_T < 1 - low) & (advantages_T < 0),
        clipped_high_T=(ratio_T > 1 + high) & (advantages_T > 0),
    )


def _clip(
    logprobs_T: Tensor, old_logprobs_T: Tensor, advantages_T: Tensor, config: ObjectiveConfig
) -> PolicyLoss:
    assert config.clip_low is not None  # refused by the config
    return clipped_surrogate(
        logprobs_T, old_logprobs_T, advantages_T, low=config.clip_low, high=config.clip_high
    )


OBJECTIVES: dict[ObjectiveName, Callable[[Tensor, Tensor, Tensor, ObjectiveConfig], PolicyLoss]] = {
    ObjectiveName.clip: _clip
}


def imitation(logprobs_T: Tensor) -> Tensor:
    """Supervised loss of each token: -log pi."""
    return -logprobs_T


def weighted_sum(values_T: Tensor, weights_T: Tensor) -> Tensor:
    """Sum of w_t v_t; over the sum of all weights of the *global* batch it is the token mean.

    The learner divides by that global sum, never by a micro-batch's own, so that the mean is the
    same however the batch is cut. Source: DAPO, arXiv 2503.14476, section 3.3.
    """
    return (values_T * weights_T).sum()
