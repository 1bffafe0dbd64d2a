"""Checkpoints on one rank, and the folders around them. Two ranks: `test_learner_ranks`."""

from pathlib import Path

import pytest
import torch

from easyvideor1.schema.errors import UserError
from easyvideor1.train import checkpoint
from tests.train.policy_cases import family_at, group, make_learner, trainable_learner
from tests.train.rank_cases import SHARES, same_state, share_of


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(sharp_model_path, tmp_path):
    steps = [share_of(sharp_model_path, a + b) for a, b in list(SHARES.values())[:4]]
    straight = trainable_learner(sharp_model_path)
    for step in steps[:2]:
        straight.update(step)
    straight.save(tmp_path / "learner")
    torch.rand(3)
    after_save = torch.get_rng_state()
    metrics = [straight.update(step) for step in steps[2:]]

    torch.manual_seed(99)
    resumed = trainable_learner(sharp_model_path)
    resumed.load(tmp_path / "learner")
    torch.rand(3)
    assert torch.equal(torch.get_rng_state(), after_save)
    assert [resumed.update(step) for step in steps[2:]] == metrics
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
    learner = make_learner(sharp_model_path, freeze_vision=True)
    learner.update(examples)
    learner.save(tmp_path / "learner")
    loaded = make_learner(sharp_model_path, freeze_vision=True)
    loaded.load(tmp_path / "learner")
    assert dict(loaded.update(examples)) == learner.update(examples)


def test_a_folder_without_a_learner_is_refused(sharp_model_path, tmp_path):
    with pytest.raises(UserError, match="is not a learner checkpoint"):
        trainable_learner(sharp_model_path).load(tmp_path)


def write_text(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "file").write_text("content")


def commit(root: Path, step: int, score: float | None = None) -> None:
    checkpoint.commit(root / f"step_{step:06d}", write_text, step=step, score=score)


def test_a_committed_checkpoint_is_found_with_its_state(tmp_path):
    made = checkpoint.commit(
        tmp_path / "step_000002", write_text, step=2, score=0.5, state={"data": {"epoch": 1}}
    )
    assert checkpoint.find(tmp_path) == [made]
    assert checkpoint.read(made.path) == made
    assert (made.path / "part" / "file").read_text() == "content"


def test_a_write_that_fails_leaves_nothing_to_find(tmp_path):
    commit(tmp_path, 1)

    def fail(folder: Path) -> None:
        write_text(folder)
        raise OSError("disk full")

    for name in ("step_000002", "step_000001"):
        with pytest.raises(OSError, match="disk full"):
            checkpoint.commit(tmp_path / name, fail, step=2)
    assert [made.step for made in checkpoint.find(tmp_path)] == [1]
    commit(tmp_path, 2)  # the left-overs are no hindrance
    assert [made.step for made in checkpoint.find(tmp_path)] == [1, 2]


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step, score in ((1, 0.3), (2, 0.9), (3, 0.9), (4, None), (5, 0.1), (6, 0.2)):
        commit(tmp_path, step, score)
    gone = checkpoint.prune(tmp_path, keep_last=2, keep_best=1)
    assert [made.step for made in checkpoint.find(tmp_path)] == [2, 5, 6]
    assert [path.name for path in gone] == ["step_000001", "step_000003", "step_000004"]
    checkpoint.prune(tmp_path, keep_last=1, keep_best=0)
    assert [made.step for made in checkpoint.find(tmp_path)] == [6]
    assert [path.name for path in tmp_path.iterdir()] == ["step_000006"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    commit(tmp_path, 1)
    manifest = tmp_path / "step_000001" / checkpoint.MANIFEST
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 7'))
    with pytest.raises(UserError, match="has format 7, this version reads 1"):
        checkpoint.find(tmp_path)
    with pytest.raises(UserError, match="is not a checkpoint"):
        checkpoint.read(tmp_path)
