import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import CorrectionConfig, Level
from easyvideor1.train.correction import Correction, correct
from tests.train.algorithms.flat_tokens import FlatTokens, draw
from tests.train.algorithms.slow_losses import correction_weights

NAN = math.nan

# Bounds that random tokens lie on both sides of.
TIGHT = {"weight_cap": 1.2, "reject_low": 0.9, "reject_high": 1.15}


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def of(tokens: FlatTokens, config: CorrectionConfig) -> Correction:
    return correct(
        tokens.old_logprobs_T,
        tokens.engine_logprobs_T,
        tokens.sequences_T,
        tokens.weights_T,
        config,
    )


@pytest.mark.parametrize(
    ("config", "weights", "rejected"),
    [
        # ratios 0.8 1.5 | 4.0 ? | 0.2 6.0 (no count: 9.0) | ?
        (CorrectionConfig(), [1, 1, 1, 1, 1, 1, 1, 1], []),
        (CorrectionConfig(weight=Level.token), [0.8, 1.5, 2, 1, 0.2, 2, 1, 1], []),
        # products 1.2 | 4.0 | 1.2 | none known
        (CorrectionConfig(weight=Level.sequence), [1.2, 1.2, 2, 2, 1.2, 1.2, 1, 1], []),
        # outside 0.5 to 5: 0.2 and 6.0
        (CorrectionConfig(reject=Level.token), [1, 1, 1, 1, 0, 0, 1, 1], [4, 5]),
        # geometric means 1.095 | 4.0 | 1.095; with an upper bound of 3 the second goes, all of it
        (
            CorrectionConfig(reject=Level.sequence, reject_high=3.0),
            [1, 1, 0, 0, 1, 1, 1, 1],
            [2, 3],
        ),
        # IcePop: the ratio itself inside 0.5 to 5, nothing outside
        (
            CorrectionConfig(weight=Level.token, weight_cap=5.0, reject=Level.token),
            [0.8, 1.5, 4, 1, 0, 0, 1, 1],
            [4, 5],
        ),
        # no lower bound
        (CorrectionConfig(reject=Level.token, reject_low=0.0), [1, 1, 1, 1, 1, 0, 1, 1], [5]),
    ],
)
def test_by_hand(config, weights, rejected):
    ratios = tensor(0.8, 1.5, 4.0, NAN, 0.2, 6.0, 9.0, NAN)
    counts = tensor(1, 0.5, 1, 1, 1, 1, 0, 1)
    sequences = torch.tensor([0, 0, 1, 1, 2, 2, 2, 3])
    old = tensor(-1, -2, -3, -1, -2, -3, -1, -2)
    found = correct(old, old - ratios.log(), sequences, counts, config)
    assert found.weights_T.tolist() == pytest.approx(weights)
    assert found.rejected_T.nonzero()[:, 0].tolist() == rejected
    assert found.ratio_T.tolist() == pytest.approx([0.8, 1.5, 4, 1, 0.2, 6, 1, 1])


@pytest.mark.parametrize("reject", Level)
@pytest.mark.parametrize("weight", Level)
def test_it_is_that_of_a_plain_loop(weight, reject):
    tokens = draw(21, spread=0.2)
    config = CorrectionConfig(weight=weight, reject=reject, **TIGHT)
    found = of(tokens, config)
    if reject is not Level.none:
        share = found.rejected_T[tokens.weights_T > 0].double().mean()
        assert 0.05 < share < 0.95, "the bounds should matter to this test"
    for index in tokens.sequences_T.unique().tolist():
        own = tokens.of([index])
        slow = correction_weights(
            own.old_logprobs_T.tolist(),
            own.engine_logprobs_T.tolist(),
            own.weights_T.tolist(),
            config,
        )
        assert found.weights_T[tokens.sequences_T == index].tolist() == pytest.approx(slow)
    assert torch.equal(found.rejected_T, found.weights_T == 0)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("level", [Level.token, Level.sequence])
def test_micro_batches_do_not_matter(level, size):
    tokens = draw(22, spread=0.2)
    config = CorrectionConfig(weight=level, reject=level, **TIGHT)
    parts = [of(batch, config) for batch in tokens.micro_batches(size)]
    for whole, pieces in zip(of(tokens, config), zip(*parts, strict=True), strict=True):
        assert torch.allclose(torch.cat(pieces).double(), whole.double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("level", [Level.token, Level.sequence])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_probabilities_are_left_exactly_as_they_are(level, dtype):
    tokens = draw(23, dtype=dtype)
    tokens = replace(tokens, engine_logprobs_T=tokens.old_logprobs_T)
    # The tightest bounds there are.
    config = CorrectionConfig(
        weight=level, weight_cap=1.0, reject=level, reject_low=1 - 1e-9, reject_high=1 + 1e-9
    )
    found = of(tokens, config)
    assert torch.equal(found.weights_T, torch.ones_like(tokens.old_logprobs_T))
    assert torch.equal(found.ratio_T, torch.ones_like(tokens.old_logprobs_T))
    assert not found.rejected_T.any()


@pytest.mark.parametrize("level", [Level.token, Level.sequence])
def test_what_the_engine_told_nothing_of_is_left_as_it_is(level):
    tokens = draw(24)
    unknown = replace(tokens, engine_logprobs_T=torch.full_like(tokens.old_logprobs_T, NAN))
    found = of(unknown, CorrectionConfig(weight=level, reject=level, **TIGHT))
    assert torch.equal(found.weights_T, torch.ones_like(tokens.old_logprobs_T))
    assert not found.rejected_T.any()


@pytest.mark.parametrize("level", [Level.token, Level.sequence])
@pytest.mark.parametrize("far", [-2000.0, 2000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hopeless_disagreement_stays_finite(level, far, dtype):
    tokens = draw(25, dtype=dtype)
    tokens = replace(tokens, engine_logprobs_T=tokens.old_logprobs_T + far)
    found = of(tokens, CorrectionConfig(weight=level, weight_cap=1e30))
    assert found.weights_T.isfinite().all()
    assert found.ratio_T.isfinite().all()
    assert found.weights_T.dtype == dtype
    rejected_T = of(tokens, CorrectionConfig(reject=level)).rejected_T
    assert torch.equal(rejected_T, tokens.weights_T > 0)


def test_no_gradient_flows_and_the_inputs_stay_as_they_are():
    tokens, before = draw(26), draw(26)
    tokens.old_logprobs_T.requires_grad_()
    found = of(tokens, CorrectionConfig(weight=Level.token, reject=Level.sequence, **TIGHT))
    assert not found.weights_T.requires_grad
    for name, value in vars(tokens).items():
        assert torch.equal(value.nan_to_num(), getattr(before, name).nan_to_num())


def test_how_much_a_token_weighs_does_not_matter_only_whether_it_counts():
    tokens = draw(27)
    config = CorrectionConfig(weight=Level.sequence, reject=Level.sequence, **TIGHT)
    halved = replace(tokens, weights_T=tokens.weights_T / 2)
    for one, other in zip(of(tokens, config), of(halved, config), strict=True):
        assert torch.equal(one, other)
