import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from easyvideor1.train.aggregation import denominator_part, token_shares
from easyvideor1.train.algorithm_config import (
    Aggregation,
    CorrectionConfig,
    Level,
    ObjectiveConfig,
    ObjectiveName,
)
from easyvideor1.train.correction import correct
from easyvideor1.train.kl import k3
from easyvideor1.train.objectives import OBJECTIVES, weighted_sum
from tests.train.algorithms.flat_tokens import FlatTokens, draw
from tests.train.algorithms.slow_losses import correction_weights, step_loss, token_losses

CONSTANT_LENGTH = 16

# Bounds that hold a good part of the tokens.
OBJECTIVE_CONFIGS = {
    ObjectiveName.clip: ObjectiveConfig(clip_low=0.2, clip_high=0.2, dual_clip=1.4),
    ObjectiveName.gspo: ObjectiveConfig(name=ObjectiveName.gspo, clip_low=0.05, clip_high=0.06),
    ObjectiveName.gspo_token: ObjectiveConfig(
        name=ObjectiveName.gspo_token, clip_low=0.05, clip_high=0.06
    ),
    ObjectiveName.cispo: ObjectiveConfig(name=ObjectiveName.cispo, clip_low=None, clip_high=0.2),
    ObjectiveName.sapo: ObjectiveConfig(name=ObjectiveName.sapo),
    ObjectiveName.unclipped: ObjectiveConfig(name=ObjectiveName.unclipped),
}
CORRECTION = CorrectionConfig(
    weight=Level.sequence, weight_cap=1.5, reject=Level.token, reject_low=0.7, reject_high=1.4
)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def aggregated(
    tokens: FlatTokens,
    micro_batches: Iterator[FlatTokens],
    objective: ObjectiveConfig,
    aggregation: Aggregation,
) -> tuple[float, Tensor]:
    """The loss of a step and its gradient by the log-prob of each token of `tokens`."""
    total, denominator = torch.zeros((), dtype=torch.float64), 0.0
    for batch in micro_batches:
        fixed = (batch.sequences_T, batch.weights_T)
        correction = correct(batch.old_logprobs_T, batch.engine_logprobs_T, *fixed, CORRECTION)
        loss = OBJECTIVES[objective.name](
            batch.logprobs_T, batch.old_logprobs_T, batch.advantages_T, *fixed, objective
        )
        kl_T = k3(batch.logprobs_T, batch.reference_logprobs_T)
        loss_T = loss.loss_T * correction.weights_T + 0.04 * kl_T
        total = total + weighted_sum(
            loss_T, token_shares(batch.weights_T, batch.sequences_T, aggregation)
        )
        denominator += denominator_part(
            batch.weights_T, batch.sequences_T, aggregation, CONSTANT_LENGTH
        ).item()
    loss = total / denominator
    return loss.item(), torch.autograd.grad(loss, tokens.logprobs_T)[0]


@pytest.mark.parametrize(
    ("aggregation", "shares", "denominator", "loss"),
    [
        # Losses 1 2 3 | 10 20 | 5, weights 1 1 0 | 0.5 1.5 | 1
        # (1 + 2 + 5 + 30 + 5) / (1 + 1 + 0.5 + 1.5 + 1) = 43 / 5
        (Aggregation.token_mean, [1, 1, 0, 0.5, 1.5, 1], 5, 8.6),
        # ((1 + 2) / 2 + (5 + 30) / 2 + 5 / 1) / 3 = 24 / 3
        (Aggregation.sequence_mean, [0.5, 0.5, 0, 0.25, 0.75, 1], 3, 8.0),
        # (1 + 2 + 5 + 30 + 5) / (3 * 16) = 43 / 48
        (Aggregation.constant, [1, 1, 0, 0.5, 1.5, 1], 48, 0.895833),
    ],
)
def test_by_hand(aggregation, shares, denominator, loss):
    losses, weights = tensor(1, 2, 3, 10, 20, 5), tensor(1, 1, 0, 0.5, 1.5, 1)
    # Any integers name a completion, in any order.
    sequences = torch.tensor([7, 7, 7, -1, -1, 4])
    found = token_shares(weights, sequences, aggregation)
    assert found.tolist() == shares
    part = denominator_part(weights, sequences, aggregation, CONSTANT_LENGTH)
    assert (part.item(), part.shape, part.dtype) == (denominator, (), torch.float64)
    assert (weighted_sum(losses, found) / part).item() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("aggregation", Aggregation)
def test_a_completion_of_which_no_token_counts_is_none(aggregation):
    weights, sequences = tensor(0, 0, 1, 1), torch.tensor([-1, -1, 0, 0])
    assert token_shares(weights, sequences, aggregation)[:2].tolist() == [0, 0]
    without = weights[2:], sequences[2:], aggregation, CONSTANT_LENGTH
    assert denominator_part(weights, sequences, aggregation, CONSTANT_LENGTH) == denominator_part(
        *without
    )
    # A micro-batch of padding alone adds nothing, and is no division by zero.
    idle = weights[:2], sequences[:2]
    assert token_shares(*idle, aggregation).tolist() == [0, 0]
    assert denominator_part(*idle, aggregation, CONSTANT_LENGTH) == 0


@pytest.mark.parametrize("aggregation", Aggregation)
@pytest.mark.parametrize("name", ObjectiveName)
def test_the_loss_of_a_step_is_that_of_a_plain_loop(name, aggregation):
    tokens, config = draw(11).trained(), OBJECTIVE_CONFIGS[name]
    fast, _ = aggregated(tokens, iter([tokens]), config, aggregation)
    losses, weights = [], []
    for index in tokens.sequences_T.unique().tolist():
        own = tokens.of([index])
        old, engine, logprobs, reference, own_weights = (
            values.tolist()
            for values in (
                own.old_logprobs_T,
                own.engine_logprobs_T,
                own.logprobs_T,
                own.reference_logprobs_T,
                own.weights_T,
            )
        )
        factors = correction_weights(old, engine, own_weights, CORRECTION)
        policy = token_losses(
            logprobs, logprobs, old, own.advantages_T.tolist(), own_weights, config
        )
        penalties = [
            math.exp(theirs - ours) - 1 - (theirs - ours)
            for ours, theirs in zip(logprobs, reference, strict=True)
        ]
        losses.append(
            [
                factor * loss + 0.04 * penalty
                for factor, loss, penalty in zip(factors, policy, penalties, strict=True)
            ]
        )
        weights.append(own_weights)
    slow = step_loss(losses, weights, aggregation, CONSTANT_LENGTH)
    assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("aggregation", Aggregation)
@pytest.mark.parametrize("name", ObjectiveName)
def test_neither_micro_batches_nor_ranks_matter(name, aggregation, size, num_ranks):
    """All of it: objective, correction, divergence and aggregation."""
    tokens = draw(12).trained()
    whole, gradient = aggregated(tokens, iter([tokens]), OBJECTIVE_CONFIGS[name], aggregation)
    micro_batches = (
        batch for rank in range(num_ranks) for batch in tokens.micro_batches(size, rank, num_ranks)
    )
    loss, parts = aggregated(tokens, micro_batches, OBJECTIVE_CONFIGS[name], aggregation)
    assert loss == pytest.approx(whole, rel=0, abs=1e-9)
    assert gradient.abs().max() > 1e-4
    assert torch.allclose(parts, gradient, rtol=0, atol=1e-9)


@pytest.mark.parametrize("aggregation", Aggregation)
def test_the_width_of_the_padding_is_nowhere_in_it(aggregation):
    """Dr. GRPO's constant is a constant, not the longest completion of a micro-batch."""
    weights, sequences = tensor(1, 1, 1), torch.tensor([0, 0, 1])
    padded = tensor(1, 1, 0, 0, 0, 1, 0, 0, 0, 0), torch.tensor([0] * 5 + [1] * 5)
    assert denominator_part(*padded, aggregation, CONSTANT_LENGTH) == denominator_part(
        weights, sequences, aggregation, CONSTANT_LENGTH
    )
    shares = token_shares(*padded, aggregation)
    assert shares[shares > 0].tolist() == token_shares(weights, sequences, aggregation).tolist()


def test_the_denominator_of_float32_weights_is_added_up_in_float64():
    # 2^24 + 1 is no float32: a step of more tokens than that would lose some.
    weights = torch.tensor([2.0**24, 1.0])
    part = denominator_part(weights, torch.tensor([0, 0]), Aggregation.token_mean, 1)
    assert part.item() == 2**24 + 1


def test_gspo_by_the_mean_over_tokens_is_the_mean_over_completions():
    """Whatever the lengths: `sequence_mean` of equal losses is the loss."""
    tokens, config = draw(13), OBJECTIVE_CONFIGS[ObjectiveName.gspo]
    loss_T = OBJECTIVES[config.name](
        tokens.logprobs_T,
        tokens.old_logprobs_T,
        tokens.advantages_T,
        tokens.sequences_T,
        tokens.weights_T,
        config,
    ).loss_T
    per_completion = [
        loss_T[tokens.sequences_T == index][0].item()
        for index in tokens.sequences_T.unique().tolist()
        if tokens.weights_T[tokens.sequences_T == index].any()
    ]
    shares = token_shares(tokens.weights_T, tokens.sequences_T, Aggregation.sequence_mean)
    assert weighted_sum(loss_T, shares).item() == pytest.approx(sum(per_completion), rel=1e-12)
