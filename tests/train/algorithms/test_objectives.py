import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import ObjectiveConfig, ObjectiveName
from easyvideor1.train.objectives import OBJECTIVES, PolicyLoss, imitation, weighted_sum
from tests.train.algorithms.flat_tokens import FlatTokens, draw
from tests.train.algorithms.slow_losses import token_losses

DAPO = ObjectiveConfig(clip_low=0.2, clip_high=0.28)
DUAL = replace(DAPO, dual_clip=3.0)
GSPO = ObjectiveConfig(name=ObjectiveName.gspo, clip_low=3e-4, clip_high=4e-4)
GSPO_TOKEN = replace(GSPO, name=ObjectiveName.gspo_token)
CISPO = ObjectiveConfig(name=ObjectiveName.cispo, clip_low=None, clip_high=4.0)
SAPO = ObjectiveConfig(name=ObjectiveName.sapo)
UNCLIPPED = ObjectiveConfig(name=ObjectiveName.unclipped)

# Bounds that clip a good part of random tokens, from both sides.
TIGHT = [
    pytest.param(DAPO, id="clip"),
    pytest.param(replace(DAPO, dual_clip=1.4), id="dual_clip"),
    pytest.param(replace(GSPO, clip_low=0.05, clip_high=0.06), id="gspo"),
    pytest.param(replace(GSPO_TOKEN, clip_low=0.05, clip_high=0.06), id="gspo_token"),
    pytest.param(replace(CISPO, clip_high=0.2), id="cispo"),
    pytest.param(replace(CISPO, clip_low=0.2, clip_high=0.2), id="cispo_low"),
    pytest.param(SAPO, id="sapo"),
    pytest.param(UNCLIPPED, id="unclipped"),
]


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def of(tokens: FlatTokens, config: ObjectiveConfig) -> PolicyLoss:
    return OBJECTIVES[config.name](
        tokens.logprobs_T,
        tokens.old_logprobs_T,
        tokens.advantages_T,
        tokens.sequences_T,
        tokens.weights_T,
        config,
    )


def one_token(ratio: float, advantage: float, config: ObjectiveConfig, logprob: float = -1.0):
    """Loss, its derivative by the log-prob and whether a bound holds it, of a token on its own."""
    logprobs = tensor(logprob).requires_grad_()
    old = tensor(logprob - math.log(ratio))
    result = OBJECTIVES[config.name](
        logprobs, old, tensor(advantage), torch.tensor([0]), tensor(1.0), config
    )
    (slope,) = torch.autograd.grad(result.loss_T.sum(), logprobs)
    assert result.ratio_T.item() == pytest.approx(ratio)
    assert not result.ratio_T.requires_grad
    bounds = bool(result.clipped_low_T), bool(result.clipped_high_T)
    return result.loss_T.item(), slope.item(), *bounds


def test_every_name_in_the_config_has_a_function():
    assert OBJECTIVES.keys() == set(ObjectiveName)


@pytest.mark.parametrize(
    ("ratio", "advantage", "config", "loss", "slope", "low", "high"),
    [
        # inside the bounds: -rA, with gradient -rA in log space
        (1.0, 2.0, DAPO, -2.0, -2.0, False, False),
        (1.1, -1.0, DAPO, 1.1, 1.1, False, False),
        # too likely already, or too unlikely already: held at the bound, without gradient
        (1.5, 2.0, DAPO, -2.56, 0.0, False, True),
        (0.5, -1.0, DAPO, 0.8, 0.0, True, False),
        # beyond a bound, but moving back would lower the loss: not held
        (1.5, -1.0, DAPO, 1.5, 1.5, False, False),
        (0.5, 2.0, DAPO, -1.0, -1.0, False, False),
        (4.0, -2.0, DAPO, 8.0, 8.0, False, False),
        # the dual clip: a bad token that became likely costs at most 3 |A|
        (4.0, -2.0, DUAL, 6.0, 0.0, False, True),
        (2.5, -2.0, DUAL, 5.0, 5.0, False, False),
        (4.0, 2.0, DUAL, -2.56, 0.0, False, True),
        (0.5, -1.0, DUAL, 0.8, 0.0, True, False),
        # no bounds at all
        (4.0, 2.0, UNCLIPPED, -8.0, -8.0, False, False),
        (0.1, -1.0, UNCLIPPED, 0.1, 0.1, False, False),
    ],
)
def test_the_clipped_surrogate_by_hand(ratio, advantage, config, loss, slope, low, high):
    result = one_token(ratio, advantage, config)
    assert result == (pytest.approx(loss), pytest.approx(slope), low, high)


@pytest.mark.parametrize(
    ("ratio", "advantage", "logprob", "config", "loss", "slope", "low", "high"),
    [
        # -r A log pi, with gradient -r A
        (2.0, 1.0, -1.0, CISPO, 2.0, -2.0, False, False),
        (0.1, -3.0, -2.0, CISPO, -0.6, 0.3, False, False),
        # the weight ends at 1 + 4; the gradient does not
        (8.0, 1.0, -1.0, CISPO, 5.0, -5.0, False, True),
        (8.0, -2.0, -0.5, CISPO, -5.0, 10.0, False, True),
        # with a lower bound it begins at 1 - 0.2
        (0.1, -3.0, -2.0, replace(CISPO, clip_low=0.2), -4.8, 2.4, True, False),
    ],
)
def test_cispo_by_hand(ratio, advantage, logprob, config, loss, slope, low, high):
    result = one_token(ratio, advantage, config, logprob)
    assert result == (pytest.approx(loss), pytest.approx(slope), low, high)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        # on policy: 4/tau sigmoid(0) = 2/tau, and a gradient of -A whatever tau is
        (1.0, 1.0, -2.0, -1.0),
        (1.0, -1.0, 1.904762, 1.0),  # 2 / 1.05
        # sigmoid(1) = 0.731059; its derivative 0.196612, times 4 r = 8
        (2.0, 1.0, -2.924234, -1.572895),
        # sigmoid(1.05) = 0.740775; 4 / 1.05 of it; derivative 0.192027, times 4 r = 8
        (2.0, -1.0, 2.821998, 1.536221),
        # sigmoid(-0.5) = 0.377541; derivative 0.235004, times 4 r = 2, times A = 3
        (0.5, 3.0, -4.530488, -1.410022),
        # no advantage, no loss
        (0.5, 0.0, 0.0, 0.0),
    ],
)
def test_sapo_by_hand(ratio, advantage, loss, slope):
    result = one_token(ratio, advantage, SAPO)
    assert result == (pytest.approx(loss, abs=2e-6), pytest.approx(slope, abs=2e-6), False, False)


def by_hand(config: ObjectiveConfig) -> tuple[PolicyLoss, Tensor]:
    """Four completions; the last token of the second does not count, whatever its ratio."""
    ratios = tensor(1.0006, 1.0, 1.001, 1.001, 9.0, 0.999, 0.999)
    old = tensor(-1.0, -2.0, -0.5, -0.5, -5.0, -3.0, -3.0)
    logprobs = (old + ratios.log()).requires_grad_()
    advantages = tensor(2.0, 2.0, 1.0, 1.0, 1.0, -2.0, 1.0)
    weights = tensor(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0)
    sequences = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    result = OBJECTIVES[config.name](logprobs, old, advantages, sequences, weights, config)
    first_tokens = result.loss_T[[0, 2, 5, 6]]
    (slopes,) = torch.autograd.grad(first_tokens.sum(), logprobs)
    return result, slopes


def test_gspo_by_hand():
    result, slopes = by_hand(GSPO)
    # sqrt(1.0006 * 1) = 1.00029996: inside 1 + 4e-4, -s A at each of the two tokens.
    # 1.001 > 1.0004 with A > 0: -1.0004; 0.999 < 0.9997 with A = -2: 2 * 0.9997; with A = 1: -0.999
    expected = [-2.00059991] * 2 + [-1.0004] * 3 + [1.9994, -0.999]
    assert result.loss_T.tolist() == pytest.approx(expected, abs=1e-8)
    # -s A / 2 at both tokens of the first; nothing where a bound holds; -s A of the single token
    assert slopes.tolist() == pytest.approx(
        [-1.00029996, -1.00029996, 0, 0, 0, 0, -0.999], abs=1e-8
    )
    assert result.ratio_T.tolist() == pytest.approx(
        [1.00029996] * 2 + [1.001] * 3 + [0.999] * 2, abs=1e-8
    )
    assert result.clipped_low_T.tolist() == [False] * 5 + [True, False]
    assert result.clipped_high_T.tolist() == [False] * 2 + [True] * 3 + [False] * 2


def test_gspo_token_by_hand():
    whole, _ = by_hand(GSPO)
    result, slopes = by_hand(GSPO_TOKEN)
    # The same numbers; but the loss of a token is moved by that token alone.
    assert torch.allclose(result.loss_T, whole.loss_T, rtol=1e-14)
    assert slopes.tolist() == pytest.approx([-2.00059991, 0, 0, 0, 0, 0, -0.999], abs=1e-8)
    assert torch.equal(result.clipped_high_T, whole.clipped_high_T)
    assert torch.equal(result.clipped_low_T, whole.clipped_low_T)


def test_imitation_by_hand():
    assert imitation(tensor(-1.5, -0.25)).tolist() == [1.5, 0.25]


@pytest.mark.parametrize("config", TIGHT)
def test_the_losses_are_those_of_a_plain_loop(config):
    tokens = draw(1)
    result = of(tokens, config)
    if config.name not in (ObjectiveName.sapo, ObjectiveName.unclipped):
        held = (result.clipped_low_T | result.clipped_high_T)[tokens.weights_T > 0]
        assert 0.05 < held.double().mean() < 0.95, "the bounds should matter to this test"
    for index in tokens.sequences_T.unique().tolist():
        own = tokens.of([index])
        slow = token_losses(
            own.logprobs_T.tolist(),
            own.logprobs_T.tolist(),
            own.old_logprobs_T.tolist(),
            own.advantages_T.tolist(),
            own.weights_T.tolist(),
            config,
        )
        fast = result.loss_T[tokens.sequences_T == index].tolist()
        assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize("config", TIGHT)
def test_the_gradient_is_the_central_difference_of_the_plain_loop(config):
    tokens = draw(2, lengths=(4, 1, 6, 3)).trained()
    result = of(tokens, config)
    # Any weighing of the tokens will do; this one tells them apart.
    scale_T = torch.linspace(0.5, 2.0, len(tokens.weights_T), dtype=torch.float64)
    (slopes,) = torch.autograd.grad((result.loss_T * scale_T).sum(), tokens.logprobs_T)

    def slow(logprobs_T: Tensor) -> float:
        total = 0.0
        for index in tokens.sequences_T.unique().tolist():
            inside_T = tokens.sequences_T == index
            columns = (
                logprobs_T,
                tokens.logprobs_T,
                tokens.old_logprobs_T,
                tokens.advantages_T,
                tokens.weights_T,
            )
            losses = token_losses(*(column[inside_T].tolist() for column in columns), config=config)
            scales = scale_T[inside_T].tolist()
            total += sum(loss * scale for loss, scale in zip(losses, scales, strict=True))
        return total

    step = 1e-6
    for place in range(len(slopes)):
        moved = [tokens.logprobs_T.detach().clone() for _ in range(2)]
        moved[0][place] -= step
        moved[1][place] += step
        difference = (slow(moved[1]) - slow(moved[0])) / (2 * step)
        assert slopes[place].item() == pytest.approx(difference, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize(
    "config", [p for p in TIGHT if p.values[0].name not in ("cispo", "gspo_token")]
)
def test_gradcheck_where_no_gradient_is_stopped(config):
    tokens = draw(3, lengths=(4, 1, 6, 3)).trained()

    def loss(logprobs_T: Tensor) -> Tensor:
        return of(replace(tokens, logprobs_T=logprobs_T), config).loss_T

    assert torch.autograd.gradcheck(loss, tokens.logprobs_T)
    assert torch.autograd.gradcheck(imitation, tokens.logprobs_T)


def test_gradcheck_of_the_others_with_what_they_stop_held_still():
    tokens = draw(4, lengths=(4, 1, 6, 3)).trained()
    frozen_T = tokens.logprobs_T.detach()
    weight_T = (frozen_T - tokens.old_logprobs_T).exp().clamp(max=5.0)

    def held_still(logprobs_T: Tensor) -> Tensor:
        return -weight_T * tokens.advantages_T * logprobs_T

    assert torch.autograd.gradcheck(held_still, tokens.logprobs_T)
    expected = torch.autograd.grad(held_still(tokens.logprobs_T).sum(), tokens.logprobs_T)
    actual = torch.autograd.grad(of(tokens, CISPO).loss_T.sum(), tokens.logprobs_T)
    assert torch.allclose(actual[0], expected[0], rtol=1e-14)


@pytest.mark.parametrize("tight", [False, True])
def test_gspo_token_moves_a_completion_as_gspo_does(tight):
    """Averaged over a completion the gradients are the same, also where a bound holds."""
    bounds = {"clip_low": 0.05, "clip_high": 0.06} if tight else {}
    gradients = []
    for config in (GSPO, GSPO_TOKEN):
        tokens = draw(5, spread=0.1 if tight else 2e-4).trained()
        counted_T = (tokens.weights_T > 0).double()
        means = [
            weighted_sum(loss_T, counted_T[tokens.sequences_T == i])
            / counted_T[tokens.sequences_T == i].sum().clamp(min=1)
            for i in tokens.sequences_T.unique().tolist()
            for loss_T in [of(tokens, replace(config, **bounds)).loss_T[tokens.sequences_T == i]]
        ]
        gradients.append(torch.autograd.grad(torch.stack(means).sum(), tokens.logprobs_T)[0])
    assert gradients[0].abs().max() > 0.1
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("config", [DAPO, DUAL, GSPO, GSPO_TOKEN, CISPO, SAPO, UNCLIPPED], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_policy_the_ratio_is_exactly_one_and_the_gradient_that_of_reinforce(config, dtype):
    tokens = draw(6, dtype=dtype)
    tokens = replace(tokens, logprobs_T=tokens.old_logprobs_T).trained()
    result = of(tokens, config)
    assert torch.equal(result.ratio_T, torch.ones_like(result.ratio_T))
    assert result.loss_T.dtype == dtype
    counted_T = (tokens.weights_T > 0).to(dtype)
    (slopes,) = torch.autograd.grad((result.loss_T * counted_T).sum(), tokens.logprobs_T)
    assert torch.allclose(slopes, -tokens.advantages_T * counted_T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [DAPO, DUAL, GSPO, GSPO_TOKEN, CISPO, SAPO, UNCLIPPED], ids=str)
@pytest.mark.parametrize("far", [-2000.0, 2000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hopeless_disagreement_stays_finite(config, far, dtype):
    tokens = draw(7, dtype=dtype)
    tokens = replace(tokens, old_logprobs_T=tokens.logprobs_T + far).trained()
    result = of(tokens, config)
    (slopes,) = torch.autograd.grad(result.loss_T.sum(), tokens.logprobs_T)
    for values in (result.loss_T, result.ratio_T, slopes):
        assert values.isfinite().all()


@pytest.mark.parametrize("config", [GSPO, GSPO_TOKEN], ids=str)
def test_tokens_that_do_not_count_do_not_move_the_ratio_of_their_completion(config):
    tokens = draw(8)
    for nonsense in (123.0, -math.inf, math.nan):
        old_T = tokens.old_logprobs_T.masked_fill(tokens.weights_T == 0, nonsense)
        other = of(replace(tokens, old_logprobs_T=old_T), config)
        assert torch.equal(other.loss_T, of(tokens, config).loss_T)
    # Nor does it matter how much a token weighs that counts.
    doubled = replace(tokens, weights_T=tokens.weights_T * 2)
    assert torch.equal(of(doubled, config).loss_T, of(tokens, config).loss_T)


@pytest.mark.parametrize("config", TIGHT)
def test_the_inputs_stay_as_they_are(config):
    tokens = draw(9)
    before = draw(9)
    of(tokens, config)
    for name, value in vars(tokens).items():
        assert torch.equal(value.nan_to_num(), getattr(before, name).nan_to_num())
