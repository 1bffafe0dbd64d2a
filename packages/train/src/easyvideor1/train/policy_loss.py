"""The loss of a micro-batch under the algorithm: correction, objective, divergence, entropy.

Puts the pure functions of `correction`, `objectives`, `offline_objectives` and `kl` together as the
config says and counts what is reported of them. Called by `learner.RankLearner` for every
micro-batch.
"""

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import AlgorithmConfig, OfflineTreatment
from easyvideor1.train.batches import Batch
from easyvideor1.train.correction import correct
from easyvideor1.train.head import TokenScores
from easyvideor1.train.kl import k3
from easyvideor1.train.objectives import OBJECTIVES, weighted_sum
from easyvideor1.train.offline_objectives import OfflineLoss, offline_loss
from easyvideor1.train.tally import Tally

# Legend: T target tokens of a micro-batch.


def policy_loss(
    scores: TokenScores,
    divergence_T: Tensor | None,
    batch: Batch,
    config: AlgorithmConfig,
    tally: Tally,
    *,
    kl_coefficient: float,
) -> Tensor:
    """[T] loss of each token: w L(r, A) + beta KL - eta H.

    r is the ratio to the weights that sampled, 1 by construction where those are the current ones;
    w the rollout correction, beta `kl_coefficient`, eta `algorithm.entropy_bonus`. Offline tokens
    have the loss of `algorithm.offline` in place of w L; imitated ones (`chord`) have nothing else.

    Args:
        scores: of the policy, with gradient.
        divergence_T: KL from the reference, with gradient; None where it is not part of the loss.
        batch: the targets with their advantages.
        config: the algorithm.
        tally: counts ratio, clipping, correction and mismatch.
        kl_coefficient: beta.
    """
    old_T = torch.where(batch.old_logprobs.isnan(), scores.logprobs.detach(), batch.old_logprobs)
    # Another policy's log-probs of its own answers are no matter of our engine's accuracy.
    engine_T = batch.sampler_logprobs.masked_fill(batch.is_offline, torch.nan)
    loss_T = _own_loss(scores.logprobs, old_T, engine_T, batch, config, tally)
    imitated_T = torch.zeros_like(batch.is_offline)
    if config.offline.treatment is OfflineTreatment.chord:
        imitated_T = batch.is_offline
    if divergence_T is not None:
        loss_T = loss_T + kl_coefficient * divergence_T.masked_fill(imitated_T, 0.0)
        tally.add("divergence", weighted_sum(divergence_T.detach(), batch.weights))
    if config.entropy_bonus:
        loss_T = loss_T - config.entropy_bonus * scores.entropy.masked_fill(imitated_T, 0.0)
    _count_mismatch(old_T, engine_T, batch, tally)
    return loss_T


def _own_loss(
    logprobs_T: Tensor,
    old_T: Tensor,
    engine_T: Tensor,
    batch: Batch,
    config: AlgorithmConfig,
    tally: Tally,
) -> Tensor:
    """[T] the corrected objective, and of offline tokens what `algorithm.offline` says."""
    loss = OBJECTIVES[config.objective.name](
        logprobs_T, old_T, batch.advantages, batch.examples, batch.weights, config.objective
    )
    correction = correct(old_T, engine_T, batch.examples, batch.weights, config.correction)
    loss_T = correction.weights_T * loss.loss_T
    offline = offline_loss(logprobs_T, batch.sampler_logprobs, batch.advantages, config.offline)
    own_weights_T = batch.weights
    if offline is not None:
        treated_T = batch.is_offline & offline.applies_T
        loss_T = torch.where(treated_T, offline.loss_T, loss_T)
        own_weights_T = batch.weights.masked_fill(treated_T, 0.0)
        _count_offline(offline, batch.weights.masked_fill(~treated_T, 0.0), tally)
    tally.add("objective_weight", own_weights_T.sum())
    for name, values_T in (
        ("ratio", loss.ratio_T),
        ("clip_low", loss.clipped_low_T.float()),
        ("clip_high", loss.clipped_high_T.float()),
        ("correction_weight", correction.weights_T),
        ("rejected", correction.rejected_T.float()),
    ):
        tally.add(name, weighted_sum(values_T, own_weights_T))
    return loss_T


def _count_offline(offline: OfflineLoss, weights_T: Tensor, tally: Tally) -> None:
    """Of the tokens whose loss is not the policy's own."""
    tally.add("treated_weight", weights_T.sum())
    tally.add("offline_ratio", weighted_sum(offline.ratio_T, weights_T))
    tally.add("offline_gradient", weighted_sum(offline.gradient_T, weights_T))


def _count_mismatch(old_T: Tensor, engine_T: Tensor, batch: Batch, tally: Tally) -> None:
    """How far the learner's policy is from the engine's that sampled: KL(engine || learner)."""
    sampled_T = ~engine_T.isnan() & (batch.weights > 0)
    ours_T, theirs_T = old_T[sampled_T], engine_T[sampled_T]
    tally.add("sampled_tokens", sampled_T.sum())
    tally.add("mismatch_kl", k3(theirs_T, ours_T).sum())
    tally.add_max("mismatch_max", (ours_T - theirs_T).abs())
