"""The loss of tokens that another policy chose: what LUFFY and CHORD make of them.

Pure functions over tensors beside those of `objectives`, each with its formula and source.
`offline_loss` chooses among them as `algorithm.offline` says; `policy_loss` puts the result in the
place of the policy's own objective.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import OfflineConfig, OfflineTreatment
from easyvideor1.train.objectives import imitation
from easyvideor1.train.ratios import bounded

# Legend: T tokens, of all completions of a micro-batch, one after another.


class OfflineLoss(NamedTuple):
    """Loss of each token, were it an offline one, and what is logged about it."""

    loss_T: Tensor
    ratio_T: Tensor
    """What the advantage is multiplied by; the probability itself in imitation. No gradient."""
    gradient_T: Tensor
    """How strongly log pi is pushed up, per unit of advantage. No gradient itself."""
    applies_T: Tensor
    """bool: False where the policy's own objective stays."""


def shaped(logprobs_T: Tensor, advantages_T: Tensor, *, gamma: float) -> OfflineLoss:
    """LUFFY's policy shaping: -f(pi) A with f(x) = x / (x + gamma), no clip, gradient through f.

    d f / d log pi = f (1 - f), which is largest where pi = gamma: tokens that the policy finds
    unlikely keep a gradient that pi itself would not give them. The probability of who wrote the
    trajectory is taken as 1.

    Source: LUFFY, arXiv 2504.14945, "policy shaping", gamma = 0.1 (`p_div_p_0.1` of its code).

    Args:
        logprobs_T: [T] log-probs under the weights being trained.
        advantages_T: [T] advantage of each token.
        gamma: of the shaping.
    """
    ratio_T = (logprobs_T - math.log(gamma)).sigmoid()
    weight_T = ratio_T.detach()
    return OfflineLoss(
        -ratio_T * advantages_T,
        weight_T,
        gradient_T=weight_T * (1 - weight_T),
        applies_T=torch.ones_like(weight_T, dtype=torch.bool),
    )


def truncated(
    logprobs_T: Tensor, behaviour_logprobs_T: Tensor, advantages_T: Tensor, *, cap: float
) -> OfflineLoss:
    """Importance sampling from the policy mu that wrote the trajectory: -min(pi / mu, cap) A.

    A token at the cap has no gradient.

    Source: LUFFY, arXiv 2504.14945, "mixed-policy GRPO", and its code (`target_probs`,
    `off_max_clip`).

    Args:
        logprobs_T: [T] log-probs under the weights being trained.
        behaviour_logprobs_T: [T] log-probs under mu; NaN where unknown, which does not apply.
        advantages_T: [T] advantage of each token.
        cap: largest ratio.
    """
    unknown_T = behaviour_logprobs_T.isnan()
    behaviour_T = torch.where(unknown_T, logprobs_T.detach(), behaviour_logprobs_T)
    ratio_T = bounded(logprobs_T - behaviour_T).exp()
    weight_T = ratio_T.detach().clamp(max=cap)
    return OfflineLoss(
        -ratio_T.clamp(max=cap) * advantages_T,
        weight_T,
        gradient_T=weight_T.masked_fill(ratio_T.detach() > cap, 0.0),
        applies_T=~unknown_T,
    )


def expert(logprobs_T: Tensor, *, phi: bool, phi_detach: bool) -> OfflineLoss:
    """CHORD's imitation: -log pi, or -phi log pi with phi = p (1 - p) and p = pi of the token.

    phi is small where a token is certain already, and where it would disrupt the policy. It is a
    constant, or has a gradient of its own: with it, d loss / d log pi is -phi (1 + (1 - 2p) log p /
    (1 - p)).

    Source: CHORD, arXiv 2508.11408, and its code, where phi is detached (Trinity-RFT,
    `chord_policy_loss.py`); the first version in ms-swift left the gradient in.

    Args:
        logprobs_T: [T] log-probs under the weights being trained.
        phi: whether tokens are weighed.
        phi_detach: whether the weight is a constant.
    """
    probabilities_T = logprobs_T.exp()
    weight_T = torch.ones_like(logprobs_T)
    if phi:
        weight_T = probabilities_T * (1 - probabilities_T)
    if phi_detach:
        weight_T = weight_T.detach()
    return OfflineLoss(
        weight_T * imitation(logprobs_T),
        probabilities_T.detach(),
        gradient_T=_slope(probabilities_T.detach(), logprobs_T.detach(), phi, phi_detach),
        applies_T=torch.ones_like(logprobs_T, dtype=torch.bool),
    )


def _slope(probabilities_T: Tensor, logprobs_T: Tensor, phi: bool, phi_detach: bool) -> Tensor:
    """-d loss / d log pi of `expert`."""
    if not phi:
        return torch.ones_like(logprobs_T)
    weight_T = probabilities_T * (1 - probabilities_T)
    if phi_detach:
        return weight_T
    return weight_T + probabilities_T * (1 - 2 * probabilities_T) * logprobs_T


def offline_loss(
    logprobs_T: Tensor,
    behaviour_logprobs_T: Tensor,
    advantages_T: Tensor,
    config: OfflineConfig,
) -> OfflineLoss | None:
    """The loss that the config gives to offline tokens; None where they are the policy's own.

    Args:
        logprobs_T: [T] log-probs under the weights being trained.
        behaviour_logprobs_T: [T] log-probs under the policy that wrote them; NaN where unknown.
        advantages_T: [T] advantage of each token.
        config: the treatment.
    """
    if config.treatment is OfflineTreatment.chord:
        return expert(logprobs_T, phi=config.phi, phi_detach=config.phi_detach)
    base = None
    if config.treatment is OfflineTreatment.luffy:
        base = shaped(logprobs_T, advantages_T, gamma=config.gamma)
    if not config.behaviour_logprobs:
        return base
    known = truncated(logprobs_T, behaviour_logprobs_T, advantages_T, cap=config.behaviour_cap)
    if base is None:
        return known
    chosen = (
        torch.where(known.applies_T, ours_T, theirs_T)
        for ours_T, theirs_T in zip(known[:3], base[:3], strict=True)
    )
    return OfflineLoss(*chosen, applies_T=base.applies_T)


def imitation_share(num_updates: int, config: OfflineConfig) -> float:
    """CHORD's mu after so many updates: up to the peak, then down a half cosine to the valley.

    Source: CHORD, arXiv 2508.11408, and `mu_schedule_function` of its code.

    Args:
        num_updates: optimizer updates done in this phase.
        config: peak, valley and the two lengths.
    """
    if num_updates < config.mu_warmup_updates:
        return config.mu_peak * num_updates / config.mu_warmup_updates
    done = num_updates - config.mu_warmup_updates
    if done >= config.mu_decay_updates:
        return config.mu_valley
    left = (1 + math.cos(math.pi * done / config.mu_decay_updates)) / 2
    return config.mu_valley + (config.mu_peak - config.mu_valley) * left
