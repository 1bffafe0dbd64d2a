"""Engine and learner are one policy: equal log-probs, before and after weights are published."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Completion
from easyvideor1.train.config import FrozenPart, LoraConfig, OptimizerConfig
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from tests.live_engine import LiveEngine
from tests.train.policy_cases import (
    CLIPS,
    INSTRUCTION,
    example,
    family_at,
    make_learner,
    plain_inputs,
    sample,
)

TOLERANCE = 2e-3
"""In nats, of one token; both compute in float32."""


def asked(name: str, completion: Completion, path: Path, advantage: float = 1.0) -> TrainExample:
    return replace(
        example(family_at(path), name, completion.token_ids, advantage=advantage),
        completion=completion,
    )


def answers(engine: LiveEngine, path: Path, name: str, **settings: object) -> list[Completion]:
    prompt = family_at(path).prompt_token_ids(sample(name), INSTRUCTION)
    settings = {"n": 4, "seed": 5, "max_new_tokens": 24, "logprobs": True} | settings
    return engine.generate(prompt, CLIPS[name], **settings).completions


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_of_sampled_tokens_agree(sharp_engine, sharp_model_path, temperature):
    learner = make_learner(sharp_model_path, temperature=temperature)
    for name in CLIPS:
        sampled = answers(sharp_engine, sharp_model_path, name, temperature=temperature)
        examples = [asked(name, completion, sharp_model_path) for completion in sampled]
        for completion, ours in zip(sampled, learner.logprobs(examples), strict=True):
            theirs = torch.tensor(completion.logprobs)
            assert theirs.min() < -1  # neither is flat nor certain
            torch.testing.assert_close(torch.tensor(ours), theirs, atol=TOLERANCE, rtol=0)


def test_engine_and_learner_see_the_same_prompt(sharp_engine, sharp_model_path):
    family = family_at(sharp_model_path)
    for name, clips in CLIPS.items():
        prompt = family.prompt_token_ids(sample(name), INSTRUCTION)
        result = sharp_engine.generate(prompt, clips, max_new_tokens=1)
        assert result.prompt_token_ids == family.learner_inputs(prompt, clips).token_ids


def update_on_own_answers(
    engine: LiveEngine, learner: RankLearner, path: Path, seed: int
) -> dict[str, float]:
    """One step of training with advantages 1 and -1 in turn."""
    return learner.update(
        [
            asked(name, completion, path, advantage=1.0 - 2 * (i % 2))
            for name in CLIPS
            for i, completion in enumerate(answers(engine, path, name, seed=seed))
        ]
    )


def test_after_each_publish_the_rollouts_are_on_policy_again(sharp_engine, sharp_model_path):
    learner = make_learner(sharp_model_path, optimizer=OptimizerConfig(lr=2e-3))
    for step in range(3):
        metrics = update_on_own_answers(sharp_engine, learner, sharp_model_path, seed=step)
        assert metrics["learner/mismatch_max"] < TOLERANCE
        assert metrics["learner/ratio_mean"] == pytest.approx(1, abs=TOLERANCE)
        sharp_engine.publish(dict(learner.gather_weights()))


def test_an_unpublished_update_shows_as_mismatch(sharp_engine, sharp_model_path):
    """Guards the tests above: one step moves the policy by more than their tolerance."""
    learner = make_learner(sharp_model_path, optimizer=OptimizerConfig(lr=2e-3))
    update_on_own_answers(sharp_engine, learner, sharp_model_path, seed=0)
    metrics = update_on_own_answers(sharp_engine, learner, sharp_model_path, seed=1)
    assert metrics["learner/mismatch_max"] > 10 * TOLERANCE


def plain_answer(model: Any, family: FamilyAdapter, name: str) -> list[int]:
    """The greedy answer of transformers alone."""
    inputs = plain_inputs(family, name)
    generated = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=24,
        suppress_tokens=list(family.forbidden_token_ids),
    )
    return generated[0, inputs["input_ids"].shape[1] :].tolist()


def test_greedy_answers_are_those_of_the_new_weights_in_plain_transformers(
    sharp_engine, sharp_model_path, tmp_path
):
    """Through publish on one side, through the exported folder on the other."""
    learner = make_learner(sharp_model_path, optimizer=OptimizerConfig(lr=5e-3))
    greedy = {"temperature": 0.0, "n": 1, "logprobs": False}
    before = {
        name: answers(sharp_engine, sharp_model_path, name, **greedy)[0].token_ids for name in CLIPS
    }
    update_on_own_answers(sharp_engine, learner, sharp_model_path, seed=0)
    sharp_engine.publish(dict(learner.gather_weights()))
    learner.export(tmp_path / "export")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "export")
    family = family_at(sharp_model_path)
    changed = 0
    for name in CLIPS:
        expected = plain_answer(model, family, name)
        [answer] = answers(sharp_engine, sharp_model_path, name, **greedy)
        assert answer.token_ids == expected
        changed += answer.token_ids != before[name]
    assert changed >= len(CLIPS) - 1


@pytest.mark.parametrize("parts", [["language"], ["vision", "merger", "language"]])
def test_merged_adapters_in_the_engine_are_the_adapted_policy(
    sharp_engine, sharp_model_path, tmp_path, parts
):
    """Sent without what they do not touch; the head, tied to an embedding that stays, included."""
    lora = LoraConfig(rank=4, parts=[FrozenPart(part) for part in parts])
    learner = make_learner(sharp_model_path, lora=lora, optimizer=OptimizerConfig(lr=1e-2))
    kept = learner.frozen_prefixes
    assert "lm_head." in kept and "model.language_model.embed_tokens." in kept
    assert ("model.visual.blocks." in kept) == ("vision" not in parts)
    for step in range(3):
        metrics = update_on_own_answers(sharp_engine, learner, sharp_model_path, seed=step)
        assert metrics["learner/mismatch_max"] < TOLERANCE
        sharp_engine.publish(dict(learner.gather_weights(kept)), kept=kept)
    learner.export(tmp_path / "export")
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "export")
    family = family_at(sharp_model_path)
    for name in CLIPS:
        expected = plain_answer(model, family, name)
        [answer] = answers(
            sharp_engine, sharp_model_path, name, temperature=0.0, n=1, logprobs=False
        )
        assert answer.token_ids == expected
