"""A run's folder: sealed checkpoints, where a run continues, and what it refuses."""

import json
import shutil
from dataclasses import asdict

import pytest

from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    DynamicSamplingConfig,
)
from easyvideor1.train.config import Attention, WarmStartConfig
from easyvideor1.train.interfaces import SAVED_TRAINING, SAVED_WEIGHTS, Position
from easyvideor1.train.run_folder import RunFolder, flatten, with_defaults


def seal(folder: RunFolder, **position) -> None:
    draft = folder.draft(Position(**position), {"data": {}})
    (draft.path / "learner" / SAVED_WEIGHTS).mkdir(parents=True)
    (draft.path / "learner" / SAVED_TRAINING).mkdir()
    draft.seal()


@pytest.fixture
def folder(table, tmp_path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.begin(table.config(folder.path, steps=4))
    return folder


def test_a_checkpoint_is_found_only_when_it_is_whole(folder):
    folder.draft(Position(step=1), {})
    assert folder.checkpoints() == []
    seal(folder, step=1)
    assert [c.folder.name for c in folder.checkpoints()] == ["step_000001"]


def test_what_a_killed_save_left_is_removed_at_the_next_start(table, folder):
    partial = folder.path / "checkpoints" / ".step_000001.x1"
    partial.mkdir()
    folder.begin(table.config(folder.path, steps=4))
    assert not partial.exists()


def test_checkpoints_are_ordered_warm_start_first(folder):
    for position in ({"step": 10}, {"step": 2}, {"warm_start_step": 50}):
        seal(folder, **position)
    names = [c.folder.name for c in folder.checkpoints()]
    assert names == ["warm_start_000050", "step_000002", "step_000010"]


def test_auto_continues_from_the_newest_checkpoint(table, folder):
    config = table.config(folder.path, steps=4)
    assert folder.starting_point(config) is None
    seal(folder, step=2)
    start = folder.starting_point(table.config(folder.path, steps=8, save_every=1))
    assert start is not None and start.position.step == 2


def test_another_config_is_refused_with_the_differing_fields(table, folder):
    seal(folder, step=2)
    other = table.config(folder.path, steps=4)
    other.rollout.group_size = 16
    other.learner.optimizer.lr = 0.5
    other.learner.ranks = 4
    with pytest.raises(UserError) as error:
        folder.starting_point(other)
    assert "rollout.group_size (4 there, 16 now)" in str(error.value)
    assert "learner.optimizer.lr" in str(error.value)
    assert "learner.ranks" not in str(error.value), "a run may continue on other ranks"


def test_a_setting_younger_than_the_run_had_its_default(table, folder):
    seal(folder, step=2)
    path = folder.path / "config.json"
    stored = json.loads(path.read_text())
    del stored["learner"]["attention"]
    path.write_text(json.dumps(stored))
    config = table.config(folder.path, steps=4)
    assert folder.starting_point(config) is not None
    config.learner.attention = Attention.eager
    with pytest.raises(UserError, match=r"learner.attention \('sdpa' there, 'eager' now\)"):
        folder.starting_point(config)


def test_names_that_a_stored_dict_lacks_were_not_set(table, folder):
    config = table.config(folder.path, steps=4)
    config.algorithm.advantage = AdvantageConfig(name=AdvantageName.gdpo, keys={"accuracy": 1.0})
    del config.reward.tasks["ocr"]
    folder.begin(config)
    seal(folder, step=2)
    assert folder.starting_point(config) is not None
    config.algorithm.advantage.keys["format"] = 1.0
    with pytest.raises(UserError, match=r"keys.format \(None there, 1.0 now\)"):
        folder.starting_point(config)


def test_defaults_fill_groups_and_not_dicts_of_free_names(table, folder):
    stored = {"reward": {"tasks": {"code": {"prompt": None}}}, "learner": {"ranks": 2}}
    complete = with_defaults(stored, table.config(folder.path, steps=4))
    assert complete["reward"]["tasks"] == {"code": {"prompt": None}}
    assert complete["reward"]["workers"] == RewardConfig().workers
    assert complete["learner"]["ranks"] == 2 and complete["learner"]["attention"] == "sdpa"
    assert complete["train"]["steps"] == 4


def test_a_run_whose_batch_was_never_full_goes_on_with_more_draws_or_without(table, folder):
    def config(**rule):
        config = table.config(folder.path, steps=4)
        config.algorithm.dynamic_sampling = DynamicSamplingConfig(**rule)
        return config

    folder.begin(config(enabled=True))
    seal(folder, step=2)
    assert folder.starting_point(config(enabled=True, max_draws=30)) is not None
    assert folder.starting_point(config(enabled=False)) is not None
    with pytest.raises(UserError, match=r"dynamic_sampling\.key"):
        folder.starting_point(config(enabled=True, key="format"))


def test_without_a_checkpoint_another_config_starts_anew(table, folder):
    other = table.config(folder.path, steps=4)
    other.rollout.group_size = 16
    assert folder.starting_point(other) is None


def test_never_refuses_a_folder_that_holds_a_run(table, folder):
    config = table.config(folder.path, steps=4, resume="never")
    assert folder.starting_point(config) is None
    seal(folder, step=2)
    with pytest.raises(UserError, match="already holds step_000002"):
        folder.starting_point(config)


def test_a_run_can_branch_off_another_ones_warm_start(table, folder, tmp_path):
    seal(folder, warm_start_step=5)
    seal(folder, step=2, warm_start_step=5)
    source = folder.path / "checkpoints" / "warm_start_000005"
    folder.begin(table.config(folder.path, steps=4, warm_start=WarmStartConfig(steps=5)))
    longer = WarmStartConfig(steps=9)
    config = table.config(tmp_path / "b", steps=0, warm_start=longer, resume=str(source))
    branch = RunFolder(tmp_path / "b")
    start = branch.starting_point(config)
    assert start is not None and start.position.warm_start_step == 5
    # Started again, the branch continues itself.
    branch.begin(config)
    seal(branch, warm_start_step=7)
    start = branch.starting_point(config)
    assert start is not None and start.position.warm_start_step == 7


def test_resuming_from_a_path_without_a_checkpoint_is_an_error(table, folder, tmp_path):
    with pytest.raises(UserError, match="holds no checkpoint; give auto, never"):
        folder.starting_point(table.config(folder.path, steps=4, resume=str(tmp_path / "none")))


def test_going_back_within_a_run_names_what_is_in_the_way(table, folder):
    for step in (1, 2, 3):
        seal(folder, step=step)
    older = folder.path / "checkpoints" / "step_000001"
    with pytest.raises(UserError, match="older than step_000002, step_000003"):
        folder.starting_point(table.config(folder.path, steps=4, resume=str(older)))


def test_fewer_steps_than_done_are_refused(table, folder):
    seal(folder, step=4)
    with pytest.raises(UserError, match="lies beyond train"):
        folder.starting_point(table.config(folder.path, steps=2))


def test_a_checkpoint_of_weights_alone_is_passed_over_and_refused_by_name(table, folder, tmp_path):
    for step in (1, 2):
        seal(folder, step=step)
    first, second = (c.learner for c in folder.checkpoints())
    shutil.rmtree(second / SAVED_TRAINING)
    config = table.config(folder.path, steps=4)
    start = folder.starting_point(config)
    assert start is not None and start.position.step == 1
    shutil.rmtree(first / SAVED_TRAINING)
    branch = table.config(tmp_path / "branch", steps=4, resume=str(first.parent))
    with pytest.raises(UserError, match=r"kept for its weights alone.*job=export"):
        RunFolder(tmp_path / "branch").starting_point(branch)


def test_a_run_is_finished_when_its_goal_is_reached_and_exported(table, folder):
    config = table.config(folder.path, steps=4)
    position = Position(step=4, validation=0.5)
    seal(folder, **asdict(position))
    assert not folder.is_finished(config)
    folder.finish(0.5)
    folder.export.mkdir()
    (folder.export / "config.json").write_text("{}")
    assert folder.is_finished(config)
    assert not folder.is_finished(table.config(folder.path, steps=5))


def test_the_stored_config_is_plain_json(table, folder):
    stored = flatten(json.loads((folder.path / "config.json").read_text()))
    assert stored["rollout.group_size"] == 4
    assert stored["mixing.mode"] == "none"
