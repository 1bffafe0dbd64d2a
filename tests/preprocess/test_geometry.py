"""Target sizes, side by side with the processors of transformers and with qwen-vl-utils."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qwen_vl_utils.vision_process import smart_resize as smart_resize_of_qwen_vl_utils
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as resize_image

from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget
from tests.qwen_processors import (
    FAMILIES,
    QWEN2,
    QWEN3,
    fetch_video,
    processor_size,
    source_on_paper,
    video_element,
)

EVERY_FAMILY = pytest.mark.parametrize("rules", FAMILIES.values(), ids=FAMILIES.keys())
EVERY_CONVENTION = pytest.mark.parametrize("convention", Convention)

SIZES = [
    (720, 1280),
    (1280, 720),
    (272, 640),
    (144, 176),
    (64, 64),
    (1080, 1920),
    (1920, 1080),
    (2160, 3840),
    (31, 90),
    (97, 333),
    (1, 1),
    (8, 8),
    (10, 900),
    (513, 511),
    (48, 48),
    (16, 31),
    (360, 12_000),
    (64, 12_800),
]
BUDGETS = [
    FrameBudget(),
    FrameBudget(max_pixels=65_536),
    FrameBudget(min_pixels=100_000, max_pixels=200_000),
    FrameBudget(max_pixels=786_432, total_pixels=2_000_000),
    FrameBudget(min_pixels=4_096, max_pixels=4_096),
    FrameBudget(min_pixels=131_072, max_pixels=786_432),
    FrameBudget(min_pixels=131_072, max_pixels=16_777_216, total_pixels=20_000_000),
    FrameBudget(min_pixels=1, max_pixels=1),
]
FRAMES = [2, 4, 3, 7, 8, 64, 128, 127, 768]


def beyond_its_share(
    shape: tuple[int, int], num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> bool:
    """Whether Qwen3-VL's processor exceeds a limit because it counts 5 frames as 4."""
    return (
        rules is QWEN3
        and num_frames % 4 == 1
        and num_frames * math.prod(shape)
        > min(budget.max_pixels * num_frames, budget.total_pixels or math.inf)
    )


@pytest.mark.parametrize("num_frames", FRAMES)
@EVERY_FAMILY
def test_video_sizes_are_those_of_the_familys_processor(
    num_frames: int, rules: FamilyRules
) -> None:
    for (height, width), budget in itertools.product(SIZES, BUDGETS):
        if rules is QWEN2:
            # Its processor knows no total; see the tests of one below.
            budget = replace(budget, total_pixels=None)
        expected = processor_size(height, width, num_frames, budget, rules)
        shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
        assert shape == expected, (height, width, budget)


@st.composite
def clips_and_budgets(draw: st.DrawFn) -> tuple[int, int, int, FrameBudget]:
    """Height, width, frames, budget."""
    height, width = draw(st.integers(1, 4_000)), draw(st.integers(1, 4_000))
    min_pixels = draw(st.integers(1, 1_000_000))
    total_pixels = draw(st.one_of(st.none(), st.integers(min_pixels, 500_000_000)))
    budget = FrameBudget(
        min_frames=1,
        max_frames=5_000,
        min_pixels=min_pixels,
        max_pixels=draw(st.integers(min_pixels, 20_000_000)),
        total_pixels=total_pixels,
    )
    return height, width, draw(st.integers(2, 4_096)), budget


def is_too_thin(height: int, width: int) -> bool:
    return max(height, width) / min(height, width) > 200


@settings(max_examples=500, deadline=None)
@given(clip=clips_and_budgets(), rules=st.sampled_from([QWEN2, QWEN3]))
def test_any_video_size_is_that_of_the_familys_processor(clip: tuple, rules: FamilyRules) -> None:
    height, width, num_frames, budget = clip
    if rules is QWEN2:
        budget = replace(budget, total_pixels=None)
    try:
        expected = processor_size(height, width, num_frames, budget, rules)
    except ValueError as error:
        assert "aspect ratio" in str(error)
        with pytest.raises(ValueError, match="aspect ratio"):
            resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
        return
    shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
    if not beyond_its_share(expected, num_frames, budget, rules):
        assert shape == expected


@pytest.mark.parametrize("num_frames", [5, 9, 13, 105])
def test_an_odd_number_of_frames_never_exceeds_the_limit_per_frame(num_frames: int) -> None:
    """Qwen3-VL's processor rounds 5 frames to 4 and lets each exceed its share; we do not."""
    budget = FrameBudget(max_pixels=65_536)
    for height, width in [(720, 1280), (272, 640), (144, 176), (1080, 1920), (31, 90)]:
        shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=QWEN3)
        theirs = processor_size(height, width, num_frames, budget, QWEN3)
        assert math.prod(shape) <= 65_536
        assert shape == theirs or math.prod(theirs) > 65_536


@EVERY_FAMILY
@EVERY_CONVENTION
def test_a_one_frame_video_is_sized_as_the_two_frames_it_is_padded_to(
    convention: Convention, rules: FamilyRules
) -> None:
    budget = FrameBudget(max_pixels=65_536, total_pixels=200_000, convention=convention)
    one, two = (resize_shape(720, 1280, num_frames=n, budget=budget, rules=rules) for n in (1, 2))
    assert one == two


@EVERY_FAMILY
@EVERY_CONVENTION
def test_total_pixels_limit_the_whole_clip(convention: Convention, rules: FamilyRules) -> None:
    for total_pixels, num_frames in [(1_000_000, 64), (50_331_648, 768), (458_752_000, 2048)]:
        budget = FrameBudget(max_pixels=786_432, total_pixels=total_pixels, convention=convention)
        for height, width in [(720, 1280), (1280, 720), (2160, 3840)]:
            shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
            # Half of it at least: the limit binds, and rounding to whole tokens costs the rest.
            used = num_frames * math.prod(shape)
            assert total_pixels / 2 < used <= total_pixels


@settings(max_examples=500, deadline=None)
@given(clip=clips_and_budgets())
def test_qwen2_vl_keeps_the_processors_size_if_it_fits_and_else_the_total(clip: tuple) -> None:
    height, width, num_frames, budget = clip
    if is_too_thin(height, width):
        return
    shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=QWEN2)
    processors = processor_size(height, width, num_frames, budget, QWEN2)
    total_pixels = budget.total_pixels or math.inf
    assert shape[0] % 28 == shape[1] % 28 == 0
    if num_frames * math.prod(processors) <= total_pixels:
        assert shape == processors
    elif num_frames * 28 * 28 <= total_pixels:
        assert num_frames * math.prod(shape) <= total_pixels
    else:
        assert shape == (28, 28)


QWEN_VL_UTILS_BUDGETS = [replace(b, convention=Convention.qwen_vl_utils) for b in BUDGETS]


def size_of_fetch_video(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """To which size the library resizes a clip of which it shows `num_frames`."""
    budget = replace(budget, min_frames=num_frames, max_frames=num_frames)
    with source_on_paper(num_frames, 25.0, height, width):
        frames, _, _ = fetch_video(video_element("on paper.mp4", budget), rules)
    assert len(frames) == num_frames
    return frames.shape[2], frames.shape[3]


@pytest.mark.parametrize("num_frames", [2, 4, 8, 64, 128, 768, 2048])
@EVERY_FAMILY
def test_video_sizes_are_those_of_qwen_vl_utils(num_frames: int, rules: FamilyRules) -> None:
    compared = 0
    for (height, width), budget in itertools.product(SIZES, QWEN_VL_UTILS_BUDGETS):
        shape = resize_shape(height, width, num_frames=num_frames, budget=budget, rules=rules)
        try:
            expected = size_of_fetch_video(height, width, num_frames, budget, rules)
        except RuntimeError as error:
            assert "should be greater than 0" in str(error)
            assert rules.factor in shape
            continue
        assert shape == expected, (height, width, budget)
        compared += 1
    assert compared >= 100


@settings(max_examples=500, deadline=None)
@given(clip=clips_and_budgets(), rules=st.sampled_from([QWEN2, QWEN3]))
def test_any_video_size_is_that_of_qwen_vl_utils(clip: tuple, rules: FamilyRules) -> None:
    height, width, num_frames, budget = clip
    num_frames += num_frames % 2
    budget = replace(budget, convention=Convention.qwen_vl_utils)
    ask = {"num_frames": num_frames, "budget": budget, "rules": rules}
    if is_too_thin(height, width):
        with pytest.raises(ValueError, match="aspect ratio"):
            resize_shape(height, width, **ask)
        return
    shape = resize_shape(height, width, **ask)
    try:
        expected = size_of_fetch_video(height, width, num_frames, budget, rules)
    except RuntimeError as error:
        assert "should be greater than 0" in str(error)
        assert rules.factor in shape
    else:
        assert shape == expected


@pytest.mark.parametrize(
    ("num_frames", "budget", "shape"),
    [
        # Each frame may take 0.9 x 128,000 x 1,024 px / 768 x 2 = 307,200 px, which is 739 x 416.
        (768, FrameBudget(max_pixels=786_432), (384, 736)),
        # 768 tokens of 32 x 32 px bind before max_pixels: 786,432 px is 1,182 x 665.
        (8, FrameBudget(max_pixels=5_000_000), (640, 1_152)),
        # A share of 115,200 px is lifted to 1.05 x min_pixels, 137,625 px, which is 495 x 278.
        (2_048, FrameBudget(min_pixels=131_072, max_pixels=786_432), (256, 480)),
        # The same total written out: ours counts every frame, 2 x 117,964,800 px.
        (768, FrameBudget(max_pixels=786_432, total_pixels=235_929_600), (384, 736)),
    ],
)
def test_the_limits_of_qwen_vl_utils_worked_by_hand(
    num_frames: int, budget: FrameBudget, shape: tuple[int, int]
) -> None:
    budget = replace(budget, convention=Convention.qwen_vl_utils)
    assert resize_shape(720, 1280, num_frames=num_frames, budget=budget, rules=QWEN3) == shape


@EVERY_FAMILY
def test_image_sizes_are_those_of_the_image_processor(rules: FamilyRules) -> None:
    for (height, width), budget in itertools.product(SIZES, BUDGETS):
        expected = resize_image(
            height,
            width,
            factor=rules.factor,
            min_pixels=budget.min_pixels,
            max_pixels=budget.max_pixels,
        )
        assert resize_shape(height, width, num_frames=None, budget=budget, rules=rules) == expected


@settings(max_examples=500, deadline=None)
@given(
    clip=clips_and_budgets(),
    rules=st.sampled_from([QWEN2, QWEN3]),
    convention=st.sampled_from(Convention),
)
def test_any_image_size_is_that_of_the_library(
    clip: tuple, rules: FamilyRules, convention: Convention
) -> None:
    height, width, _, budget = clip
    smart_resize = {
        Convention.transformers: resize_image,
        Convention.qwen_vl_utils: smart_resize_of_qwen_vl_utils,
    }[convention]
    budget = replace(budget, convention=convention)
    try:
        expected = smart_resize(
            height,
            width,
            factor=rules.factor,
            min_pixels=budget.min_pixels,
            max_pixels=budget.max_pixels,
        )
    except ValueError:
        with pytest.raises(ValueError, match="aspect ratio"):
            resize_shape(height, width, num_frames=None, budget=budget, rules=rules)
        return
    shape = resize_shape(height, width, num_frames=None, budget=budget, rules=rules)
    # Where qwen-vl-utils gives 0 pixels, one token.
    assert shape == tuple(side or rules.factor for side in expected)


@pytest.mark.parametrize("num_frames", [None, 8])
@EVERY_FAMILY
@EVERY_CONVENTION
def test_a_frame_that_is_too_thin_is_refused(
    convention: Convention, rules: FamilyRules, num_frames: int | None
) -> None:
    budget = FrameBudget(convention=convention)
    with pytest.raises(ValueError, match="aspect ratio of 250, above 200"):
        resize_shape(40, 10_000, num_frames=num_frames, budget=budget, rules=rules)


@settings(max_examples=500, deadline=None)
@given(
    clip=clips_and_budgets(),
    rules=st.sampled_from([QWEN2, QWEN3]),
    convention=st.sampled_from(Convention),
    is_image=st.booleans(),
)
def test_sides_are_whole_tokens_and_at_least_one(
    clip: tuple, rules: FamilyRules, convention: Convention, is_image: bool
) -> None:
    height, width, num_frames, budget = clip
    if is_too_thin(height, width):
        return
    sides = resize_shape(
        height,
        width,
        num_frames=None if is_image else num_frames,
        budget=replace(budget, convention=convention),
        rules=rules,
    )
    assert all(side >= rules.factor and side % rules.factor == 0 for side in sides)
