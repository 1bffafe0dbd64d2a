"""The exported folder is an ordinary checkpoint: plain transformers loads it, equal logits."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.clips import sample_about
from tests.train.policy_cases import (
    CLIPS,
    all_groups,
    family_at,
    group,
    plain_inputs,
    trainable_learner,
)


@pytest.fixture(scope="module")
def learner(sharp_model_path: Path):
    learner = trainable_learner(sharp_model_path)
    learner.update(all_groups(family_at(sharp_model_path)))
    return learner


@pytest.fixture(scope="module")
def exported(learner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    learner.export(folder)
    return folder


def test_plain_transformers_gives_the_learners_logits(learner, exported, sharp_model_path):
    family = family_at(sharp_model_path)
    model = AutoModelForImageTextToText.from_pretrained(exported)
    model.eval()
    for name in CLIPS:
        [one] = group(family, name, (6,))
        inputs = plain_inputs(family, name)
        answer = torch.tensor([one.completion.token_ids])
        prompt_length = inputs["input_ids"].shape[1]
        inputs["input_ids"] = ids = torch.cat([inputs["input_ids"], answer], dim=1)
        inputs["attention_mask"] = torch.ones_like(ids)
        kinds = inputs["mm_token_type_ids"]
        inputs["mm_token_type_ids"] = torch.cat([kinds, torch.zeros_like(answer)], dim=1)
        with torch.no_grad():
            logits = model(**inputs).logits[0, prompt_length - 1 : -1]
        logits[:, list(family.forbidden_token_ids)] = -torch.inf
        expected = logits.log_softmax(-1).gather(1, ids[0, prompt_length:, None])[:, 0]
        [ours] = learner.logprobs([one])
        torch.testing.assert_close(torch.tensor(ours), expected, atol=2e-5, rtol=0)


def test_the_weights_are_the_learners(learner, exported):
    stored = {}
    for file in exported.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            stored |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    weights = dict(learner.gather_weights())
    assert weights.keys() - stored.keys() <= {"lm_head.weight"}  # tied to the embedding
    assert all(torch.equal(stored[name], weights[name]) for name in stored)


def test_processor_tokenizer_and_end_tokens_are_those_of_the_original(exported, sharp_model_path):
    family, copied = family_at(sharp_model_path), family_at(exported)
    about = sample_about(CLIPS["video"])
    assert copied.prompt_token_ids(about, "Answer.") == family.prompt_token_ids(about, "Answer.")
    assert copied.eos_token_ids == family.eos_token_ids
    assert copied.forbidden_token_ids == family.forbidden_token_ids
    assert AutoProcessor.from_pretrained(exported).chat_template == family.processor.chat_template


def test_the_dtype_of_the_original_checkpoint_is_kept(sharp_model_path, tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(sharp_model_path).to(torch.bfloat16)
    family = family_at(sharp_model_path)
    half = tmp_path / "half"
    model.save_pretrained(half)
    family.processor.save_pretrained(half)
    learner = trainable_learner(half)
    assert learner.model.hf.dtype == torch.float32
    learner.export(tmp_path / "export")
    assert json.loads((tmp_path / "export" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "export")
    for name, value in loaded.state_dict().items():
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, model.state_dict()[name])


def test_an_older_export_is_replaced(learner, exported):
    (exported / "stale").write_text("old")
    learner.export(exported)
    assert not (exported / "stale").exists()
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]
