"""Log-probs against the plain model of transformers, teacher-forced, one sequence at a time."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.train.learner import RankLearner
from tests.train.plain_model import plain_logits, sampling_logprobs
from tests.train.policy_cases import (
    CLIPS,
    all_groups,
    answer_ids,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
)


@pytest.fixture(scope="module")
def learner(sharp_model_path: Path) -> RankLearner:
    return make_learner(sharp_model_path)


@pytest.fixture(scope="module")
def plain_model(sharp_model_path: Path):
    return AutoModelForImageTextToText.from_pretrained(sharp_model_path, dtype=torch.float32)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", CLIPS)
def test_log_probs_and_entropy_are_those_of_the_plain_model(
    sharp_model_path, plain_model, name, temperature
):
    family = family_at(sharp_model_path)
    learner = make_learner(sharp_model_path, temperature=temperature)
    [one] = group(family, name, (8,))
    with torch.no_grad():
        logits = plain_logits(plain_model, family, one)
    expected = sampling_logprobs(logits, family, temperature)
    chosen = expected.gather(1, torch.tensor(one.completion.token_ids)[:, None])[:, 0]
    assert chosen.std() > 0.5  # the model is sharp enough to tell right from wrong
    [ours] = learner.logprobs([one])
    torch.testing.assert_close(torch.tensor(ours), chosen, atol=2e-5, rtol=0)

    [batch] = learner._batches([one], learner.clip_store)
    entropy = torch.distributions.Categorical(logits=expected.nan_to_num(neginf=-1e9)).entropy()
    torch.testing.assert_close(learner.model(batch).entropy, entropy, atol=1e-5, rtol=1e-5)


def test_the_plain_model_reads_the_same_prompt(sharp_model_path):
    """Guards the reference above: the decoded prompt must tokenise back to the same ids."""
    family = family_at(sharp_model_path)
    for one in all_groups(family, lengths=(3,)):
        text = family.tokenizer.decode(one.prompt.token_ids)
        assert family.tokenizer(text, add_special_tokens=False)["input_ids"] == list(
            one.prompt.token_ids
        )


def test_padded_batches_give_the_log_probs_of_single_sequences(sharp_model_path, learner):
    examples = all_groups(family_at(sharp_model_path))
    together = learner.logprobs(examples)
    for one, ours in zip(examples, together, strict=True):
        [alone] = learner.logprobs([one])
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(alone), atol=1e-5, rtol=0)


def test_the_vision_tower_runs_once_per_forward_and_sees_each_medium_once(
    sharp_model_path, learner
):
    family = family_at(sharp_model_path)
    calls = []
    hook = learner.model.hf.model.visual.register_forward_pre_hook(
        lambda module, args: calls.append(args[0].shape[0])
    )
    cases = {
        "video and text": [*group(family, "video", (3, 4, 5)), *group(family, "text", (3,))],
        "image and video": group(family, "image and video", (3, 4)),
        "text": group(family, "text", (3,)),
    }
    batches = {
        name: list(learner._batches(examples, learner.clip_store))
        for name, examples in cases.items()
    }
    for [batch] in batches.values():
        learner.model(batch)
    hook.remove()
    video, both = batches["video and text"][0], batches["image and video"][0]
    assert calls == [
        sum(len(slot.pixel_values) for slot in video.media),
        sum(len(slot.pixel_values) for slot in both.media),
        4,  # the smallest grid there is, for a batch without media
    ]
    assert len(video.media) == 1
    assert len(both.media) == 2


def test_every_parameter_has_a_gradient_also_without_media(sharp_model_path, learner):
    gradients, _ = gradients_of(learner, group(family_at(sharp_model_path), "text", (4,)))
    assert gradients.keys() == dict(learner.model.hf.named_parameters()).keys()
    vision = [tensor for name, tensor in gradients.items() if ".visual." in name]
    assert vision
    assert not any(tensor.any() for tensor in vision)


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_features_of_no_medium_that_are_not_finite_spoil_neither_loss_nor_gradient(
    sharp_model_path, value, recomputed
):
    """Every activation of the tower overflows on the blank patches, those of DeepStack too."""
    learner = make_learner(sharp_model_path, activation_checkpointing=recomputed)
    tower = learner.model.hf.model.visual
    examples = group(family_at(sharp_model_path), "text", (4, 6))
    expected, metrics = gradients_of(learner, examples)
    seen = []
    hooks = [
        tower.patch_embed.register_forward_hook(lambda module, args, output: output + value),
        tower.register_forward_hook(
            lambda module, args, output: seen.extend(
                [output.pooler_output, *output.deepstack_features]
            )
        ),
    ]
    spoiled, spoiled_metrics = gradients_of(learner, examples)
    assert len(seen) == 3
    assert not any(features.isfinite().any() for features in seen)
    assert spoiled_metrics == metrics
    assert spoiled.keys() == expected.keys()
    assert all(torch.equal(spoiled[name], expected[name]) for name in expected)
    for hook in hooks:
        hook.remove()


def test_features_of_a_shared_medium_get_the_gradient_of_all_its_answers(sharp_model_path, learner):
    """One batch, where the video is encoded once, against one sequence at a time."""
    examples = group(family_at(sharp_model_path), "video", (5, 9, 2, 7))
    together, _ = gradients_of(learner, examples)
    learner.config.micro_batch_tokens = 1
    alone, _ = gradients_of(learner, examples)
    learner.config.micro_batch_tokens = 16_384
    assert largest_difference(together, alone) < 1e-5


def test_a_chunked_head_changes_neither_log_probs_nor_gradients(sharp_model_path, learner):
    examples = all_groups(family_at(sharp_model_path))
    whole, whole_metrics = gradients_of(learner, examples)
    learner.model.logits_mb = 1  # some 40 of 96 answer tokens
    chunked, chunked_metrics = gradients_of(learner, examples)
    learner.model.logits_mb = learner.config.logits_mb
    assert largest_difference(chunked, whole) < 1e-5
    assert chunked_metrics["learner/entropy"] == pytest.approx(whole_metrics["learner/entropy"])


def test_forbidden_tokens_have_no_probability(sharp_model_path, learner):
    family = family_at(sharp_model_path)
    [batch] = learner._batches(group(family, "video", (4,)), learner.clip_store)
    forbidden = torch.full_like(batch.target_ids, family.processor.video_token_id)
    scores = learner.model(replace(batch, target_ids=forbidden))
    assert scores.logprobs.exp().sum() == 0


def test_answers_never_hold_what_may_not_be_sampled(sharp_model_path):
    """Guards the cases of these tests."""
    family = family_at(sharp_model_path)
    drawn = {token for seed in range(50) for token in answer_ids(family, 9, seed)}
    assert not drawn & set(family.forbidden_token_ids)
