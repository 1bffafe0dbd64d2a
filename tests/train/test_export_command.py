"""`job=export`: any checkpoint of a run becomes the folder that the run itself would write."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import write_json
from easyvideor1.train.config import RolloutConfig
from easyvideor1.train.export_command import run
from easyvideor1.train.interfaces import SAVED_TRAINING, Position
from easyvideor1.train.run_folder import RunFolder
from tests.train.policy_cases import all_groups, family_at, trainable_learner

SAMPLING: dict[str, Any] = {
    "temperature": 0.8,
    "top_p": 0.95,
    "top_k": 40,
    "repetition_penalty": 1.05,
}


@pytest.fixture(scope="module")
def trained(sharp_model_path: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run of two checkpoints, and what the learner itself exports of each."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    learner = trainable_learner(sharp_model_path, activation_checkpointing=True)
    for step, accuracy in ((1, 0.9), (2, 0.4)):
        learner.update(all_groups(family_at(sharp_model_path)))
        draft = folder.draft(Position(step=step, validation=accuracy), {})
        learner.save(draft.path / "learner")
        draft.seal()
        learner.export(folder.path / f"live_{step}", RolloutConfig(**SAMPLING))
    model = {"path": str(sharp_model_path), "dtype": "auto", "trust_remote_code": False}
    write_json(folder.path / "config.json", {"model": model, "rollout": SAMPLING})
    return folder


def config_of(table, trained, **export):
    config = table.config(trained.path)
    for name, value in export.items():
        setattr(config.export, name, value)
    return config


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_is_what_the_run_itself_writes(table, trained, tmp_path):
    """To the last byte: weights, config, generation config, tokenizer, processor."""
    folder = run(config_of(table, trained, folder=str(tmp_path / "model")))
    assert folder == tmp_path / "model"
    assert files_of(folder) == files_of(trained.path / "live_2")
    assert torch.is_tensor(AutoModelForImageTextToText.from_pretrained(folder).lm_head.weight)
    AutoProcessor.from_pretrained(folder)


def test_the_best_may_be_weights_alone(table, trained):
    first, _ = trained.checkpoints()
    shutil.rmtree(first.learner / SAVED_TRAINING)
    folder = run(config_of(table, trained, checkpoint="best"))
    assert folder == trained.path / "exports" / "step_000001"
    assert files_of(folder) == files_of(trained.path / "live_1")
    with pytest.raises(UserError, match=r"exports/step_000001 is there already; remove it"):
        run(config_of(table, trained, checkpoint=str(first.folder)))
    with pytest.raises(UserError, match=r"step_000001 holds whole weights and no adapters"):
        run(config_of(table, trained, checkpoint=str(first.folder), folder="other", adapter=True))


def test_it_recommends_to_sample_as_in_training(trained, sharp_model_path):
    family = family_at(sharp_model_path)
    recommended = GenerationConfig.from_pretrained(trained.path / "live_2")
    assert {name: getattr(recommended, name) for name in SAMPLING} == SAMPLING
    assert recommended.do_sample and recommended.min_p is None
    assert recommended.suppress_tokens == list(family.forbidden_token_ids)
    original = GenerationConfig.from_pretrained(sharp_model_path)
    assert recommended.eos_token_id == original.eos_token_id


def test_what_training_never_samples_transformers_does_not_either(trained, sharp_model_path):
    model = AutoModelForImageTextToText.from_pretrained(trained.path / "live_2")
    never_sampled = set(family_at(sharp_model_path).forbidden_token_ids)
    # What follows the end of an answer is padding.
    forbidden = torch.tensor(sorted(never_sampled - {model.generation_config.pad_token_id}))
    with torch.no_grad():
        # They would be all that is sampled.
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        model.lm_head.weight[forbidden] *= 100
    torch.manual_seed(0)
    ids = torch.tensor([[5, 6, 7]])
    answers = model.generate(input_ids=ids, max_new_tokens=40, num_return_sequences=8)
    assert not torch.isin(answers, forbidden).any()
    free = model.generate(
        input_ids=ids, max_new_tokens=40, num_return_sequences=8, suppress_tokens=None
    )
    assert torch.isin(free, forbidden).any()


def test_a_model_that_has_moved_is_asked_for(table, trained, tmp_path, sharp_model_path):
    moved = RunFolder(tmp_path / "moved")
    shutil.copytree(trained.path / "checkpoints", moved.path / "checkpoints")
    stored = json.loads((trained.path / "config.json").read_text())
    stored["model"]["path"] = str(tmp_path / "nowhere")
    write_json(moved.path / "config.json", stored)
    with pytest.raises(UserError, match=r"nowhere.*is not there.*export\.model="):
        run(config_of(table, moved))
    folder = run(config_of(table, moved, model=str(sharp_model_path)))
    assert files_of(folder) == files_of(trained.path / "live_2")


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        ({"checkpoint": "nowhere/step_000003"}, "is no checkpoint; give newest, best or a folder"),
        ({}, "holds no checkpoint; give the run_name or output_dir"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(table, tmp_path, export, expected):
    with pytest.raises(UserError, match=expected):
        run(config_of(table, RunFolder(tmp_path), **export))


def test_the_best_is_known_only_where_one_was_validated(table, tmp_path):
    folder = RunFolder(tmp_path)
    folder.draft(Position(step=1), {}).seal()
    with pytest.raises(UserError, match=r"none of the checkpoints .* was validated"):
        run(config_of(table, folder, checkpoint="best"))
