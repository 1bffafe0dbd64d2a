"""LUFFY and CHORD in a whole update, against plain loops over transformers' own logits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Source
from easyvideor1.train.config import OptimizerConfig
from easyvideor1.train.interfaces import TrainExample
from tests.train.algorithms.algorithm_cases import (
    CHORD,
    OFFLINE_ALGORITHMS,
    learner_of,
    mixed_examples,
)
from tests.train.plain_model import plain_logits, sampling_logprobs
from tests.train.policy_cases import family_at, gradients_of, largest_difference, make_learner

GAMMA, ETA, LENGTH = 0.1, 0.1, 40


def is_expert(one: TrainExample) -> bool:
    return one.completion.source is Source.offline


def scores(model, family: FamilyAdapter, one: TrainExample) -> tuple[torch.Tensor, torch.Tensor]:
    """[L] log-probs of the completion's tokens and entropies of their distributions."""
    ids = torch.tensor(one.completion.token_ids)
    logprobs = sampling_logprobs(plain_logits(model, family, one), family)
    allowed = logprobs[:, logprobs[0] > -torch.inf]
    return logprobs[range(len(ids)), ids], -(allowed.exp() * allowed).sum(-1)


def luffy_loss(model, family: FamilyAdapter, examples: Sequence[TrainExample]) -> torch.Tensor:
    total = torch.zeros(())
    for one in examples:
        chosen, entropies = scores(model, family, one)
        assert one.old_logprobs is not None
        for t in range(len(chosen)):
            p = chosen[t].exp()
            ratio = p / (p + GAMMA)
            if not is_expert(one):
                ratio = p / torch.tensor(one.old_logprobs[t]).exp()
            total = total - ratio * one.advantages[t] - ETA * entropies[t]
    return total / (len(examples) * LENGTH)


def chord_loss(
    model, family: FamilyAdapter, examples: Sequence[TrainExample], mu: float
) -> torch.Tensor:
    """Clipped GRPO of sampled completions, a mean of means, and imitation, a mean over tokens."""
    policy, imitated = torch.zeros(()), torch.zeros(())
    for one in examples:
        chosen, _ = scores(model, family, one)
        if is_expert(one):
            p = chosen.exp().detach()
            imitated = imitated - (p * (1 - p) * chosen).sum()
            continue
        ratios = (chosen - torch.tensor(one.old_logprobs)).exp()
        advantage = one.advantages[0]
        surrogate = torch.minimum(ratios * advantage, ratios.clamp(0.95, 1.05) * advantage)
        policy = policy - surrogate.mean()
    experts = [one for one in examples if is_expert(one)]
    num_tokens = sum(len(one.completion.token_ids) for one in experts)
    return (1 - mu) * policy / (len(examples) - len(experts)) + mu * imitated / num_tokens


def gradients(model) -> dict[str, torch.Tensor]:
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def test_luffy_against_plain_loops(sharp_model_path):
    examples = mixed_examples(sharp_model_path)
    learner = learner_of(sharp_model_path, OFFLINE_ALGORITHMS["luffy"], micro_batch_tokens=200)
    ours, metrics = gradients_of(learner, examples)

    model = AutoModelForImageTextToText.from_pretrained(sharp_model_path, dtype=torch.float32)
    loss = luffy_loss(model, family_at(sharp_model_path), examples)
    loss.backward()
    assert metrics["learner/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert largest_difference(ours, gradients(model)) < 1e-4
    num_offline = sum(len(one.advantages) for one in examples if is_expert(one))
    num_tokens = sum(len(one.advantages) for one in examples)
    assert metrics["learner/offline_share"] == pytest.approx(num_offline / num_tokens)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0])
def test_chord_against_plain_loops(sharp_model_path, mu):
    examples = mixed_examples(sharp_model_path)
    algorithm = replace(
        OFFLINE_ALGORITHMS["chord"],
        kl=replace(OFFLINE_ALGORITHMS["chord"].kl, place="none"),
        entropy_bonus=0.0,
        offline=replace(CHORD, mu_peak=mu, mu_valley=mu),
    )
    learner = learner_of(sharp_model_path, algorithm, micro_batch_tokens=200)
    ours, metrics = gradients_of(learner, examples)

    model = AutoModelForImageTextToText.from_pretrained(sharp_model_path, dtype=torch.float32)
    loss = chord_loss(model, family_at(sharp_model_path), examples, mu)
    loss.backward()
    assert metrics["learner/imitation_share"] == pytest.approx(mu)
    assert metrics["learner/loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
    assert largest_difference(ours, gradients(model)) < 1e-4


def test_kl_and_entropy_do_not_reach_imitated_tokens(sharp_model_path):
    examples = [one for one in mixed_examples(sharp_model_path) if is_expert(one)]
    plain = replace(OFFLINE_ALGORITHMS["chord"], entropy_bonus=0.0)
    both = [
        gradients_of(learner_of(sharp_model_path, algorithm), examples, kl_coefficient=kl)[0]
        for algorithm, kl in ((plain, 0.0), (OFFLINE_ALGORITHMS["chord"], 0.3))
    ]
    assert largest_difference(*both) < 1e-6


def test_the_schedule_follows_the_updates_of_the_phase_and_survives_a_checkpoint(
    sharp_model_path, tmp_path
):
    examples = mixed_examples(sharp_model_path)
    offline = replace(CHORD, mu_peak=0.8, mu_valley=0.2, mu_warmup_updates=2, mu_decay_updates=2)
    algorithm = replace(OFFLINE_ALGORITHMS["chord"], offline=offline)
    fast = OptimizerConfig(lr=1e-4)

    def share(learner) -> float:
        return learner.update(examples)["learner/imitation_share"]

    learner = make_learner(sharp_model_path, algorithm=algorithm, optimizer=fast)
    assert [share(learner) for _ in range(3)] == pytest.approx([0.0, 0.4, 0.8])
    learner.save(tmp_path / "learner")
    resumed = make_learner(sharp_model_path, algorithm=algorithm, optimizer=fast)
    resumed.load(tmp_path / "learner")
    assert [share(resumed) for _ in range(2)] == pytest.approx([0.5, 0.2])
    resumed.begin(fast, total_updates=None)
    assert share(resumed) == 0.0
