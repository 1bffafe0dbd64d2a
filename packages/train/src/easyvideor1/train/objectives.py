"""The loss of each token: log-probs and advantages in, losses out.

Pure functions over tensors, each with its formula and source; `OBJECTIVES` holds them by their name
in the config. How the losses of tokens become one number is `aggregation`'s, what the engine's
probabilities change about it `correction`'s, the divergence from the reference policy `kl`'s.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import ObjectiveConfig, ObjectiveName
from easyvideor1.train.ratios import bounded
from easyvideor1.train.sequences import sequence_mean

# Legend: T tokens, of all completions of a micro-batch, one after another.


class PolicyLoss(NamedTuple):
    """Loss of each token and what is logged about it."""

    loss_T: Tensor
    ratio_T: Tensor
    """pi / pi_old of the token, or of its completion (`gspo`, `gspo_token`); without gradient."""
    clipped_low_T: Tensor
    """True where the lower bound holds the token: it has no gradient (`cispo`: a raised weight)."""
    clipped_high_T: Tensor
    """True where an upper bound holds the token, that of the dual clip included."""


class PolicyObjective(Protocol):
    """The loss of each token of the policy."""

    def __call__(
        self,
        logprobs_T: Tensor,
        old_logprobs_T: Tensor,
        advantages_T: Tensor,
        sequences_T: Tensor,
        weights_T: Tensor,
        config: ObjectiveConfig,
    ) -> PolicyLoss:
        """The loss of each token, to be minimised.

        Args:
            logprobs_T: [T] log-probs under the weights being trained.
            old_logprobs_T: [T] log-probs under the weights that sampled, constant.
            advantages_T: [T] advantage of each token.
            sequences_T: [T] index of each token's completion, which lies in here as a whole.
            weights_T: [T] weight of each token in the loss; of interest is only where it is above
                0: there the token counts.
            config: the bounds.
        """
        ...


def clip(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """PPO's clipped surrogate, with separate bounds and an optional dual clip.

    -min(r A, clip(r, 1 - low, 1 + high) A) with r = pi / pi_old; with a dual clip c, where A < 0:
    -max(min(r A, clip(r, 1 - low, 1 + high) A), c A).

    Source: PPO, arXiv 1707.06347, equation 7; separate bounds ("clip-higher"): DAPO, arXiv
    2503.14476, equation 10; dual clip: Ye et al., arXiv 1912.09729, with c = 3.
    """
    ratio_T = bounded(logprobs_T - old_logprobs_T).exp()
    return _clipped(ratio_T, advantages_T, config)


def gspo(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """GSPO: -min(s A, clip(s, 1 - low, 1 + high) A) with s = (pi(o) / pi_old(o))^(1/|o|).

    s is the geometric mean of the ratios of those tokens of completion o that count. Every token
    carries the loss of its completion, so that the mean over its tokens is that loss. Advantages
    are the same within a completion.

    Source: GSPO, arXiv 2507.18071, equations 5 and 7, with low = 3e-4 and high = 4e-4 (section
    5.1) and no dual clip.
    """
    mean_T = sequence_mean(logprobs_T - old_logprobs_T, sequences_T, weights_T > 0)
    return _clipped(bounded(mean_T).exp(), advantages_T, config)


def gspo_token(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """GSPO-token: as GSPO with s_t = sg(s) pi / sg(pi), equal to s, with the token's own gradient.

    Advantages may differ within a completion. Where they do not, the loss of a completion and its
    gradient are those of GSPO.

    Source: GSPO, arXiv 2507.18071, equations 13 and 14.
    """
    log_ratio_T = (logprobs_T - old_logprobs_T).detach()
    mean_T = sequence_mean(log_ratio_T, sequences_T, weights_T > 0)
    ratio_T = (bounded(mean_T) + (logprobs_T - logprobs_T.detach())).exp()
    return _clipped(ratio_T, advantages_T, config)


def cispo(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """CISPO: -sg(clip(r, 1 - low, 1 + high)) A log pi with r = pi / pi_old.

    The weight is clipped, not the update: no token loses its gradient.

    Source: MiniMax-M1, arXiv 2506.13585, equations 4 and 5, without a lower bound. It does not tell
    its `high`; ScaleRL, arXiv 2510.13786, caps the weight, 1 + high here, at 5.
    """
    ratio_T = bounded(logprobs_T - old_logprobs_T).detach().exp()
    floor, cap = config.ratio_range
    return PolicyLoss(
        -ratio_T.clamp(floor, cap) * advantages_T * logprobs_T,
        ratio_T,
        clipped_low_T=ratio_T < floor,
        clipped_high_T=ratio_T > cap,
    )


def sapo(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """SAPO: -(4 / tau) sigmoid(tau (r - 1)) A with r = pi / pi_old.

    tau is `gate_positive` where A > 0, else `gate_negative`. On policy the gradient is -A; further
    off it fades smoothly, in place of a clip.

    Source: SAPO, arXiv 2511.20347, with tau = 1.0 and 1.05.
    """
    ratio_T = bounded(logprobs_T - old_logprobs_T).exp()
    tau_T = torch.full_like(ratio_T, config.gate_negative)
    tau_T = tau_T.masked_fill(advantages_T > 0, config.gate_positive)
    gate_T = 4 / tau_T * (tau_T * (ratio_T - 1)).sigmoid()
    never_T = torch.zeros_like(ratio_T, dtype=torch.bool)
    return PolicyLoss(-gate_T * advantages_T, ratio_T.detach(), never_T, never_T)


def unclipped(
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    advantages_T: Tensor,
    sequences_T: Tensor,
    weights_T: Tensor,
    config: ObjectiveConfig,
) -> PolicyLoss:
    """The importance-weighted surrogate without bounds: -r A with r = pi / pi_old.

    Source: LUFFY, arXiv 2504.14945, which trains without the clip; PPO, arXiv 1707.06347,
    equation 6.
    """
    ratio_T = bounded(logprobs_T - old_logprobs_T).exp()
    never_T = torch.zeros_like(ratio_T, dtype=torch.bool)
    return PolicyLoss(-ratio_T * advantages_T, ratio_T.detach(), never_T, never_T)


OBJECTIVES: dict[ObjectiveName, PolicyObjective] = {
    ObjectiveName.clip: clip,
    ObjectiveName.gspo: gspo,
    ObjectiveName.gspo_token: gspo_token,
    ObjectiveName.cispo: cispo,
    ObjectiveName.sapo: sapo,
    ObjectiveName.unclipped: unclipped,
}


def imitation(logprobs_T: Tensor) -> Tensor:
    """Supervised loss of each token: -log pi."""
    return -logprobs_T


def weighted_sum(values_T: Tensor, weights_T: Tensor) -> Tensor:
    """Sum of w_t v_t, with w the weights or the `aggregation.token_shares` of the tokens.

    The learner divides by a sum over the *global* batch, never by a micro-batch's own.
    """
    return (values_T * weights_T).sum()


def _clipped(ratio_T: Tensor, advantages_T: Tensor, config: ObjectiveConfig) -> PolicyLoss:
    floor, cap = config.ratio_range
    loss_T = -torch.minimum(ratio_T * advantages_T, ratio_T.clamp(floor, cap) * advantages_T)
    ratio_T = ratio_T.detach()
    too_low_T = (ratio_T < floor) & (advantages_T < 0)
    too_high_T = (ratio_T > cap) & (advantages_T > 0)
    if config.dual_clip is not None:
        far_too_high_T = (ratio_T > config.dual_clip) & (advantages_T < 0)
        loss_T = torch.where(far_too_high_T, -config.dual_clip * advantages_T, loss_T)
        too_high_T = too_high_T | far_too_high_T
    return PolicyLoss(loss_T, ratio_T, too_low_T, too_high_T)
