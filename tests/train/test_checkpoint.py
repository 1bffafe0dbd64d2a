"""Checkpoints on one rank. Two ranks: `test_learner_ranks`; the folders: `test_run_folder`."""

import pytest
import torch

from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import FrozenPart
from tests.train.policy_cases import (
    family_at,
    group,
    make_learner,
    trainable_learner,
    without_memory,
)
from tests.train.rank_cases import SHARES, same_state, share_of


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(sharp_model_path, tmp_path):
    steps = [share_of(sharp_model_path, a + b) for a, b in list(SHARES.values())[:4]]
    straight = trainable_learner(sharp_model_path)
    for step in steps[:2]:
        straight.update(step)
    straight.save(tmp_path / "learner")
    torch.rand(3)
    after_save = torch.get_rng_state()
    metrics = [without_memory(straight.update(step)) for step in steps[2:]]

    torch.manual_seed(99)
    resumed = trainable_learner(sharp_model_path)
    resumed.load(tmp_path / "learner")
    torch.rand(3)
    assert torch.equal(torch.get_rng_state(), after_save)
    assert [without_memory(resumed.update(step)) for step in steps[2:]] == metrics
    assert same_state(straight, resumed)


def test_an_untouched_learner_can_be_saved_and_loaded(sharp_model_path, tmp_path):
    """Before the first update the optimizer has no moments."""
    learner = trainable_learner(sharp_model_path)
    learner.save(tmp_path / "learner")
    weights = {name: value.clone() for name, value in learner.gather_weights()}
    learner.update(group(family_at(sharp_model_path), "video", (4,)))
    learner.load(tmp_path / "learner")
    assert learner.num_updates == 0
    assert all(torch.equal(value, weights[name]) for name, value in learner.gather_weights())


def test_a_frozen_tower_is_saved_too(sharp_model_path, tmp_path):
    examples = group(family_at(sharp_model_path), "video", (4, 6))
    learner = make_learner(sharp_model_path, freeze=[FrozenPart.vision, FrozenPart.merger])
    learner.update(examples)
    learner.save(tmp_path / "learner")
    loaded = make_learner(sharp_model_path, freeze=[FrozenPart.vision, FrozenPart.merger])
    loaded.load(tmp_path / "learner")
    assert dict(loaded.update(examples)) == learner.update(examples)


def test_recomputing_activations_does_not_change_what_is_saved(sharp_model_path, tmp_path):
    examples = group(family_at(sharp_model_path), "video", (4, 6))
    recomputing = make_learner(sharp_model_path, activation_checkpointing=True)
    recomputing.update(examples)
    recomputing.save(tmp_path / "learner")
    plain = make_learner(sharp_model_path)
    plain.load(tmp_path / "learner")
    assert same_state(recomputing, plain)


def test_a_folder_without_a_learner_is_refused(sharp_model_path, tmp_path):
    with pytest.raises(UserError, match="is not a learner checkpoint"):
        trainable_learner(sharp_model_path).load(tmp_path)
