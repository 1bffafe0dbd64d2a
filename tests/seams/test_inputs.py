"""Token ids, grids and pixels: engine, Hugging Face processor and learner are fed the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from easyvideor1.preprocess.clip import Clip
from tests.live_engine import LiveEngine
from tests.processor_inputs import INSTRUCTION, assert_same, by_processor
from tests.seams.cases import CASE_NAMES, FAMILIES, clips_of, prompt_of, question
from tests.seams.engine_inputs import rendered
from tests.train.policy_cases import family_at

EVERY_CASE = pytest.mark.parametrize("case", CASE_NAMES)
EVERY_FAMILY = pytest.mark.parametrize("name", FAMILIES)


@EVERY_FAMILY
@EVERY_CASE
def test_the_learner_is_fed_what_the_processor_makes(
    sharp_models: Callable[[str], Path], name: str, case: str
) -> None:
    family = family_at(sharp_models(name))
    clips = clips_of(case, family.rules.factor)
    expected = by_processor(family, clips)
    prompt = prompt_of(family, case, clips)
    inputs = family.learner_inputs(prompt.token_ids, clips)
    assert inputs.token_ids == expected["input_ids"][0].tolist()
    assert prompt.num_tokens == len(inputs.token_ids)
    assert_same(inputs.mm_token_type_ids, expected["mm_token_type_ids"][0])
    for field in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw"):
        assert_same(getattr(inputs, field), expected.get(field))
    patches = [expected[f] for f in ("pixel_values", "pixel_values_videos") if f in expected]
    assert prompt.num_patches == sum(map(len, patches))


@EVERY_CASE
def test_the_engine_is_fed_what_the_learner_is(family_engine: LiveEngine, case: str) -> None:
    family = family_engine.family
    clips = clips_of(case, family.rules.factor)
    prompt = family.prompt_token_ids(question(case, clips), INSTRUCTION)
    inputs = family.learner_inputs(prompt, clips)
    answer = family_engine.generate(prompt, clips, max_new_tokens=1)
    assert answer.prompt_token_ids == inputs.token_ids

    theirs = rendered(family_engine, prompt, clips)
    assert theirs.token_ids == inputs.token_ids
    for kind, ours in (("image", inputs.image_grid_thw), ("video", inputs.video_grid_thw)):
        grids = [feature.data[f"{kind}_grid_thw"].data for feature in theirs.of(kind)]
        assert [grid.tolist() for grid in grids] == ([] if ours is None else ours.tolist())


@EVERY_CASE
def test_the_engine_normalises_pixels_as_the_processor_does(
    family_engine: LiveEngine, case: str
) -> None:
    """Where vLLM keeps bytes until they are on the device, they are the processor's before it."""
    family = family_engine.family
    clips = clips_of(case, family.rules.factor)
    prompt = family.prompt_token_ids(question(case, clips), INSTRUCTION)
    inputs = family.learner_inputs(prompt, clips)
    theirs = rendered(family_engine, prompt, clips)
    for kind, field, ours in (
        ("image", "pixel_values", inputs.pixel_values),
        ("video", "pixel_values_videos", inputs.pixel_values_videos),
    ):
        features = [feature.data[field].data for feature in theirs.of(kind)]
        if ours is None:
            assert not features
            continue
        pixels = torch.cat(features)
        if pixels.dtype == torch.uint8:
            pixels = normalised(pixels, family.processor)
        torch.testing.assert_close(pixels.float(), ours, atol=1e-5, rtol=0)


def normalised(patches: torch.Tensor, processor: Any) -> torch.Tensor:
    """Bytes [N, 3·values] as the image processor normalises them, channel after channel."""
    mean = torch.tensor(processor.image_processor.image_mean)[:, None]
    std = torch.tensor(processor.image_processor.image_std)[:, None]
    channels = patches.unflatten(1, (3, -1)).float() / 255
    return ((channels - mean) / std).flatten(1)


def test_the_cases_are_what_they_are_called() -> None:
    kinds = {case: [clip.kind.value for clip in clips_of(case, 28)] for case in CASE_NAMES}
    assert kinds == {
        "text": [],
        "image": ["image"],
        "video": ["video"],
        "two videos": ["video", "video"],
        "image and video": ["image", "video"],
    }
    frames: list[Clip] = clips_of("two videos", 28)
    assert [len(clip.frames) for clip in frames] == [4, 5]
