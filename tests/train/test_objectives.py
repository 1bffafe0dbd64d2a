import math

import pytest
import torch

from easyvideor1.train.algorithm_config import ObjectiveConfig, ObjectiveName
from easyvideor1.train.kl import k3
from easyvideor1.train.objectives import (
    OBJECTIVES,
    clipped_surrogate,
    imitation,
    weighted_sum,
)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_every_name_in_the_config_has_a_function():
    assert OBJECTIVES.keys() == set(ObjectiveName)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "low", "high"),
    [
        # inside the bounds: -rA, with gradient -rA in log space
        (1.0, 2.0, -2.0, -2.0, False, False),
        (1.1, -1.0, 1.1, 1.1, False, False),
        # too likely already, or too unlikely already: held at the bound, without gradient
        (1.5, 2.0, -2.56, 0.0, False, True),
        (0.5, -1.0, 0.8, 0.0, True, False),
        # beyond a bound, but moving back would lower the loss: not held
        (1.5, -1.0, 1.5, 1.5, False, False),
        (0.5, 2.0, -1.0, -1.0, False, False),
    ],
)
def test_the_clipped_surrogate_by_hand(ratio, advantage, loss, slope, low, high):
    logprobs = tensor(-1.0).requires_grad_()
    old = tensor(-1.0 - math.log(ratio))
    result = clipped_surrogate(logprobs, old, tensor(advantage), low=0.2, high=0.28)
    result.loss_T.sum().backward()
    assert result.loss_T.item() == pytest.approx(loss)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(slope)
    assert result.ratio_T.item() == pytest.approx(ratio)
    assert (bool(result.clipped_low_T), bool(result.clipped_high_T)) == (low, high)


def test_the_gradient_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    draw = lambda: torch.randn(200, dtype=torch.float64, generator=generator)  # noqa: E731
    logprobs, old, advantages = draw() * 0.2 - 1, draw() * 0.2 - 1, draw()

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        return clipped_surrogate(logprobs, old, advantages, low=0.2, high=0.28).loss_T

    assert torch.autograd.gradcheck(loss, logprobs.requires_grad_())
    assert torch.autograd.gradcheck(imitation, logprobs)


def test_at_a_ratio_of_one_the_gradient_is_that_of_reinforce():
    logprobs = tensor(-0.3, -2.0, -5.0).requires_grad_()
    advantages = tensor(1.0, -2.0, 0.5)
    clipped_surrogate(
        logprobs, logprobs.detach(), advantages, low=0.2, high=0.28
    ).loss_T.sum().backward()
    assert logprobs.grad is not None
    assert torch.equal(logprobs.grad, -advantages)


def test_a_hopeless_disagreement_stays_finite():
    logprobs = tensor(-1.0).requires_grad_()
    result = clipped_surrogate(logprobs, tensor(-2000.0), tensor(-1.0), low=0.2, high=0.28)
    result.loss_T.sum().backward()
    assert result.loss_T.isfinite().all()
    assert logprobs.grad is not None
    assert logprobs.grad.isfinite().all()


def test_the_config_gives_the_bounds():
    config = ObjectiveConfig(clip_low=0.1, clip_high=0.5)
    logprobs, old = tensor(0.0, 0.0), tensor(-1.0, 1.0)
    loss = OBJECTIVES[config.name](logprobs, old, tensor(1.0, -1.0), config).loss_T
    assert loss.tolist() == pytest.approx([-1.5, 0.9])


def test_the_token_mean_does_not_depend_on_how_the_tokens_are_cut():
    generator = torch.Generator().manual_seed(1)
    losses = torch.randn(37, dtype=torch.float64, generator=generator)
    weights = torch.rand(37, dtype=torch.float64, generator=generator)
    whole = weighted_sum(losses, weights) / weights.sum()
    for size in (1, 2, 4, 8):
        parts = zip(losses.split(size), weights.split(size), strict=True)
        total = sum(weighted_sum(loss, weight) for loss, weight in parts) / weights.sum()
        assert float(total) == pytest.approx(float(whole), abs=1e-12)


def test_k3_is_never_negative_and_its_mean_is_the_divergence():
    sampler = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    policy = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    estimates = k3(policy.log(), sampler.log())
    assert (estimates >= 0).all()
    divergence = (sampler * (sampler / policy).log()).sum()
    assert float((sampler * estimates).sum()) == pytest.approx(float(divergence))
    assert k3(tensor(-1.0), tensor(-1.0)).item() == 0.0
