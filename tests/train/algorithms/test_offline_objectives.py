"""The losses of offline tokens: by hand, against plain loops and finite differences; CHORD's scale.

What a whole update makes of them is in `test_invariance` and `test_offline_learner`.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import (
    Completion,
    ProblemType,
    Sample,
    Segment,
    Source,
)
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    Aggregation,
    AlgorithmConfig,
    OfflineConfig,
    OfflineTreatment,
)
from easyvideor1.train.interfaces import Prompt, TrainExample
from easyvideor1.train.loss_scale import parts_of, scale_of
from easyvideor1.train.offline_objectives import (
    OfflineLoss,
    expert,
    imitation_share,
    offline_loss,
    shaped,
    truncated,
)
from tests.train.algorithms.flat_tokens import FlatTokens, draw
from tests.train.algorithms.slow_losses import offline_losses

LUFFY = OfflineConfig(treatment=OfflineTreatment.luffy, behaviour_logprobs=False)
KNOWN = replace(LUFFY, behaviour_logprobs=True, behaviour_cap=1.2)
AS_POLICY = OfflineConfig(behaviour_cap=1.2)
CHORD = OfflineConfig(treatment=OfflineTreatment.chord, in_baseline=False)
PHI = replace(CHORD, phi=True)
PHI_GRADIENT = replace(PHI, phi_detach=False)

TREATMENTS = [
    pytest.param(LUFFY, id="luffy"),
    pytest.param(KNOWN, id="luffy, mu known"),
    pytest.param(AS_POLICY, id="as_policy, mu known"),
    pytest.param(CHORD, id="chord"),
    pytest.param(PHI, id="chord, phi"),
    pytest.param(PHI_GRADIENT, id="chord, phi with gradient"),
]


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one_token(probability: float, loss_of: Callable[[Tensor], OfflineLoss]) -> tuple[float, float]:
    """Loss of a token on its own and the derivative by its log-prob."""
    logprobs = tensor(math.log(probability)).requires_grad_()
    result = loss_of(logprobs)
    (slope,) = torch.autograd.grad(result.loss_T.sum(), logprobs)
    assert not result.ratio_T.requires_grad
    assert not result.gradient_T.requires_grad
    return result.loss_T.item(), slope.item()


@pytest.mark.parametrize(
    ("probability", "advantage", "gamma", "loss", "slope"),
    [
        # f = 1/2 where pi = gamma, and f (1 - f) is largest there
        (0.1, 1.0, 0.1, -0.5, -0.25),
        (0.1, -2.0, 0.1, 1.0, 0.5),
        # f = 0.9 / 1.0; f (1 - f) = 0.09
        (0.9, 1.0, 0.1, -0.9, -0.09),
        # f = 0.01 / 0.11 = 1/11; f (1 - f) = 10/121: eight times what pi itself gives
        (0.01, 1.0, 0.1, -1 / 11, -10 / 121),
        (0.5, 3.0, 0.5, -1.5, -0.75),
    ],
)
def test_policy_shaping_by_hand(probability, advantage, gamma, loss, slope):
    result = one_token(probability, lambda x: shaped(x, tensor(advantage), gamma=gamma))
    assert result == (pytest.approx(loss), pytest.approx(slope))


@pytest.mark.parametrize(
    ("probability", "behaviour", "advantage", "loss", "slope"),
    [
        (0.2, 0.4, 1.0, -0.5, -0.5),
        (0.2, 0.4, -3.0, 1.5, 1.5),
        # pi / mu = 4 is held at 2, without gradient
        (0.8, 0.2, 1.0, -2.0, 0.0),
        (0.8, 0.2, -1.0, 2.0, 0.0),
    ],
)
def test_truncated_importance_sampling_by_hand(probability, behaviour, advantage, loss, slope):
    result = one_token(
        probability, lambda x: truncated(x, tensor(math.log(behaviour)), tensor(advantage), cap=2.0)
    )
    assert result == (pytest.approx(loss), pytest.approx(slope))


@pytest.mark.parametrize(
    ("probability", "phi", "phi_detach", "loss", "slope"),
    [
        (0.5, False, True, math.log(2), -1.0),
        # phi = 1/4, whether or not it has a gradient, which is 0 at p = 1/2
        (0.5, True, True, math.log(2) / 4, -0.25),
        (0.5, True, False, math.log(2) / 4, -0.25),
        # phi = 0.09; -0.09 log 0.1; with gradient -(0.09 + 0.1 * 0.8 * log 0.1)
        (0.1, True, True, 0.09 * math.log(10), -0.09),
        (0.1, True, False, 0.09 * math.log(10), -0.09 + 0.08 * math.log(10)),
    ],
)
def test_imitation_of_experts_by_hand(probability, phi, phi_detach, loss, slope):
    result = one_token(probability, lambda x: expert(x, phi=phi, phi_detach=phi_detach))
    assert result == (pytest.approx(loss), pytest.approx(slope))


@pytest.mark.parametrize(
    ("num_updates", "share"),
    [
        # four updates up to 0.9, eight down a half cosine to 0.1
        (0, 0.0),
        (1, 0.225),
        (3, 0.675),
        (4, 0.9),
        (6, 0.5 + 0.4 * math.sqrt(0.5)),
        (8, 0.5),
        (10, 0.5 - 0.4 * math.sqrt(0.5)),
        (12, 0.1),
        (1000, 0.1),
    ],
)
def test_the_schedule_of_imitation_by_hand(num_updates, share):
    config = replace(CHORD, mu_peak=0.9, mu_valley=0.1, mu_warmup_updates=4, mu_decay_updates=8)
    assert imitation_share(num_updates, config) == pytest.approx(share)


def test_without_a_schedule_the_share_is_the_valley_at_once():
    assert imitation_share(0, replace(CHORD, mu_peak=0.3, mu_valley=0.2)) == 0.2


def of(tokens: FlatTokens, config: OfflineConfig) -> OfflineLoss:
    result = offline_loss(tokens.logprobs_T, tokens.engine_logprobs_T, tokens.advantages_T, config)
    assert result is not None
    return result


@pytest.mark.parametrize("config", TREATMENTS)
def test_the_losses_are_those_of_a_plain_loop(config):
    tokens = draw(1)
    result = of(tokens, config)
    slow = offline_losses(
        tokens.logprobs_T.tolist(),
        tokens.logprobs_T.tolist(),
        tokens.engine_logprobs_T.tolist(),
        tokens.advantages_T.tolist(),
        config,
    )
    assert [x is not None for x in slow] == result.applies_T.tolist()
    for fast, expected in zip(result.loss_T.tolist(), slow, strict=True):
        assert expected is None or fast == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("config", TREATMENTS)
def test_the_gradient_is_the_central_difference_of_the_plain_loop(config):
    tokens = draw(2).trained()
    result = of(tokens, config)
    applies_T = result.applies_T
    total = result.loss_T.masked_fill(~applies_T, 0.0).sum()
    (slopes,) = torch.autograd.grad(total, tokens.logprobs_T)
    values, step = tokens.logprobs_T.tolist(), 1e-6
    columns = tokens.engine_logprobs_T.tolist(), tokens.advantages_T.tolist()
    above, below = (
        offline_losses([x + move for x in values], values, *columns, config)
        for move in (step, -step)
    )
    for slope, up, down in zip(slopes.tolist(), above, below, strict=True):
        expected = 0.0 if up is None or down is None else (up - down) / (2 * step)
        assert slope == pytest.approx(expected, rel=1e-6, abs=1e-8)
    # What is told about the gradient is what it is, per unit of advantage.
    unit_T = tokens.advantages_T
    if config.treatment is OfflineTreatment.chord:
        unit_T = torch.ones_like(unit_T)
    told_T = (-result.gradient_T * unit_T).masked_fill(~applies_T, 0.0)
    assert torch.allclose(told_T, slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("config", [p for p in TREATMENTS if p.values[0] is not PHI])
def test_gradcheck_where_no_gradient_is_stopped(config):
    tokens = draw(3, lengths=(4, 1, 6, 3)).trained()

    def loss(logprobs_T: Tensor) -> Tensor:
        result = of(replace(tokens, logprobs_T=logprobs_T), config)
        return result.loss_T.masked_fill(~result.applies_T, 0.0)

    assert torch.autograd.gradcheck(loss, tokens.logprobs_T)


def test_without_behaviour_log_probs_the_policy_s_objective_stays():
    tokens = draw(4)
    config = replace(AS_POLICY, behaviour_logprobs=False)
    assert (
        offline_loss(tokens.logprobs_T, tokens.engine_logprobs_T, tokens.advantages_T, config)
        is None
    )


@pytest.mark.parametrize("config", TREATMENTS)
@pytest.mark.parametrize("far", [-2000.0, -1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hopeless_and_certain_tokens_stay_finite(config, far, dtype):
    tokens = draw(5, dtype=dtype)
    tokens = replace(tokens, logprobs_T=torch.full_like(tokens.logprobs_T, far)).trained()
    result = of(tokens, config)
    (slopes,) = torch.autograd.grad(result.loss_T.sum(), tokens.logprobs_T)
    for values in (result.loss_T, result.ratio_T, result.gradient_T, slopes):
        assert values.isfinite().all()
        assert values.dtype == dtype


# The scale of a step


def example(length: int, source: Source, weights: list[float] | None = None) -> TrainExample:
    sample = Sample(id="s", problem="?", answer="A", problem_type=ProblemType.multiple_choice)
    return TrainExample(
        prompt=Prompt(sample=sample, token_ids=[1], num_tokens=1, num_patches=0),
        completion=Completion(
            segments=(Segment(token_ids=(7,) * length),), text="", finish_reason="", source=source
        ),
        advantages=[1.0] * length,
        token_weights=weights,
    )


class Flat:
    """What `LossScale.shares` reads of a batch."""

    def __init__(self, examples: list[TrainExample]):
        lengths = torch.tensor([len(e.advantages) for e in examples])
        self.weights = torch.cat(
            [torch.tensor(e.token_weights or [1.0] * len(e.advantages)) for e in examples]
        )
        self.examples = torch.arange(len(examples)).repeat_interleave(lengths)
        self.is_offline = torch.tensor(
            [e.completion.source is Source.offline for e in examples]
        ).repeat_interleave(lengths)


MIXED = [
    example(2, Source.policy),
    example(4, Source.policy),
    example(3, Source.offline, [1.0, 0.0, 1.0]),
    example(6, Source.offline),
]


def chord(share: float, aggregation: Aggregation = Aggregation.sequence_mean) -> AlgorithmConfig:
    return AlgorithmConfig(
        aggregation=aggregation,
        constant_length=10,
        offline=replace(CHORD, mu_peak=share, mu_valley=share),
    )


@pytest.mark.parametrize(
    ("aggregation", "of_first", "of_second"),
    [
        # two sampled completions: a mean over both of the mean of each
        (Aggregation.sequence_mean, 0.7 / 2 / 2, 0.7 / 2 / 4),
        (Aggregation.token_mean, 0.7 / 6, 0.7 / 6),
        (Aggregation.constant, 0.7 / 20, 0.7 / 20),
    ],
)
def test_chord_is_a_sum_of_two_means_by_hand(aggregation, of_first, of_second):
    parts = parts_of("policy", chord(0.3, aggregation), 0)
    scale = scale_of(parts, MIXED, 10, lambda x: x)
    assert scale is not None
    shares = scale.shares(Flat(MIXED))  # type: ignore[arg-type]
    # eight expert tokens that count, whoever wrote them
    expected = [of_first] * 2 + [of_second] * 4 + [0.3 / 8, 0.0, 0.3 / 8] + [0.3 / 8] * 6
    assert shares.tolist() == pytest.approx(expected, rel=1e-6)


def test_other_algorithms_have_one_sum_over_all_tokens():
    for objective, algorithm, share in (
        ("policy", AlgorithmConfig(aggregation=Aggregation.token_mean), 1 / 14),
        ("sft", chord(0.3), 1 / 14),
    ):
        scale = scale_of(parts_of(objective, algorithm, 0), MIXED, None, lambda x: x)
        assert scale is not None
        weights = Flat(MIXED).weights
        shares = scale.shares(Flat(MIXED))  # type: ignore[arg-type]
        assert torch.allclose(shares, weights * share)


def test_a_step_without_experts_or_without_samples_has_the_other_half_alone():
    for kept, num_tokens, share in ((MIXED[:2], 6, 0.7), (MIXED[2:], 8, 0.3)):
        algorithm = chord(0.3, Aggregation.token_mean)
        scale = scale_of(parts_of("policy", algorithm, 0), kept, None, lambda x: x)
        assert scale is not None
        flat = Flat(kept)
        expected = flat.weights * share / num_tokens
        assert torch.allclose(scale.shares(flat), expected)  # type: ignore[arg-type]


def test_denominators_are_those_of_all_ranks():
    parts = parts_of("policy", chord(0.3, Aggregation.token_mean), 0)
    others = torch.tensor([6.0, 8.0, 4.0], dtype=torch.float64)
    scale = scale_of(parts, [], None, lambda own: own + others)
    assert scale is not None
    shares = scale.shares(Flat(MIXED))  # type: ignore[arg-type]
    assert shares.sum().item() == pytest.approx(1.0)
    assert scale_of(parts, [], None, lambda own: own) is None
    silent = [example(2, Source.offline, [0.0, 0.0])]
    with pytest.raises(ValueError, match="sum to 0"):
        scale_of(parts, silent, None, lambda own: own)


# The config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": 0.0}, "gamma"),
        ({"behaviour_cap": 0.0}, "behaviour_cap"),
        ({"mu_peak": 0.1, "mu_valley": 0.2}, "mu_valley <= mu_peak"),
        ({"mu_peak": 1.1}, "mu_peak"),
        ({"mu_decay_updates": -1}, "mu_decay_updates"),
    ],
)
def test_settings_without_meaning_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        OfflineConfig(**fields)


def test_a_baseline_of_samples_alone_needs_an_estimator_without_deviation():
    alone = OfflineConfig(in_baseline=False)
    with pytest.raises(UserError, match="group_mean"):
        AlgorithmConfig(offline=alone)
    AlgorithmConfig(offline=alone, advantage=AdvantageConfig(name=AdvantageName.group_mean))
    AlgorithmConfig(offline=CHORD)
    with pytest.raises(UserError, match="in_baseline=false"):
        AlgorithmConfig(offline=replace(CHORD, in_baseline=True))
