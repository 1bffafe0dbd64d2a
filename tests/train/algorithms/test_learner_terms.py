"""The learner's loss with all its terms, against plain loops over transformers' own logits.

And what stands around it: the reference policy, the ratio on policy, log-probs before an update.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader
from transformers import AutoModelForImageTextToText, PreTrainedModel

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Group, Score
from easyvideor1.train.algorithm_config import (
    AlgorithmConfig,
    CorrectionConfig,
    KlConfig,
    KlController,
    KlEstimator,
    KlPlace,
    Level,
    ObjectiveConfig,
    ObjectiveName,
)
from easyvideor1.train.config import OptimizerConfig
from easyvideor1.train.interfaces import Experience, TrainExample
from easyvideor1.train.kl_penalty import KlPenalty
from easyvideor1.train.learner import RankLearner
from tests.train.algorithms.algorithm_cases import learner_of, off_policy_examples
from tests.train.plain_model import plain_logits, sampling_logprobs
from tests.train.policy_cases import (
    example,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
)

FAST = OptimizerConfig(lr=1e-3, max_grad_norm=1e9)
BETA, ETA, CAP = 0.3, 0.1, 1.05


def plain_copy(path: Path, learner: RankLearner | None = None) -> PreTrainedModel:
    """The model of `path` in transformers, with the reference's weights if a learner is given."""
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    if learner is not None:
        assert learner.reference is not None
        model.load_state_dict(learner.reference.model.hf.state_dict())
    return model


def slow_loss(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    family: FamilyAdapter,
    examples: Sequence[TrainExample],
) -> torch.Tensor:
    """GSPO with a truncated weight per token, the whole KL and an entropy bonus."""
    total = torch.zeros(())
    for one in examples:
        ids = torch.tensor(one.completion.token_ids)
        logprobs = sampling_logprobs(plain_logits(model, family, one), family)
        with torch.no_grad():
            theirs = sampling_logprobs(plain_logits(reference, family, one), family)
        chosen = logprobs[range(len(ids)), ids]
        assert one.old_logprobs is not None and one.completion.logprobs is not None
        old, engine = torch.tensor(one.old_logprobs), torch.tensor(one.completion.logprobs)
        ratio = ((chosen - old).sum() / len(ids)).exp()
        advantage = one.advantages[0]
        surrogate = min(ratio * advantage, ratio.clamp(0.99, 1.01) * advantage)
        allowed = logprobs[0] > -torch.inf
        p, log_p, log_q = logprobs.exp()[:, allowed], logprobs[:, allowed], theirs[:, allowed]
        tokens = torch.zeros(())
        for t in range(len(ids)):
            weight = min((old[t] - engine[t]).exp().item(), CAP)
            divergence = (p[t] * (log_p[t] - log_q[t])).sum()
            entropy = -(p[t] * log_p[t]).sum()
            tokens = tokens - weight * surrogate + BETA * divergence - ETA * entropy
        total = total + tokens / len(ids)
    return total / len(examples)


def test_all_terms_together_against_plain_loops(sharp_model_path):
    examples = off_policy_examples(sharp_model_path)
    algorithm = AlgorithmConfig(
        objective=ObjectiveConfig(name=ObjectiveName.gspo, clip_low=0.01, clip_high=0.01),
        kl=KlConfig(place=KlPlace.loss, estimator=KlEstimator.full),
        entropy_bonus=ETA,
        correction=CorrectionConfig(weight=Level.token, weight_cap=CAP),
    )
    learner = learner_of(sharp_model_path, algorithm, micro_batch_tokens=200)
    ours, metrics = gradients_of(learner, examples, kl_coefficient=BETA)

    model = plain_copy(sharp_model_path)
    reference = plain_copy(sharp_model_path, learner)
    loss = slow_loss(model, reference, family_at(sharp_model_path), examples)
    loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert metrics["learner/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["learner/reference_kl"] > 1e-3
    assert largest_difference(ours, expected) < 1e-4


def k1_of(path: Path, place: KlPlace = KlPlace.reward, **fields: object) -> RankLearner:
    kl = KlConfig(place=place, estimator=KlEstimator.k1, coefficient=0.5)
    return make_learner(path, algorithm=AlgorithmConfig(kl=kl), optimizer=FAST, **fields)  # type: ignore[arg-type]


def test_the_reference_is_what_the_phase_began_with(sharp_model_path):
    examples = group(family_at(sharp_model_path), "video", (5, 9))
    learner = k1_of(sharp_model_path)
    at_start = learner.logprobs(examples)
    assert learner.divergences(examples) == [[0.0] * 5, [0.0] * 9]
    learner.update(examples, "sft")
    now = learner.logprobs(examples)
    told = learner.divergences(examples)
    assert max(map(abs, told[0])) > 1e-3
    for values, new, old in zip(told, now, at_start, strict=True):
        difference = torch.tensor(new) - torch.tensor(old)
        assert values == pytest.approx(difference.tolist(), abs=1e-5)
    learner.begin(FAST, total_updates=None)
    assert learner.divergences(examples) == [[0.0] * 5, [0.0] * 9]


@pytest.mark.parametrize("warm_start", [True, False])
def test_the_reference_survives_a_checkpoint(sharp_model_path, tmp_path, warm_start):
    """It is written only where it is not the model that a new learner loads anyway."""
    examples = group(family_at(sharp_model_path), "video", (5, 9))
    learner = k1_of(sharp_model_path)
    if warm_start:
        learner.update(examples, "sft")
        learner.begin(FAST, total_updates=None)
    learner.update(examples)
    learner.save(tmp_path / "learner")
    loaded = k1_of(sharp_model_path)
    loaded.load(tmp_path / "learner")
    assert loaded.divergences(examples) == learner.divergences(examples)
    assert max(map(abs, learner.divergences(examples)[0])) > 1e-3
    loaded.save(tmp_path / "again")
    for name in ("learner", "again"):
        stored = FileSystemReader(tmp_path / name / "training").read_metadata().state_dict_metadata
        assert any(key.startswith("reference.") for key in stored) == warm_start


def test_completions_that_an_update_would_refuse_have_no_divergence(sharp_model_path):
    family = family_at(sharp_model_path)
    good = group(family, "video", (3,))
    bad = replace(good[0], completion=group(family, "text", (2,))[0].completion, advantages=[1, 1])
    (segment,) = bad.completion.segments
    placeholder = replace(segment, token_ids=(family.processor.video_token_id, 5))
    bad = replace(bad, completion=replace(bad.completion, segments=(placeholder,)))
    learner = k1_of(sharp_model_path)
    learner.update(good, "sft")
    ours = learner.divergences([bad, *good])
    assert ours[0] is None
    assert ours[1] == learner.divergences(good)[0]


def experience_of(examples: Sequence[TrainExample]) -> Experience:
    return Experience(
        prompt=examples[0].prompt,
        group=Group(
            sample=examples[0].prompt.sample,
            completions=tuple(e.completion for e in examples),
            scores=tuple(Score(value=1.0, parts={}) for _ in examples),
        ),
    )


class OneRank:
    """`interfaces.Learner.divergences` of a rank."""

    def __init__(self, rank: RankLearner):
        self.divergences = rank.divergences


def test_penalties_are_the_divergences_times_the_coefficient_of_this_step(sharp_model_path):
    examples = group(family_at(sharp_model_path), "video", (5, 9))
    learner = k1_of(sharp_model_path)
    learner.update(examples, "sft")
    divergences = learner.divergences(examples)
    config = replace(
        learner.algorithm.kl, controller=KlController.adaptive, target=1e-6, horizon=10
    )
    penalty = KlPenalty(config)
    assert penalty.in_reward
    assert penalty.loss_coefficient == 0
    told = penalty.of_tokens([experience_of(examples)], OneRank(learner))  # type: ignore[arg-type]
    for values, divergence in zip(told, divergences, strict=True):
        assert divergence is not None
        assert values == pytest.approx([-0.5 * d for d in divergence])
    mean = -sum(map(sum, told)) / 0.5 / 14
    assert penalty.metrics() == {"kl/mean": pytest.approx(mean), "kl/coefficient": 0.5}
    assert penalty.metrics() == {}, "a step without a divergence tells none"
    # Far above or below its target it moves by a fifth of 2 / 10, from the next step on.
    factor = 1.04 if mean > 0 else 0.96
    assert penalty.state() == {"coefficient": pytest.approx(0.5 * factor)}


def test_the_coefficient_of_the_loss_follows_what_the_update_found():
    config = KlConfig(place=KlPlace.loss, controller=KlController.adaptive, horizon=10)
    penalty = KlPenalty(config)
    assert not penalty.in_reward
    penalty.after_update({"learner/reference_kl": 5.0}, 2)
    assert penalty.metrics() == {"kl/mean": 5.0, "kl/coefficient": 0.04}
    assert penalty.loss_coefficient == pytest.approx(0.04 * 1.04)
    penalty.after_update({}, 2)  # an update that was skipped says nothing
    resumed = KlPenalty(config)
    resumed.load_state(penalty.state())
    assert resumed.loss_coefficient == penalty.loss_coefficient


def test_on_policy_the_ratio_is_exactly_one_whatever_the_engine_says(sharp_model_path):
    family = family_at(sharp_model_path)
    plain = group(family, "video", (5, 9))
    current = make_learner(sharp_model_path).logprobs(plain)
    examples = [
        example(family, "video", one.completion.token_ids, logprobs=[v - 0.2 for v in values])
        for one, values in zip(plain, current, strict=True)
    ]
    metrics = make_learner(sharp_model_path, optimizer=FAST).update(examples)
    assert metrics["learner/ratio_mean"] == 1.0
    assert metrics["learner/mismatch_max"] == pytest.approx(0.2, abs=1e-4)
    assert metrics["learner/mismatch_kl"] == pytest.approx(0.2214028 - 0.2, rel=1e-2)
    assert "seconds/old_logprobs" not in metrics
    twice = make_learner(sharp_model_path, optimizer=FAST).update(examples, cuts=[1])
    assert twice["seconds/old_logprobs"] > 0
    assert twice["learner/ratio_mean"] != 1.0


def test_a_horizon_that_a_step_would_outrun_is_refused(table, tmp_path):
    config = table.config(tmp_path, steps=1)  # 16 completions per step
    config.algorithm.kl = KlConfig(place=KlPlace.loss, controller=KlController.adaptive, horizon=3)
    with pytest.raises(UserError, match=r"horizon=3 is too short for the 16.*at least 4"):
        replace(config)
    config.algorithm.kl.horizon = 4
    assert replace(config).algorithm.kl.horizon == 4
