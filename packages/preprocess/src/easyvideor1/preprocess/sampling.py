"""Which frames of a video a budget shows: a pure function from counts and rates to indices.

`fps` frames a second, clamped to the budget and to what there is, spread over the span. The
convention and the model family decide on the rest: rounding, ends, even counts. Called by `decode`
before any frame is read; tests hold each rule beside the library it is taken from.

Two of the libraries take steps in float32, whose rounding decides on frames of long videos: torch
takes them here too, with its type and device spelt out, as a process may have set other defaults.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget

SAMPLER_VERSION = 1
"""Part of every cache key: raise it when the same inputs give other indices."""

FRAME_FACTOR = 2
"""Of qwen-vl-utils: it shows a multiple of this many frames."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameSelection:
    """Example: FrameSelection(indices=(0, 44, 87, 131), timestamps_s=(0.0, 1.76, …), …)."""

    indices: tuple[int, ...]
    """In the whole source, ascending."""
    timestamps_s: tuple[float, ...]
    """indices / source_fps: seconds from the first frame of the source."""
    sample_fps: float
    """Selected frames per second of the span."""


def select_frames(
    *,
    total_frames: int,
    source_fps: float,
    budget: FrameBudget,
    rules: FamilyRules,
    start_s: float | None = None,
    end_s: float | None = None,
) -> FrameSelection:
    """The frames of a source, or of its span from `start_s` to `end_s`, that `budget` shows.

    Where a rule of even counts comes to none and its library fails (a video or span of one frame,
    `max_frames: 1`, `min_frames: 1` of a short video), two frames are shown, or the one there is.

    Args:
        total_frames: in the source.
        source_fps: average frames per second of the source.
        budget: `convention`, `fps`, `min_frames` and `max_frames` count here.
        rules: of the model family.
        start_s: seconds from the first frame; None is the beginning.
        end_s: seconds from the first frame, inclusive; None or beyond the end is the end.

    Raises:
        ValueError: if the source has no frames or none lies within the span.
    """
    if total_frames < 1 or not 0 < source_fps < math.inf:
        raise ValueError(f"nothing to sample from {total_frames} frames at {source_fps} fps")
    span = _span(total_frames, source_fps, start_s, end_s)
    rule = _RULES[budget.convention, rules.name]
    indices = tuple(rule(span, source_fps, budget, rules))
    return FrameSelection(
        indices=indices,
        timestamps_s=tuple(index / source_fps for index in indices),
        sample_fps=len(indices) / len(span) * source_fps,
    )


def _span(
    total_frames: int, source_fps: float, start_s: float | None, end_s: float | None
) -> range:
    """The frame indices whose times lie within the span."""
    # Rounding first: 0.1 s x 30 fps is 3.0000000000000004 and must not become frame 4.
    first = math.ceil(round((start_s or 0.0) * source_fps, 6))
    last = total_frames - 1
    if end_s is not None:
        last = min(last, math.floor(round(end_s * source_fps, 6)))
    if first > last:
        raise ValueError(
            f"the span {start_s or 0.0:g} s to {'the end' if end_s is None else f'{end_s:g} s'} "
            f"holds no frame of a source of {total_frames / source_fps:.2f} s"
        )
    return range(first, last + 1)


def _qwen2_vl_processor(
    span: range, source_fps: float, budget: FrameBudget, rules: FamilyRules
) -> list[int]:
    """`Qwen2VLVideoProcessor.sample_frames`: whole temporal patches, steps from the first frame.

    Of some counts (480 of 6,007 frames) the processor's steps make one index more, behind the last
    frame, which it then fails to read; it is left out.
    """
    import torch

    available, patch = len(span), rules.temporal_patch_size
    most = min(budget.max_frames, available)
    wanted = min(max(available / source_fps * budget.fps, budget.min_frames), most)
    num_frames = max(math.floor(wanted / patch) * patch, min(patch, most))
    step = available / num_frames
    steps = torch.arange(0, available, step, dtype=torch.float32, device="cpu")
    return [span[offset] for offset in steps.int()[:num_frames].tolist()]


def _qwen3_vl_processor(
    span: range, source_fps: float, budget: FrameBudget, rules: FamilyRules
) -> list[int]:
    """`Qwen3VLVideoProcessor.sample_frames`: from the first to the last frame, odd counts too."""
    available = len(span)
    wanted = int(available / source_fps * budget.fps)
    num_frames = min(max(wanted, budget.min_frames), budget.max_frames, available)
    offsets = np.linspace(0, available - 1, num_frames).round().astype(int)
    return [span[offset] for offset in offsets.tolist()]


def _qwen_vl_utils(
    span: range, source_fps: float, budget: FrameBudget, rules: FamilyRules
) -> list[int]:
    """`smart_nframes` and the readers of qwen-vl-utils: an even count, from first to last frame.

    A list of frames, which the library shows whole, is sampled as a video of its rate.
    """
    import torch

    available = len(span)
    fewest = math.ceil(budget.min_frames / FRAME_FACTOR) * FRAME_FACTOR
    wanted = max(available / source_fps * budget.fps, fewest)
    wanted = min(wanted, budget.max_frames, available)
    num_frames = math.floor(wanted / FRAME_FACTOR) * FRAME_FACTOR or 1
    steps = torch.linspace(span[0], span[-1], num_frames, dtype=torch.float32, device="cpu")
    return steps.round().long().tolist()


_Rule = Callable[[range, float, FrameBudget, FamilyRules], list[int]]

_RULES: dict[tuple[Convention, str], _Rule] = {
    (Convention.transformers, "qwen2_vl"): _qwen2_vl_processor,
    (Convention.transformers, "qwen3_vl"): _qwen3_vl_processor,
    (Convention.qwen_vl_utils, "qwen2_vl"): _qwen_vl_utils,
    (Convention.qwen_vl_utils, "qwen3_vl"): _qwen_vl_utils,
}
"""(whose rule, rule set of the model family) -> span, source fps, budget, rules -> indices."""
