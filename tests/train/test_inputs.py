"""Prompts of a real family: their length, and samples that cannot be asked."""

from dataclasses import replace

import pytest

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.config import CacheConfig, CacheMode, Overlong
from easyvideor1.preprocess.families import load_family
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.train.inputs import Inputs, open_store


@pytest.fixture(scope="module")
def family(tiny_model_path):
    return load_family(tiny_model_path)


@pytest.fixture(scope="module")
def toybox(toybox_dir):
    return list(read_samples(toybox_dir / "train.jsonl"))


def make_config(table, tmp_path, *, max_prompt_tokens=500, overlong=Overlong.drop):
    config = table.config(tmp_path, steps=1)
    budget = FrameBudget(min_frames=4, max_frames=4, min_pixels=4096, max_pixels=4096)
    config.budget = Budgets(
        video=budget, validation_video=replace(budget, min_frames=2, max_frames=2)
    )
    config.cache = CacheConfig(mode=CacheMode.live)
    config.data.overlong = overlong
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
    store = open_store(make_config(table, tmp_path), family, validation=False)
    clips = store.load(prompt.sample)
    expanded = family.learner_inputs(prompt.token_ids, clips)
    assert prompt.num_tokens == len(expanded.token_ids)


def test_validation_has_its_own_budget(table, tmp_path, family, toybox):
    inputs = open_inputs(table, tmp_path, family)
    (training,) = inputs.training(toybox[:1]).take(1)
    (validation,) = inputs.validation(toybox[:1])
    assert validation.token_ids == training.token_ids
    assert validation.num_tokens < training.num_tokens


def test_nothing_is_decoded_to_measure_a_prompt(table, tmp_path, family, toybox, monkeypatch):
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    inputs = open_inputs(table, tmp_path, family)
    assert len(inputs.training(toybox).take(len(toybox))) == len(toybox)
    assert len(inputs.validation(toybox)) == len(toybox)
    assert decode_counter.total(tmp_path / "counts") == 0


def test_validation_says_what_it_leaves_out(table, tmp_path, family, toybox, capsys):
    hidden = replace(toybox[0], answer=None)
    inputs = open_inputs(table, tmp_path, family)
    assert len(inputs.validation([hidden, toybox[1]])) == 1
    told = capsys.readouterr().out
    assert "validation leaves out 1 of 2 samples: 1 hidden_answer" in told
    assert f"validation sample {hidden.id!r}: hidden_answer: its gold answer is null" in told
    short = open_inputs(table, tmp_path, family, max_prompt_tokens=5)
    assert short.validation(toybox[:2]) == []
    assert "2 prompt_too_long" in capsys.readouterr().out


def test_a_setting_that_is_wrong_for_all_samples_is_no_refusal(table, tmp_path, family, toybox):
    config = make_config(table, tmp_path)
    config.reward.prompts = str(tmp_path / "absent")
    with pytest.raises(UserError, match="reward"):
        Inputs(config, family).training(toybox).take(1)


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


def test_an_overlong_sample_is_rescaled_to_the_most_that_fits(table, tmp_path, family, toybox):
    (usual,) = open_inputs(table, tmp_path, family).training(toybox[:1]).take(1)
    inputs = open_inputs(
        table, tmp_path, family, max_prompt_tokens=usual.num_tokens - 1, overlong=Overlong.rescale
    )
    # No fewer pixels than min_pixels, and min_frames are all frames there are.
    with pytest.raises(UserError, match="prompt_too_long"):
        inputs.training(toybox[:1]).take(1)

    config = make_config(table, tmp_path, overlong=Overlong.rescale)
    config.budget.video = replace(config.budget.video, min_pixels=1024)
    config.rollout.max_prompt_tokens = usual.num_tokens - 1
    data = Inputs(config, family).training(toybox[:1])
    (rescaled,) = data.take(1)
    assert rescaled.token_ids == usual.token_ids
    assert rescaled.rescaled == "video.max_pixels 4096 -> 3072"
    assert data.metrics()["data/rescaled"] == 1.0

    clips = open_store(config, family, validation=False).load(toybox[0])
    assert [clip.shape for clip in clips] == [(4, 3, 32, 32)]
    assert rescaled.num_tokens == len(family.learner_inputs(usual.token_ids, clips).token_ids)
    # 2 temporal patches of 4 tokens become 2 of 1.
    assert rescaled.num_tokens == usual.num_tokens - 6
