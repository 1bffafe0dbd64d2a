import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.train.algorithm_config import KlConfig, KlController, KlEstimator, KlPlace
from easyvideor1.train.kl import ESTIMATORS, KlControl, abs_, full, k1, k2, k3

SAMPLED = [name for name in KlEstimator if name is not KlEstimator.full]
ADAPTIVE = KlConfig(
    place=KlPlace.loss,
    controller=KlController.adaptive,
    coefficient=0.04,
    target=0.1,
    horizon=10_000,
)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def logits(seed: int, size: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def test_every_name_in_the_config_has_a_function():
    assert ESTIMATORS.keys() == set(KlEstimator)


@pytest.mark.parametrize(
    ("estimator", "at_half", "at_minus_half"),
    [
        # d = 0.5 and d = -0.5
        (k1, 0.5, -0.5),
        (k2, 0.125, 0.125),
        (k3, 0.106531, 0.148721),  # e^-0.5 - 1 + 0.5; e^0.5 - 1 - 0.5
        (abs_, 0.5, 0.5),
    ],
)
def test_the_estimators_by_hand(estimator, at_half, at_minus_half):
    found = estimator(tensor(-1.0, -1.5, -2.0), tensor(-1.5, -1.0, -2.0))
    assert found.tolist() == pytest.approx([at_half, at_minus_half, 0.0], abs=1e-6)


def test_the_full_divergence_by_hand():
    policy, reference = tensor(0.5, 0.25, 0.25), tensor(0.25, 0.5, 0.25)
    # 0.5 log 2 - 0.25 log 2 + 0 = 0.25 log 2; and the same token once more, equal to itself
    found = full(torch.stack([policy, policy]).log(), torch.stack([reference, policy]).log())
    assert found.tolist() == pytest.approx([0.25 * math.log(2), 0.0])


def test_the_full_divergence_is_that_of_torch():
    policy = torch.stack([logits(seed) for seed in range(4)])
    reference = torch.stack([logits(seed) for seed in range(4, 8)])
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=policy),
        torch.distributions.Categorical(logits=reference),
    )
    found = full(policy.log_softmax(-1), reference.log_softmax(-1))
    assert torch.allclose(found, expected, rtol=1e-12)


def test_forbidden_tokens_are_no_part_of_the_divergence():
    allowed = torch.tensor([True, True, False, True, True])
    rows = [logits(seed).requires_grad_() for seed in (0, 1)]
    masked = [row.masked_fill(~allowed, -math.inf).log_softmax(-1)[None] for row in rows]
    without = [row[allowed].log_softmax(-1)[None] for row in rows]
    found = full(masked[0], masked[1])
    assert found.item() == pytest.approx(full(without[0], without[1]).item(), rel=1e-12)
    (slopes,) = torch.autograd.grad(found.sum(), rows[0])
    (expected,) = torch.autograd.grad(full(without[0], without[1]).sum(), rows[0])
    assert torch.allclose(slopes, expected, rtol=1e-12)


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((3, 4), (4,)), ((3, 4), (4, 3))])
def test_the_full_divergence_is_not_taken_over_tokens(shapes):
    with pytest.raises(ValueError, match=r"needs log-probs of shape \[tokens, vocabulary\]"):
        full(torch.zeros(shapes[0]), torch.zeros(shapes[1]))


@pytest.mark.parametrize("name", [KlEstimator.k1, KlEstimator.k3])
def test_unbiased_estimators_have_the_divergence_as_their_mean(name):
    policy, reference = logits(0).log_softmax(-1), logits(1).log_softmax(-1)
    divergence = full(policy[None], reference[None]).item()
    mean = (policy.exp() * ESTIMATORS[name](policy, reference)).sum().item()
    assert divergence > 0.1
    assert mean == pytest.approx(divergence, rel=1e-12)


def test_the_mean_of_k2_is_near_the_divergence_where_the_policies_are_near():
    policy = logits(0)
    near = (policy + 0.05 * logits(1)).log_softmax(-1)
    policy = policy.log_softmax(-1)
    divergence = full(policy[None], near[None]).item()
    assert (policy.exp() * k2(policy, near)).sum().item() == pytest.approx(divergence, rel=0.05)


def mean_gradient(name: KlEstimator, policy_logits: Tensor, reference_logits: Tensor) -> Tensor:
    """Mean over all tokens, by their probability, of the gradient of the estimate at a token."""
    policy_logits = policy_logits.clone().requires_grad_()
    policy = policy_logits.log_softmax(-1)
    # Where the token was drawn from stands still; only the estimate moves.
    estimate = policy.exp().detach() * ESTIMATORS[name](policy, reference_logits.log_softmax(-1))
    return torch.autograd.grad(estimate.sum(), policy_logits)[0]


def test_as_a_loss_each_pulls_along_a_gradient_of_its_own():
    policy, reference = logits(2), logits(3)

    def gradient_of_divergence(first: Tensor, second: Tensor, by: Tensor) -> Tensor:
        divergence = full(first.log_softmax(-1)[None], second.log_softmax(-1)[None])
        return torch.autograd.grad(divergence.sum(), by)[0]

    moved = policy.clone().requires_grad_()
    reverse = gradient_of_divergence(moved, reference, moved)
    forward = gradient_of_divergence(reference, moved, moved)
    assert not torch.allclose(reverse, forward, atol=0.01)
    assert torch.allclose(mean_gradient(KlEstimator.k2, policy, reference), reverse, atol=1e-12)
    assert torch.allclose(mean_gradient(KlEstimator.k3, policy, reference), forward, atol=1e-12)
    zero = torch.zeros_like(policy)
    assert torch.allclose(mean_gradient(KlEstimator.k1, policy, reference), zero, atol=1e-12)


@pytest.mark.parametrize("name", SAMPLED)
def test_gradients_are_those_of_finite_differences(name):
    policy, reference = (logits(0, 20) * 0.5).requires_grad_(), logits(1, 20) * 0.5
    assert torch.autograd.gradcheck(lambda x: ESTIMATORS[name](x, reference), policy)
    (slopes,) = torch.autograd.grad(ESTIMATORS[name](policy, reference).sum(), policy)
    step = 1e-6
    above, below = (ESTIMATORS[name](policy.detach() + sign * step, reference) for sign in (1, -1))
    assert torch.allclose(slopes, (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


def test_the_gradient_of_the_full_divergence_is_that_of_finite_differences():
    policy = torch.stack([logits(0), logits(1)]).requires_grad_()
    reference = torch.stack([logits(2), logits(3)]).log_softmax(-1)
    assert torch.autograd.gradcheck(lambda x: full(x.log_softmax(-1), reference), policy)


@pytest.mark.parametrize("name", KlEstimator)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hopeless_disagreement_stays_finite(name, dtype):
    policy = torch.tensor([[-1.0, -2000.0]], dtype=dtype).requires_grad_()
    reference = torch.tensor([[-2000.0, -1.0]], dtype=dtype)
    found = ESTIMATORS[name](policy, reference)
    (slopes,) = torch.autograd.grad(found.sum(), policy)
    assert found.isfinite().all()
    assert found.dtype == dtype
    assert slopes.isfinite().all()


def test_k3_keeps_its_precision_where_policies_are_near():
    # In float32, exp(d) - 1 - d would be rounding error alone.
    near = torch.tensor([1e-3, -1e-3, 1e-4])
    found = k3(torch.zeros(3), near)
    assert (found >= 0).all()
    assert found.tolist() == pytest.approx(
        (near.double().expm1() - near.double()).tolist(), rel=2e-3
    )


@pytest.mark.parametrize(
    ("kl", "num_completions", "factor"),
    [
        # c (1 + clip(kl / 0.1 - 1, -0.2, 0.2) n / 10000)
        (0.1, 1000, 1.0),
        (0.105, 1000, 1.005),
        (0.095, 1000, 0.995),
        (0.5, 1000, 1.02),
        (0.0, 1000, 0.98),
        (-0.3, 1000, 0.98),
        (0.5, 64, 1.00128),
        (math.nan, 1000, 1.0),
        (math.inf, 1000, 1.0),
    ],
)
def test_the_adaptive_coefficient_by_hand(kl, num_completions, factor):
    control = KlControl(ADAPTIVE)
    control.update(kl, num_completions)
    assert control.coefficient == pytest.approx(0.04 * factor, rel=1e-12)


def test_the_adaptive_coefficient_finds_the_target():
    """With a divergence that falls as the coefficient rises, it settles where kl is the target."""
    control = KlControl(replace(ADAPTIVE, coefficient=1.0))
    for _ in range(3000):
        control.update(0.02 / control.coefficient, 512)
    assert control.coefficient == pytest.approx(0.2, rel=1e-3)


def test_a_fixed_coefficient_stays():
    control = KlControl(replace(ADAPTIVE, controller=KlController.fixed))
    control.update(5.0, 100_000)
    assert control.coefficient == 0.04
    control.load_state({"coefficient": 9.0})
    assert control.coefficient == 0.04


def test_the_coefficient_goes_on_from_a_checkpoint():
    control, resumed = KlControl(ADAPTIVE), KlControl(ADAPTIVE)
    control.update(0.5, 1000)
    resumed.load_state(json.loads(json.dumps(control.state())))
    for each in (control, resumed):
        each.update(0.2, 700)
    assert resumed.coefficient == control.coefficient != 0.04


def test_a_horizon_shorter_than_a_step_is_refused():
    control = KlControl(replace(ADAPTIVE, horizon=100))
    control.update(0.1, 499)
    with pytest.raises(UserError, match=r"algorithm.kl.horizon must be above 0.2 times .* \(500\)"):
        control.update(0.1, 500)
