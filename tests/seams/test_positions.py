"""M-RoPE: our positions are vLLM's for every family, Hugging Face's where it keeps Qwen's rule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families.mrope import Grid, mrope_positions
from tests.clips import video
from tests.live_engine import LiveEngine
from tests.processor_inputs import INSTRUCTION, by_processor
from tests.seams.cases import CASE_NAMES, FAMILIES, clips_of, prompt_of, question
from tests.seams.engine_inputs import engine_positions, rendered
from tests.train.policy_cases import family_at

OLD_FAMILIES = ("qwen2_vl", "qwen2_5_vl")
VIDEO_CASES = ("video", "two videos", "image and video")


@pytest.mark.parametrize("case", CASE_NAMES)
def test_positions_are_those_of_the_engine(family_engine: LiveEngine, case: str) -> None:
    family = family_engine.family
    clips = clips_of(case, family.rules.factor)
    prompt = family.prompt_token_ids(question(case, clips), INSTRUCTION)
    theirs = engine_positions(family_engine, rendered(family_engine, prompt, clips))
    assert torch.equal(family.learner_inputs(prompt, clips).position_ids, theirs)


def by_transformers(path: Path, case: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Our positions and those of `get_rope_index` for the processor's own inputs."""
    family = family_at(path)
    clips = clips_of(case, family.rules.factor)
    inputs = by_processor(family, clips)
    arguments: dict[str, Any] = {
        name: inputs.get(name) for name in ("image_grid_thw", "video_grid_thw")
    }
    if inputs.get("second_per_grid_ts") is not None:
        arguments["second_per_grid_ts"] = torch.as_tensor(inputs["second_per_grid_ts"])
    model = AutoModelForImageTextToText.from_pretrained(path)
    theirs, _ = model.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], **arguments
    )
    prompt = prompt_of(family, case, clips)
    return family.learner_inputs(prompt.token_ids, clips).position_ids, theirs[:, 0]


@pytest.mark.parametrize(
    ("name", "case"),
    [
        (name, case)
        for name in FAMILIES
        for case in CASE_NAMES
        if name not in OLD_FAMILIES or case not in VIDEO_CASES
    ],
)
def test_positions_are_those_of_transformers(
    sharp_models: Callable[[str], Path], name: str, case: str
) -> None:
    ours, theirs = by_transformers(sharp_models(name), case)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", OLD_FAMILIES)
def test_transformers_starts_text_after_a_video_too_early(
    sharp_models: Callable[[str], Path], name: str
) -> None:
    """transformers 5.19 goes on after the larger side of a frame, not after the last position.

    When this fails, a release follows Qwen's rule again: move the cases into the test above.
    """
    ours, theirs = by_transformers(sharp_models(name), "video")
    family = family_at(sharp_models(name))
    inputs = by_processor(family, clips_of("video", family.rules.factor))
    kinds = inputs["mm_token_type_ids"][0]
    video_end = int((kinds == 2).nonzero()[-1]) + 1
    # The video's own positions agree; every later one is too small, by the same number.
    assert torch.equal(ours[:, :video_end], theirs[:, :video_end])
    late = (ours - theirs)[:, video_end:]
    assert late.min() == late.max() > 0


# --- worked by hand -----------------------------------------------------------------------------


def test_qwen2_vl_worked_by_hand() -> None:
    """2 text tokens; 3 steps of 2 x 2 from position 2, last position 4; text goes on at 5."""
    time, height, width = mrope_positions([2, Grid(3, 2, 2), 2]).tolist()
    assert time == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 6]
    assert height == [0, 1, 2, 2, 3, 3, 2, 2, 3, 3, 2, 2, 3, 3, 5, 6]
    assert width == [0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 5, 6]


def test_qwen2_5_vl_worked_by_hand(sharp_models: Callable[[str], Path]) -> None:
    """Frames at 3 a second: a patch lasts 2/3 s, at 2 positions a second a step of 4/3."""
    family = family_at(sharp_models("qwen2_5_vl"))
    clip = video(6, height=56, width=56, fps=45.0)
    assert clip.metadata.sample_fps == 3.0
    (block,) = family.video_blocks(clip)
    assert block.grid is not None
    assert block.grid[:3] == (3, 2, 2)
    assert block.grid.time_step == pytest.approx(4 / 3)
    # Steps at 0, 1.33, 2.67, rounded down; the text after them at 2 + 1 + 1.
    time, height, width = mrope_positions([1, block.grid, 1]).tolist()
    assert time == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
    assert height == [0, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 4]
    assert width == [0, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 4]


def test_a_slow_video_pushes_the_text_after_it_far_away() -> None:
    """A step of 10: the text goes on after 20, not after the frame's sides."""
    time, _, _ = mrope_positions([1, Grid(3, 1, 1, 10.0), 1]).tolist()
    assert time == [0, 1, 11, 21, 22]


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen3_5"])
def test_qwen3_families_worked_by_hand(sharp_models: Callable[[str], Path], name: str) -> None:
    """Each pair of frames is a grid of one step, with its time in text before it."""
    family = family_at(sharp_models(name))
    clip = video(4, height=64, width=64, fps=30.0)
    blocks = [(block.grid or len(block.token_ids)) for block in family.video_blocks(clip)]
    label = len(family.text_token_ids("<0.2 seconds>")) + 1
    later = len(family.text_token_ids("<1.2 seconds>")) + 2
    assert blocks == [label, Grid(1, 2, 2), later, Grid(1, 2, 2), 1]
    time, height, width = (row[label:] for row in mrope_positions(blocks).tolist())
    first, second = label, label + 2 + later
    between = list(range(first + 2, second))
    assert time == [first] * 4 + between + [second] * 4 + [second + 2]
    rows = [first, first, first + 1, first + 1], [second, second, second + 1, second + 1]
    columns = [first, first + 1] * 2, [second, second + 1] * 2
    assert height == [*rows[0], *between, *rows[1], second + 2]
    assert width == [*columns[0], *between, *columns[1], second + 2]
