"""The budgets in conf/budget."""

import pytest
from qwen_vl_utils import vision_process

from easyvideor1.preprocess.config import PreprocessConfig, register
from easyvideor1.schema.budget import Budgets, Convention, FrameBudget
from easyvideor1.schema.conf import compose, conf_dir

BUDGETS = sorted(path.stem for path in (conf_dir() / "budget").glob("*.yaml"))


def composed(name: str) -> Budgets:
    register()
    return compose("preprocess", [f"budget={name}"], PreprocessConfig).budget


@pytest.mark.parametrize("name", BUDGETS)
def test_every_budget_composes(name: str) -> None:
    budget = composed(name)
    assert isinstance(budget.video, FrameBudget)
    assert budget.video.convention is budget.image.convention


def test_the_budget_of_qwen_vl_utils_has_the_librarys_defaults() -> None:
    budget = composed("qwen_vl_utils")
    pixels_per_token = (16 * vision_process.SPATIAL_MERGE_SIZE) ** 2
    assert budget.video == FrameBudget(
        fps=vision_process.FPS,
        min_frames=vision_process.FPS_MIN_FRAMES,
        max_frames=vision_process.FPS_MAX_FRAMES,
        min_pixels=vision_process.VIDEO_MIN_TOKEN_NUM * pixels_per_token,
        max_pixels=vision_process.VIDEO_MAX_TOKEN_NUM * pixels_per_token,
        convention=Convention.qwen_vl_utils,
    )
    assert budget.image.convention is Convention.qwen_vl_utils
    assert budget.image.min_pixels == vision_process.IMAGE_MIN_TOKEN_NUM * pixels_per_token
    assert budget.image.max_pixels == vision_process.IMAGE_MAX_TOKEN_NUM * pixels_per_token
