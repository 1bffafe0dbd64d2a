"""The losses once more: plain loops over single numbers, written from the formulas of the papers.

`frozen` are the log-probs where a formula stops the gradient, so that a finite difference moves
everything else.
"""

import math
from collections.abc import Sequence

from easyvideor1.train.algorithm_config import (
    Aggregation,
    CorrectionConfig,
    Level,
    ObjectiveConfig,
    ObjectiveName,
    OfflineConfig,
    OfflineTreatment,
)


def token_losses(
    logprobs: Sequence[float],
    frozen: Sequence[float],
    old: Sequence[float],
    advantages: Sequence[float],
    weights: Sequence[float],
    config: ObjectiveConfig,
) -> list[float]:
    """The loss of each token of one completion."""
    losses = []
    for t, advantage in enumerate(advantages):
        ratio = math.exp(logprobs[t] - old[t])
        if config.name is ObjectiveName.cispo:
            assert config.clip_high is not None
            weight = min(math.exp(frozen[t] - old[t]), 1 + config.clip_high)
            if config.clip_low is not None:
                weight = max(weight, 1 - config.clip_low)
            losses.append(-weight * advantage * logprobs[t])
            continue
        if config.name is ObjectiveName.sapo:
            tau = config.gate_positive if advantage > 0 else config.gate_negative
            losses.append(-4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage)
            continue
        if config.name is ObjectiveName.unclipped:
            losses.append(-ratio * advantage)
            continue
        if config.name is ObjectiveName.gspo:
            ratio = sequence_ratio(logprobs, old, weights)
        if config.name is ObjectiveName.gspo_token:
            ratio = sequence_ratio(frozen, old, weights) * math.exp(logprobs[t] - frozen[t])
        losses.append(-clipped_objective(ratio, advantage, config))
    return losses


def sequence_ratio(logprobs: Sequence[float], old: Sequence[float], weights: Sequence[float]):
    """GSPO, equation 7: the root of the product of the ratios."""
    product, length = 1.0, 0
    for logprob, old_logprob, weight in zip(logprobs, old, weights, strict=True):
        if weight > 0:
            product *= math.exp(logprob) / math.exp(old_logprob)
            length += 1
    return product ** (1 / length) if length else 1.0


def clipped_objective(ratio: float, advantage: float, config: ObjectiveConfig) -> float:
    """PPO, equation 7, and the dual clip of arXiv 1912.09729."""
    assert config.clip_low is not None and config.clip_high is not None
    clipped = max(1 - config.clip_low, min(1 + config.clip_high, ratio))
    objective = min(ratio * advantage, clipped * advantage)
    if config.dual_clip is not None and advantage < 0:
        objective = max(objective, config.dual_clip * advantage)
    return objective


def step_loss(
    losses: Sequence[Sequence[float]],
    weights: Sequence[Sequence[float]],
    aggregation: Aggregation,
    constant_length: int,
) -> float:
    """The losses of the tokens of all completions of a step as one."""
    counted = [i for i, row in enumerate(weights) if any(row)]
    total = 0.0
    for i in counted:
        inside = 0.0
        for loss, weight in zip(losses[i], weights[i], strict=True):
            inside += weight * loss
        if aggregation is Aggregation.sequence_mean:
            inside /= sum(weights[i])
        if aggregation is Aggregation.constant:
            inside /= constant_length
        total += inside
    if aggregation is Aggregation.token_mean:
        return total / sum(sum(row) for row in weights)
    return total / len(counted)


def correction_weights(
    old: Sequence[float],
    engine: Sequence[float],
    weights: Sequence[float],
    config: CorrectionConfig,
) -> list[float]:
    """What the losses of one completion are multiplied by; 1 where a token does not count."""
    ratios = [
        math.exp(o - e) if w > 0 and not math.isnan(e) else None
        for o, e, w in zip(old, engine, weights, strict=True)
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    mean = math.prod(known) ** (1 / len(known)) if known else 1.0
    factors = []
    for ratio, weight in zip(ratios, weights, strict=True):
        own = 1.0 if ratio is None else ratio
        factor = {Level.none: 1.0, Level.token: own, Level.sequence: math.prod(known)}[
            config.weight
        ]
        factor = min(factor, config.weight_cap)
        judged = {Level.none: 1.0, Level.token: own, Level.sequence: mean}[config.reject]
        if not config.reject_low <= judged <= config.reject_high:
            factor = 0.0
        factors.append(factor if weight > 0 else 1.0)
    return factors


def offline_losses(
    logprobs: Sequence[float],
    frozen: Sequence[float],
    behaviour: Sequence[float],
    advantages: Sequence[float],
    config: OfflineConfig,
) -> list[float | None]:
    """The loss of each offline token; None where it is the policy's own.

    Behaviour log-probs are NaN where unknown.
    """
    losses: list[float | None] = []
    for t, advantage in enumerate(advantages):
        p = math.exp(logprobs[t])
        if config.treatment is OfflineTreatment.chord:
            held = math.exp(frozen[t]) if config.phi_detach else p
            losses.append(-(held * (1 - held) if config.phi else 1.0) * logprobs[t])
        elif config.behaviour_logprobs and not math.isnan(behaviour[t]):
            losses.append(-min(p / math.exp(behaviour[t]), config.behaviour_cap) * advantage)
        elif config.treatment is OfflineTreatment.luffy:
            losses.append(-p / (p + config.gamma) * advantage)
        else:
            losses.append(None)
    return losses
