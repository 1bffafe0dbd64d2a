"""Prompts of a real family: their length, and samples that cannot be asked."""

from dataclasses import replace

import pytest

from easyvideor1.preprocess.config import CacheConfig, CacheMode
from easyvideor1.preprocess.families import load_family
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Media, MediaKind
from easyvideor1.train.inputs import Inputs, open_store


@pytest.fixture(scope="module")
def family(tiny_model_path):
    return load_family(tiny_model_path)


@pytest.fixture(scope="module")
def toybox(toybox_dir):
    return list(read_samples(toybox_dir / "train.jsonl"))


def make_config(table, tmp_path, *, on_bad_row="raise", max_prompt_tokens=500):
    config = table.config(tmp_path, steps=1)
    budget = FrameBudget(min_frames=4, max_frames=4, min_pixels=4096, max_pixels=4096)
    config.budget = Budgets(
        video=budget, validation_video=replace(budget, min_frames=2, max_frames=2)
    )
    config.cache = CacheConfig(mode=CacheMode.live)
    config.data.on_bad_row = on_bad_row
    config.rollout.max_prompt_tokens = max_prompt_tokens
    return config


def open_inputs(table, tmp_path, family, **changes):
    return Inputs(make_config(table, tmp_path, **changes), family)


def test_a_prompt_has_one_placeholder_and_knows_its_expanded_length(
    table, tmp_path, family, toybox
):
    inputs = open_inputs(table, tmp_path, family)
    (prompt,) = inputs.training(toybox[:1]).take(1)
    assert prompt.token_ids.count(family.processor.video_token_id) == 1
    store = open_store(make_config(table, tmp_path), family.rules, validation=False)
    clips = store.load(prompt.sample)
    expanded = family.learner_inputs(prompt.token_ids, clips)
    assert prompt.num_tokens == len(expanded.token_ids)


def test_validation_has_its_own_budget(table, tmp_path, family, toybox):
    inputs = open_inputs(table, tmp_path, family)
    (training,) = inputs.training(toybox[:1]).take(1)
    (validation,) = inputs.validation(toybox[:1])
    assert validation.token_ids == training.token_ids
    assert validation.num_tokens < training.num_tokens


def test_a_sample_that_cannot_be_asked_ends_the_run_or_is_counted(table, tmp_path, family, toybox):
    lost = replace(
        toybox[0], id="lost", media=(Media(kind=MediaKind.video, path=str(tmp_path / "no.mp4")),)
    )
    hidden = replace(toybox[0], id="hidden", answer=None)
    for bad, reason in ((lost, "DecodeError"), (hidden, "UserError")):
        with pytest.raises(UserError):
            open_inputs(table, tmp_path, family).training([bad, toybox[1]]).take(2)
        data = open_inputs(table, tmp_path, family, on_bad_row="skip").training([bad, toybox[1]])
        assert {prompt.sample.id for prompt in data.take(2)} == {toybox[1].id}
        assert data.metrics()[f"data/dropped/{reason}"] == 1.0


def test_validation_says_what_it_leaves_out(table, tmp_path, family, toybox, capsys):
    hidden = replace(toybox[0], answer=None)
    inputs = open_inputs(table, tmp_path, family, on_bad_row="skip")
    assert len(inputs.validation([hidden, toybox[1]])) == 1
    assert "validation leaves out 1 of 2 samples: 1 UserError" in capsys.readouterr().out
    short = open_inputs(table, tmp_path, family, max_prompt_tokens=5)
    assert short.validation(toybox[:2]) == []
    assert "2 prompt_too_long" in capsys.readouterr().out


def test_toybox_trajectories_are_usable_and_end_with_the_end_of_the_turn(
    table, tmp_path, family, toybox
):
    inputs = open_inputs(table, tmp_path, family)
    inputs.reader.max_tokens = 128
    with_offline = [sample for sample in toybox if sample.offline]
    assert with_offline
    for sample in with_offline:
        (usable, *_) = inputs.reader.read(sample)
        assert usable.completion.token_ids[-1] == family.eos_token_ids[0]
        assert family.tokenizer.decode(usable.completion.token_ids[:-1]) == usable.completion.text
        assert usable.score.value == 1.0
        assert any(usable.in_answer)
    assert inputs.reader.refused == {}


def test_a_trajectory_with_a_control_token_is_refused(table, tmp_path, family, toybox):
    reader = open_inputs(table, tmp_path, family).reader
    sample = next(sample for sample in toybox if sample.offline)
    for token in ("<|im_end|>", "<|video_pad|>", "<|vision_start|>"):
        bad = replace(sample.offline[0], text=token + sample.offline[0].text)
        assert reader.read(replace(sample, id=token, offline=(bad,))) == []
        assert reader.refused[f"{token}#0"] == "special_tokens"
