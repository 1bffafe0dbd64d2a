"""Target sizes, side by side with `smart_resize` of transformers."""

import itertools

import pytest
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as resize_image
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as resize_video

from easyvideor1.preprocess.geometry import resize_shape, video_volume_limits
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget

RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
SMALL_PATCHES = FamilyRules(name="qwen3_vl", patch_size=14, merge_size=2, temporal_patch_size=2)

SIZES = [(720, 1280), (272, 640), (144, 176), (64, 64), (1080, 1920), (2160, 3840), (31, 90)]
ODD_SIZES = [(97, 333), (1, 1), (10, 900), (513, 511), (48, 48), (16, 31)]
BUDGETS = [
    FrameBudget(),
    FrameBudget(max_pixels=65_536),
    FrameBudget(min_pixels=100_000, max_pixels=200_000),
    FrameBudget(max_pixels=786_432, total_pixels=2_000_000),
    FrameBudget(min_pixels=4_096, max_pixels=4_096),
]


@pytest.mark.parametrize("num_frames", [2, 4, 3, 7, 8, 64, 128, 127])
@pytest.mark.parametrize("rules", [RULES, SMALL_PATCHES], ids=["factor32", "factor28"])
def test_video_sizes_are_those_of_the_hugging_face_processor(
    num_frames: int, rules: FamilyRules
) -> None:
    for (height, width), budget in itertools.product(SIZES + ODD_SIZES, BUDGETS):
        smallest, largest = video_volume_limits(num_frames, budget)
        expected = resize_video(
            num_frames,
            height,
            width,
            temporal_factor=rules.temporal_patch_size,
            factor=rules.factor,
            min_pixels=smallest,
            max_pixels=largest,
        )
        shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
        assert shape == expected, (height, width, budget)


@pytest.mark.parametrize("num_frames", [5, 9, 13, 105])
def test_an_odd_number_of_frames_never_exceeds_the_limit_per_frame(num_frames: int) -> None:
    """The processor rounds 5 frames to 4 and so lets each exceed its share; we do not."""
    budget = FrameBudget(max_pixels=65_536)
    for height, width in SIZES:
        shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=RULES)
        _, largest = video_volume_limits(num_frames, budget)
        theirs = resize_video(
            num_frames, height, width, factor=32, min_pixels=4096 * num_frames, max_pixels=largest
        )
        assert shape[0] * shape[1] <= 65_536
        assert shape == theirs or theirs[0] * theirs[1] > 65_536


@pytest.mark.parametrize("rules", [RULES, SMALL_PATCHES], ids=["factor32", "factor28"])
def test_image_sizes_are_those_of_the_hugging_face_processor(rules: FamilyRules) -> None:
    for (height, width), budget in itertools.product(SIZES + ODD_SIZES, BUDGETS):
        expected = resize_image(
            height,
            width,
            factor=rules.factor,
            min_pixels=budget.min_pixels,
            max_pixels=budget.max_pixels,
        )
        assert resize_shape(height, width, num_frames=None, budget=budget, rules=rules) == expected


def test_a_one_frame_video_is_sized_as_the_two_frames_it_is_padded_to() -> None:
    budget = FrameBudget(max_pixels=65_536)
    one, two = (resize_shape(720, 1280, num_frames=n, budget=budget, rules=RULES) for n in (1, 2))
    assert one == two


def test_total_pixels_limit_the_whole_clip() -> None:
    budget = FrameBudget(total_pixels=1_000_000)
    height, width = resize_shape(720, 1280, num_frames=64, budget=budget, rules=RULES)
    assert 64 * height * width <= 1_000_000


@pytest.mark.parametrize("num_frames", [None, 8])
def test_a_frame_that_is_too_thin_is_refused(num_frames: int | None) -> None:
    with pytest.raises(ValueError, match="aspect ratio of 250, above 200"):
        resize_shape(40, 10_000, num_frames=num_frames, budget=FrameBudget(), rules=RULES)
