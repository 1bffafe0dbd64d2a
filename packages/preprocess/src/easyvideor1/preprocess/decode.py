"""From a medium and a budget to frames with metadata: the one definition, cached or on the fly.

Sampling and target size are computed before any frame is decoded; only sampled frames are decoded,
a block at a time, and resized as the model's processor would. Keys and the cache are elsewhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.config import DecodeConfig
from easyvideor1.preprocess.decoders import FrameSource, decoder_for, decoder_version, open_source
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.resize import resize_frames
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import FrameSelection, select_frames
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind

if TYPE_CHECKING:
    from torch import Tensor

DECODE_VERSION = 1
"""Part of every cache key: raise it when the same frames give other pixels."""

BLOCK_BYTES = 64 * 1024 * 1024
"""Full-size frames held at once. Blocks keep long clips of large frames out of memory."""


def decode(media: Media, budget: FrameBudget, rules: FamilyRules, config: DecodeConfig) -> Clip:
    """Decode, sample and resize one medium. Every call is counted (`decode_counter`).

    Args:
        media: an image, a video, a span of one, or a list of frame files.
        budget: how many frames and pixels it may cost.
        rules: of the model family that will see it.
        config: which decoder to use.

    Raises:
        DecodeError: if the medium gives no frames, or not those it announces.
    """
    decode_counter.count()
    name = media_name(media)
    decoder = decoder_for(media, config.decoder)
    try:
        return _decode(open_source(media, decoder), media, budget, rules)
    # Damaged files make FFmpeg (through two libraries) and Pillow raise almost anything.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DecodeError(name, reason[:500]) from error


def media_name(media: Media) -> str:
    """How messages name a medium: its path, its first frame, and its span."""
    name = media.path or f"{media.frames[0]} and {len(media.frames) - 1} further frames"
    if media.start_s is None and media.end_s is None:
        return name
    end = "the end" if media.end_s is None else f"{media.end_s:g} s"
    return f"{name} from {media.start_s or 0.0:g} s to {end}"


def _decode(source: FrameSource, media: Media, budget: FrameBudget, rules: FamilyRules) -> Clip:
    is_image = media.kind is MediaKind.image
    selection = _select(source, media, budget, rules)
    height, width = resize_shape(
        source.height,
        source.width,
        num_frames=None if is_image else len(selection.indices),
        budget=budget,
        rules=rules,
    )
    frames = np.empty((len(selection.indices), 3, height, width), np.uint8)
    filled = 0
    for block in _blocks(source, selection):
        resized = resize_frames(block, height, width, budget.convention)
        frames[filled : filled + len(block)] = resized.numpy()
        filled += len(block)
    return Clip(kind=media.kind, frames=frames, metadata=_metadata(source, selection))


def _select(
    source: FrameSource, media: Media, budget: FrameBudget, rules: FamilyRules
) -> FrameSelection:
    if media.kind is MediaKind.image:
        return FrameSelection(indices=(0,), timestamps_s=(0.0,), sample_fps=1.0)
    return select_frames(
        total_frames=source.total_frames,
        source_fps=source.fps,
        budget=budget,
        rules=rules,
        start_s=media.start_s,
        end_s=media.end_s,
    )


def _blocks(source: FrameSource, selection: FrameSelection) -> Iterator["Tensor"]:
    size = max(1, BLOCK_BYTES // (3 * source.height * source.width))
    for start in range(0, len(selection.indices), size):
        yield source.read(selection.indices[start : start + size])


def _metadata(source: FrameSource, selection: FrameSelection) -> ClipMetadata:
    return ClipMetadata(
        source_fps=source.fps,
        frame_indices=selection.indices,
        timestamps_s=selection.timestamps_s,
        sample_fps=selection.sample_fps,
        total_frames=source.total_frames,
        duration_s=source.total_frames / source.fps,
        width=source.width,
        height=source.height,
        decoder=source.decoder,
        decoder_version=decoder_version(source.decoder),
    )
