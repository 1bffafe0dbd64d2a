"""The frame rules of a checkpoint, read from the files that the families' checkpoints have."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoConfig, AutoVideoProcessor

from easyvideor1.preprocess.rules import FamilyRules, load_rules, rules_of
from easyvideor1.schema.errors import UserError
from tests.qwen_processors import QWEN2, QWEN3

MODEL_TYPES = {
    "qwen2_vl": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen3_vl": QWEN3,
    "qwen3_vl_moe": QWEN3,
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
}
QWEN3_PROCESSOR = "Qwen3VLVideoProcessor"


def write_checkpoint(folder: Path, model_type: str, file: str, settings: dict[str, Any]) -> str:
    AutoConfig.for_model(model_type).save_pretrained(folder)
    (folder / file).write_text(json.dumps(settings))
    return str(folder)


def transformers_rules(path: str, model_type: str) -> FamilyRules:
    """By the video processor that transformers loads from the folder."""
    return rules_of(AutoVideoProcessor.from_pretrained(path), model_type)


@pytest.mark.parametrize(("model_type", "rules"), MODEL_TYPES.items(), ids=MODEL_TYPES.keys())
def test_a_checkpoint_has_its_familys_rules(
    model_type: str, rules: FamilyRules, tmp_path: Path
) -> None:
    """The patch grid as in the published video_preprocessor_config.json of Qwen3-VL and 3.5."""
    settings = {
        "patch_size": rules.patch_size,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        "video_processor_type": QWEN3_PROCESSOR,
    }
    if rules is QWEN2:
        settings["video_processor_type"] = "Qwen2VLVideoProcessor"
    path = write_checkpoint(tmp_path, model_type, "video_preprocessor_config.json", settings)
    assert load_rules(path) == rules == transformers_rules(path, model_type)


@pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl"])
def test_a_checkpoint_with_the_image_processors_file_alone_has_rules(
    model_type: str, tmp_path: Path
) -> None:
    """As published for Qwen2-VL and Qwen2.5-VL, which have no file of a video processor."""
    settings = {
        "min_pixels": 3136,
        "max_pixels": 12845056,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_processor_type": "Qwen2VLImageProcessor",
    }
    path = write_checkpoint(tmp_path, model_type, "preprocessor_config.json", settings)
    assert load_rules(path) == QWEN2 == transformers_rules(path, model_type)


def test_the_nested_settings_of_newer_checkpoints_come_before_files_of_their_own(
    tmp_path: Path,
) -> None:
    grid = {"merge_size": 2, "temporal_patch_size": 2, "video_processor_type": QWEN3_PROCESSOR}
    nested = {"video_processor": {"patch_size": 16, **grid}, "image_processor": {"patch_size": 8}}
    path = write_checkpoint(tmp_path, "qwen3_vl", "processor_config.json", nested)
    assert load_rules(path) == QWEN3 == transformers_rules(path, "qwen3_vl")
    write_checkpoint(
        tmp_path, "qwen3_vl", "video_preprocessor_config.json", {"patch_size": 12, **grid}
    )
    write_checkpoint(tmp_path, "qwen3_vl", "preprocessor_config.json", {"patch_size": 10, **grid})
    assert load_rules(path) == QWEN3 == transformers_rules(path, "qwen3_vl")
    write_checkpoint(tmp_path, "qwen3_vl", "processor_config.json", {"image_processor": grid})
    assert load_rules(path).patch_size == transformers_rules(path, "qwen3_vl").patch_size == 12


def test_rules_that_the_files_state_are_read_without_torch(tiny_model_path: str) -> None:
    program = (
        "import sys\n"
        "from easyvideor1.preprocess.rules import load_rules\n"
        f"print(load_rules({tiny_model_path!r}), [m for m in ('torch', 'transformers') "
        "if m in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{QWEN3} []\n"


def test_another_patch_grid_comes_from_the_checkpoint(tmp_path: Path) -> None:
    """And what the file leaves out, here frames per token, from the family's processor."""
    settings = {"patch_size": 8, "merge_size": 4, "video_processor_type": QWEN3_PROCESSOR}
    path = write_checkpoint(tmp_path, "qwen3_5", "video_preprocessor_config.json", settings)
    rules = load_rules(path)
    assert (rules.name, rules.patch_size, rules.merge_size, rules.factor) == ("qwen3_vl", 8, 4, 32)


def test_an_unknown_model_type_is_refused_with_those_known() -> None:
    with pytest.raises(UserError, match=r"model type 'llava'; known: qwen2_5_vl, qwen2_vl, .*moe"):
        rules_of(SimpleNamespace(patch_size=14), "llava")


@pytest.mark.parametrize("missing", [{}, {"merge_size": None}, {"merge_size": 0}])
def test_a_processor_without_a_patch_grid_is_refused_by_name(missing: dict) -> None:
    processor = SimpleNamespace(patch_size=14, temporal_patch_size=2, **missing)
    with pytest.raises(UserError, match=r"has merge_size=.*video_preprocessor_config\.json"):
        rules_of(processor, "qwen2_vl")


def test_an_unknown_rule_set_is_refused() -> None:
    with pytest.raises(ValueError, match="'qwen9'; known: qwen2_vl, qwen3_vl"):
        FamilyRules(name="qwen9", patch_size=16, merge_size=2, temporal_patch_size=2)
