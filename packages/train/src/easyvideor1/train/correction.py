"""Rollout correction: weights for what the engine samples from a policy that is not quite ours.

Engine and learner run the same weights through different kernels, so that even a fresh rollout is
off-policy by a little, and at single tokens by a lot. The ratio of the learner's probability to the
engine's weighs the loss (truncated importance sampling) or decides what is left out of it.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import CorrectionConfig, Level
from easyvideor1.train.ratios import bounded
from easyvideor1.train.sequences import sequence_mean, sequence_sum

# Legend: T tokens, of all completions of a micro-batch, one after another.


class Correction(NamedTuple):
    """What the policy loss of each token is multiplied by, without gradient."""

    weights_T: Tensor
    """0 where rejected, 1 where there is nothing to correct."""
    rejected_T: Tensor
    """bool: left out of the policy loss; False where a token does not count anyway."""
    ratio_T: Tensor
    """pi_learner / pi_engine of the token; 1 where nothing is known or nothing counts."""


@torch.no_grad()
def correct(
    old_logprobs_T: Tensor,
    engine_logprobs_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: CorrectionConfig,
) -> Correction:
    """Weights and rejections from the ratio r = pi_learner / pi_engine under the same weights.

    - `weight=token`: min(r, cap). Source: Yao et al., "Your Efficient RL Framework Secretly Brings
      You Off-Policy RL Training", 2025, fengyao.notion.site/off-policy-rl.
    - `weight=sequence`: min(prod_t r, cap) at every token of a completion. Source: the same, part
      II; Liu, Li et al., "When Speed Kills Stability", 2025, richardli.xyz/rl-collapse.
    - `reject=token`: r outside [low, high] is left out. With `weight=token` and a cap of at least
      `reject_high` it is IcePop, arXiv 2510.18855: M(r) = r inside, 0 outside.
    - `reject=sequence`: completions whose (prod_t r)^(1/|o|) lies outside are left out. Source:
      richardli.xyz/rl-collapse, part 3 (geometric rejection).

    What is left out keeps its place in the denominator of the aggregation, as in IcePop's 1/|y_i|
    over all tokens: otherwise what remains would count the more, the more is rejected.

    Args:
        old_logprobs_T: [T] log-probs by the learner under the weights that sampled.
        engine_logprobs_T: [T] log-probs by the engine; NaN where unknown, which is not corrected.
        sequences_T: [T] index of each token's completion.
        weights_T: [T] weight of each token in the loss; of interest is only where it is above 0.
        config: what is weighed and rejected, and the bounds.

    Returns:
        All of it of the type of `old_logprobs_T`, and within exp(-20) to exp(20).
    """
    counted_T = weights_T > 0
    known_T = counted_T & ~engine_logprobs_T.isnan()
    log_ratio_T = (old_logprobs_T - engine_logprobs_T).masked_fill(~known_T, 0.0)
    rejected_T = counted_T & _outside(log_ratio_T, sequences_T, known_T, config)
    factors_T = _weights(log_ratio_T, sequences_T, config).masked_fill(~counted_T, 1.0)
    return Correction(
        factors_T.masked_fill(rejected_T, 0.0), rejected_T, bounded(log_ratio_T).exp()
    )


def _weights(log_ratio_T: Tensor, sequences_T: Tensor, config: CorrectionConfig) -> Tensor:
    if config.weight is Level.none:
        return torch.ones_like(log_ratio_T)
    if config.weight is Level.sequence:
        log_ratio_T = sequence_sum(log_ratio_T, sequences_T)
    return bounded(log_ratio_T).exp().clamp(max=config.weight_cap)


def _outside(
    log_ratio_T: Tensor, sequences_T: Tensor, known_T: Tensor, config: CorrectionConfig
) -> Tensor:
    if config.reject is Level.none:
        return torch.zeros_like(known_T)
    if config.reject is Level.sequence:
        log_ratio_T = sequence_mean(log_ratio_T, sequences_T, known_T)
    low = math.log(config.reject_low) if config.reject_low else -math.inf
    return (log_ratio_T < low) | (log_ratio_T > math.log(config.reject_high))
