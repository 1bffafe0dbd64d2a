"""Checkpoints on one rank. Two ranks: `test_learner_ranks`; the folders: `test_run_folder`."""

import time

import pytest
import torch

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import folder_bytes
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


def test_what_is_written_meanwhile_is_the_state_when_it_began(sharp_model_path, tmp_path):
    """Two updates follow at once, before the first byte need be on the disk."""
    steps = [share_of(sharp_model_path, a + b) for a, b in list(SHARES.values())[:4]]
    learner = trainable_learner(sharp_model_path)
    for step in steps[:2]:
        learner.update(step)
    learner.save(tmp_path / "at_once")
    learner.begin_save(tmp_path / "meanwhile")
    for step in steps[2:]:
        learner.update(step)
    learner.finish_save()
    loaded = []
    for name in ("at_once", "meanwhile"):
        torch.manual_seed(99)
        loaded.append(trainable_learner(sharp_model_path))
        loaded[-1].load(tmp_path / name)
        loaded.append(torch.get_rng_state())
    assert same_state(loaded[0], loaded[2])
    assert torch.equal(loaded[1], loaded[3])
    assert not same_state(loaded[0], learner)


def test_a_checkpoint_takes_what_it_was_said_to_take(sharp_model_path, tmp_path):
    for freeze in ([], [FrozenPart.vision, FrozenPart.merger]):
        learner = make_learner(sharp_model_path, freeze=freeze)
        learner.update(group(family_at(sharp_model_path), "video", (4, 6)))
        folder = tmp_path / f"frozen_{len(freeze)}"
        learner.save(folder / "learner")
        learner.export(folder / "export")
        said = learner.checkpoint_bytes()
        taken = {path.name: folder_bytes(path) for path in (folder / "learner").iterdir()}
        taken |= {"export": folder_bytes(folder / "export")}
        assert taken["weights"] == pytest.approx(said.weights, rel=0.01)
        assert taken["training"] == pytest.approx(said.training, rel=0.01)
        assert taken["export"] == pytest.approx(said.export, rel=0.02)  # and the tokenizer
        assert said.full == said.weights + said.training


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_disk_that_cannot_be_written_is_named(sharp_model_path, tmp_path, meanwhile):
    learner = trainable_learner(sharp_model_path)
    (tmp_path / "step_000001").write_text("a file where the folder would be")
    with pytest.raises(UserError, match=r"step_000001 cannot be written: NotADirectoryError"):
        if meanwhile:
            learner.begin_save(tmp_path / "step_000001" / "learner")
            learner.finish_save()
        else:
            learner.save(tmp_path / "step_000001" / "learner")


def test_an_update_tells_of_a_checkpoint_that_could_not_be_written(sharp_model_path, tmp_path):
    learner = trainable_learner(sharp_model_path)
    (tmp_path / "step_000001").write_text("a file where the folder would be")
    learner.begin_save(tmp_path / "step_000001" / "learner")
    deadline = time.monotonic() + 60
    with pytest.raises(UserError, match="step_000001 cannot be written"):
        while time.monotonic() < deadline:
            learner.update(group(family_at(sharp_model_path), "text", (4,)))


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
