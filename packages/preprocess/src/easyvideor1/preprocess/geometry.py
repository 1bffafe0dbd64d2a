"""To which height and width frames are resized: pure functions from sizes and a budget.

Each rule is one library's arithmetic: the video processors of Qwen2-VL (pixels per frame) and
Qwen3-VL (the volume T x H x W) and the image processor of both in transformers 5.19, `fetch_video`
and `fetch_image` in qwen-vl-utils 0.0.14. Tests hold them side by side. The processors'
`cap_pixels_per_frame=True` is not offered: it lifts every frame to 1.05 times `shortest_edge`,
which for Qwen3-VL is the least volume of a whole video, so the budget would no longer bind.
"""

import math
from collections.abc import Callable

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import FRAME_FACTOR
from easyvideor1.schema.budget import Convention, FrameBudget

MAX_ASPECT_RATIO = 200
"""Of every rule here: a thinner frame is refused."""

MAX_FRAME_TOKENS = 768
"""Of qwen-vl-utils (VIDEO_MAX_TOKEN_NUM): of one frame, whatever `max_pixels` says."""

CONTEXT_TOKENS = 128_000
"""Of qwen-vl-utils (MODEL_SEQ_LEN): a video may take 0.9 of it unless `total_pixels` is given."""


def resize_shape(
    height: int, width: int, *, num_frames: int | None, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """Height and width of the resized frames of one medium, multiples of `rules.factor`.

    No side is shorter than `rules.factor`, also where qwen-vl-utils arrives at 0 pixels: a thin
    frame, or a budget below one token per frame, may so cost more than `max_pixels`.

    Args:
        height: of the source in pixels, as it is displayed.
        width: of the source in pixels, as it is displayed.
        num_frames: sampled from a video; None for an image.
        budget: `convention`, `min_pixels`, `max_pixels` and, for a video, `total_pixels` count.
        rules: of the model family.

    Raises:
        ValueError: if one side is more than 200 times the other.
    """
    if num_frames is None:
        return _IMAGE_RULES[budget.convention](height, width, budget, rules)
    # A clip shorter than one temporal patch is padded to it by the model's processor.
    num_frames = max(num_frames, rules.temporal_patch_size)
    rule = _VIDEO_RULES[budget.convention, rules.name]
    return rule(height, width, num_frames, budget, rules)


def video_volume_limits(num_frames: int, budget: FrameBudget) -> tuple[int, int]:
    """Smallest and largest T x H x W of a clip: the Qwen3-VL processor's `shortest_edge` and
    `longest_edge`.
    """
    largest = budget.max_pixels * num_frames
    if budget.total_pixels is not None:
        largest = min(largest, budget.total_pixels)
    return min(budget.min_pixels * num_frames, largest), largest


def _qwen2_vl_processor(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """`Qwen2VLVideoProcessor`: each frame as an image, however many there are.

    The processor knows no total. Where its size fits `total_pixels` it stands; else every frame
    gets an even share.
    """
    size = _image_processor(height, width, budget, rules)
    total_pixels = budget.total_pixels
    if total_pixels is None or num_frames * math.prod(size) <= total_pixels:
        return size
    return _within(height, width, rules.factor, total_pixels / num_frames)


def _qwen3_vl_processor(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """`Qwen3VLVideoProcessor`: the limits per frame become limits of the volume.

    The processor compares with the frame count rounded to the temporal patch, half to even, so 5
    count as 4. The upper limit counts at least the true number here: no frame exceeds its share.
    """
    factor, patch = rules.factor, rules.temporal_patch_size
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    smallest, largest = video_volume_limits(num_frames, budget)
    return _fit(
        height,
        width,
        factor,
        num_frames=num_frames,
        rounded_frames=round(num_frames / patch) * patch,
        smallest=smallest,
        largest=largest,
    )


def _fetch_video(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """`fetch_video`: at most 768 tokens per frame and its share of the total, which counts
    `FRAME_FACTOR` frames once. A share below 1.05 times `min_pixels` is lifted to it.
    """
    pixels_per_token = rules.factor**2
    if budget.total_pixels is None:
        total_pixels = CONTEXT_TOKENS * pixels_per_token * 0.9
    else:
        total_pixels = budget.total_pixels / FRAME_FACTOR
    share = total_pixels / num_frames * FRAME_FACTOR
    limit = max(
        min(MAX_FRAME_TOKENS * pixels_per_token, share),
        int(budget.min_pixels * 1.05),
    )
    factor = rules.factor
    return _fit(
        height,
        width,
        factor,
        smallest=budget.min_pixels,
        largest=min(budget.max_pixels, limit),
        shortest_side=factor,
    )


def _image_processor(
    height: int, width: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """`Qwen2VLImageProcessor`, the image processor of every family."""
    return _fit(height, width, rules.factor, smallest=budget.min_pixels, largest=budget.max_pixels)


def _fetch_image(
    height: int, width: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """`fetch_image`."""
    factor = rules.factor
    return _fit(
        height,
        width,
        factor,
        smallest=budget.min_pixels,
        largest=budget.max_pixels,
        shortest_side=factor,
    )


_VIDEO_RULES: dict[
    tuple[Convention, str],
    Callable[[int, int, int, FrameBudget, FamilyRules], tuple[int, int]],
] = {
    (Convention.transformers, "qwen2_vl"): _qwen2_vl_processor,
    (Convention.transformers, "qwen3_vl"): _qwen3_vl_processor,
    (Convention.qwen_vl_utils, "qwen2_vl"): _fetch_video,
    (Convention.qwen_vl_utils, "qwen3_vl"): _fetch_video,
}
"""(whose rule, rule set of the model family) -> height, width, frames, budget, rules -> size."""

_IMAGE_RULES: dict[Convention, Callable[[int, int, FrameBudget, FamilyRules], tuple[int, int]]] = {
    Convention.transformers: _image_processor,
    Convention.qwen_vl_utils: _fetch_image,
}
"""Whose rule -> height, width, budget, rules -> size; the families have one image processor."""


def _fit(
    height: int,
    width: int,
    factor: int,
    *,
    smallest: float,
    largest: float,
    num_frames: int = 1,
    rounded_frames: int = 1,
    shortest_side: int = 0,
) -> tuple[int, int]:
    """Round to the factor; where that breaks a limit, scale to the limit and round inwards.

    Args:
        height: of the source in pixels.
        width: of the source in pixels.
        factor: both sides become multiples of it.
        smallest: limit of T x H x W.
        largest: limit of T x H x W.
        num_frames: in the clip.
        rounded_frames: how many the rule counts before it scales.
        shortest_side: after rounding; 0 lets a side of less than half a factor vanish, and the
            frame then counts as too small.
    """
    _check_aspect(height, width)
    rounded_height = max(shortest_side, round(height / factor) * factor)
    rounded_width = max(shortest_side, round(width / factor) * factor)
    pixels = rounded_height * rounded_width
    if max(num_frames, rounded_frames) * pixels > largest:
        shrink = math.sqrt(num_frames * height * width / largest)
        rounded_height = max(factor, math.floor(height / shrink / factor) * factor)
        rounded_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif rounded_frames * pixels < smallest:
        grow = math.sqrt(smallest / (num_frames * height * width))
        rounded_height = math.ceil(height * grow / factor) * factor
        rounded_width = math.ceil(width * grow / factor) * factor
    return rounded_height, rounded_width


def _within(height: int, width: int, factor: int, pixels: float) -> tuple[int, int]:
    """Scale to `pixels` and round inwards; more only where not one square of `factor` fits."""
    shrink = math.sqrt(height * width / pixels)
    short = max(factor, math.floor(min(height, width) / shrink / factor) * factor)
    long = min(max(height, width) / shrink, pixels / short)
    long = max(factor, math.floor(long / factor) * factor)
    return (short, long) if height <= width else (long, short)


def _check_aspect(height: int, width: int) -> None:
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT_RATIO:
        raise ValueError(
            f"a frame of {width} x {height} has an aspect ratio of {ratio:.0f}, "
            f"above {MAX_ASPECT_RATIO}"
        )
