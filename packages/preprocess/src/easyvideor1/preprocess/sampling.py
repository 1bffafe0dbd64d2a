"""Which frames of a video a budget shows: a pure function from counts and rates to indices.

The rule is that of transformers' Qwen3VLVideoProcessor.sample_frames (5.19): `fps` frames a second,
clamped to the budget and to what there is, spread evenly from the first to the last frame.
Called by `decode` before any frame is read; tests hold it beside the processor.
"""

import math
from dataclasses import dataclass

import numpy as np

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget

SAMPLER_VERSION = 1
"""Part of every cache key: raise it when the same inputs give other indices."""


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

    Args:
        total_frames: in the source.
        source_fps: average frames per second of the source.
        budget: `fps`, `min_frames` and `max_frames` count here.
        rules: of the model family.
        start_s: seconds from the first frame; None is the beginning.
        end_s: seconds from the first frame, inclusive; None or beyond the end is the end.

    Raises:
        ValueError: if the source has no frames or none lies within the span.
    """
    if total_frames < 1 or not source_fps > 0:
        raise ValueError(f"nothing to sample from {total_frames} frames at {source_fps} fps")
    first, last = _span(total_frames, source_fps, start_s, end_s)
    available = last - first + 1
    wanted = int(available / source_fps * budget.fps)
    num_frames = min(max(wanted, budget.min_frames), budget.max_frames, available)
    offsets = np.linspace(0, available - 1, num_frames).round().astype(int)
    indices = tuple(int(first + offset) for offset in offsets)
    return FrameSelection(
        indices=indices,
        timestamps_s=tuple(index / source_fps for index in indices),
        sample_fps=num_frames / available * source_fps,
    )


def _span(
    total_frames: int, source_fps: float, start_s: float | None, end_s: float | None
) -> tuple[int, int]:
    """First and last frame index whose time lies within the span."""
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
    return first, last
