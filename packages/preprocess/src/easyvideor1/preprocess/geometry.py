"""To which height and width frames are resized: pure functions from sizes and a budget.

The rules are those of transformers 5.19: `smart_resize` of Qwen3-VL's video processor for videos
(it limits the volume T x H x W) and of Qwen2-VL's image processor for images. A `FrameBudget` says
pixels per frame; the volume limits follow from it. Tests hold both beside the processors.
"""

import math

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget

MAX_ASPECT_RATIO = 200
"""Of the Qwen processors: a thinner frame is refused."""


def resize_shape(
    height: int, width: int, *, num_frames: int | None, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """Height and width of the resized frames of one medium, multiples of `rules.factor`.

    Args:
        height: of the source in pixels, as it is displayed.
        width: of the source in pixels, as it is displayed.
        num_frames: sampled from a video; None for an image.
        budget: `min_pixels`, `max_pixels` and, for a video, `total_pixels` count here.
        rules: of the model family.

    Raises:
        ValueError: if one side is more than 200 times the other.
    """
    if num_frames is None:
        return _resize_image(height, width, budget, rules.factor)
    # A clip shorter than one temporal patch is padded to it by the model's processor.
    num_frames = max(num_frames, rules.temporal_patch_size)
    return _resize_video(height, width, num_frames, budget, rules)


def video_volume_limits(num_frames: int, budget: FrameBudget) -> tuple[int, int]:
    """Smallest and largest T x H x W of a clip: the processor's shortest and longest edge."""
    largest = budget.max_pixels * num_frames
    if budget.total_pixels is not None:
        largest = min(largest, budget.total_pixels)
    return min(budget.min_pixels * num_frames, largest), largest


def _resize_video(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    factor = rules.factor
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    _check_aspect(height, width)
    smallest, largest = video_volume_limits(num_frames, budget)
    rounded = round(num_frames / rules.temporal_patch_size) * rules.temporal_patch_size
    return _fit(
        height,
        width,
        factor,
        num_frames=num_frames,
        rounded_frames=rounded,
        smallest=smallest,
        largest=largest,
    )


def _resize_image(height: int, width: int, budget: FrameBudget, factor: int) -> tuple[int, int]:
    _check_aspect(height, width)
    return _fit(
        height,
        width,
        factor,
        num_frames=1,
        rounded_frames=1,
        smallest=budget.min_pixels,
        largest=budget.max_pixels,
    )


def _fit(
    height: int,
    width: int,
    factor: int,
    *,
    num_frames: int,
    rounded_frames: int,
    smallest: int,
    largest: int,
) -> tuple[int, int]:
    """Round to the factor; where that breaks a limit, scale to the limit and round inwards.

    The processors compare with the frame count rounded to the temporal patch, half to even, so 5
    count as 4. The upper limit counts at least the true number here: no frame exceeds its share.
    """
    rounded_height = round(height / factor) * factor
    rounded_width = round(width / factor) * factor
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


def _check_aspect(height: int, width: int) -> None:
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT_RATIO:
        raise ValueError(
            f"a frame of {width} x {height} has an aspect ratio of {ratio:.0f}, "
            f"above {MAX_ASPECT_RATIO}"
        )
