"""From a medium and a budget to frames with metadata: the one definition, cached or on the fly.

Sampling and target size are computed before any frame is decoded; only sampled frames are decoded,
one at a time, and resized as the model's processor would. Keys and the cache are elsewhere.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.config import DecodeConfig, Device
from easyvideor1.preprocess.decoders import (
    FrameSource,
    check_device,
    decoder_for,
    decoder_version,
    open_source,
)
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.frame_index import FrameIndex
from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.images import image_size, read_image
from easyvideor1.preprocess.resize import resize_frame, resize_image
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import select_frames
from easyvideor1.preprocess.scan import SourceProbe, read_header
from easyvideor1.preprocess.video import EndsEarlyError
from easyvideor1.schema.budget import FrameBudget, Snap
from easyvideor1.schema.records import Media, MediaKind

DECODE_VERSION = 2
"""Part of every cache key: raise it when the same file gives other frames."""

Allocate = Callable[[tuple[int, int, int, int]], np.ndarray]
"""Makes an uint8 array of a shape."""


def _in_this_process(shape: tuple[int, int, int, int]) -> np.ndarray:
    return np.empty(shape, np.uint8)


def decode(
    media: Media,
    budget: FrameBudget,
    rules: FamilyRules,
    config: DecodeConfig,
    *,
    allocate: Allocate = _in_this_process,
) -> Clip:
    """Decode, sample and resize one medium. Every call is counted (`decode_counter`).

    Damage that FFmpeg covers up within a frame is noticed only in a process apart (`killable`).

    Args:
        media: an image, a video, a span of one, or a list of frame files.
        budget: how many frames and pixels it may cost.
        rules: of the model family that will see it.
        config: which decoder to use, and where.
        allocate: makes the array for the frames.

    Raises:
        DecodeError: if the medium gives no frames, or too few of those it announces.
        UserError: if the decoder or the device cannot be had here.
    """
    decode_counter.count()
    decoder = decoder_for(media, config.decoder)
    check_device(config.device, decoder)
    try:
        if media.kind is MediaKind.image:
            return _decode_image(media, budget, rules, allocate)
        source = open_source(media, decoder, config.device)
        name = f"{decoder}:cuda" if _is_on_gpu(decoder, config.device) else decoder
        return _decode_video(source, media, budget, rules, name, allocate)
    # Damaged files make FFmpeg (through two libraries) and Pillow raise almost anything.
    except Exception as error:
        raise DecodeError(media_name(media), _reason(error)) from error


def probe(media: Media, decoder: str) -> SourceProbe:
    """What the header of a medium says of it, for planning; nothing is decoded.

    Args:
        media: an image, a video, or a list of frame files.
        decoder: as `decoder_for` names it.

    Raises:
        DecodeError: if the medium cannot be opened.
    """
    try:
        if decoder != "pillow":
            return read_header(media.path)
        height, width = image_size(media.path or media.frames[0])
        return SourceProbe(
            total_frames=len(media.frames) or 1,
            fps=media.frames_fps or 1.0,
            height=height,
            width=width,
        )
    except Exception as error:
        raise DecodeError(media_name(media), _reason(error)) from error


def media_name(media: Media) -> str:
    """How messages name a medium: its path, its first frame, and its span."""
    name = media.path or f"{media.frames[0]} and {len(media.frames) - 1} further frames"
    if media.start_s is None and media.end_s is None:
        return name
    end = "the end" if media.end_s is None else f"{media.end_s:g} s"
    return f"{name} from {media.start_s or 0.0:g} s to {end}"


def _reason(error: Exception) -> str:
    """In one line, without what says nothing about the file: numbers, its path, places in C++."""
    text = getattr(error, "strerror", None) or str(error)
    text = re.sub(r"^\w+, \S+:\d+, ", "", text)
    return " ".join(text.split())[:500] or type(error).__name__


def _is_on_gpu(decoder: str, device: Device) -> bool:
    return device is Device.cuda and decoder == "torchcodec"


def _decode_image(
    media: Media, budget: FrameBudget, rules: FamilyRules, allocate: Allocate
) -> Clip:
    image, notes = read_image(media.path)
    height, width = resize_shape(
        image.height, image.width, num_frames=None, budget=budget, rules=rules
    )
    frames = allocate((1, 3, height, width))
    frames[0] = resize_image(image, height, width, budget.convention).transpose(2, 0, 1)
    metadata = ClipMetadata(
        source_fps=1.0,
        frame_indices=(0,),
        timestamps_s=(0.0,),
        sample_fps=1.0,
        total_frames=1,
        duration_s=1.0,
        width=image.width,
        height=image.height,
        decoder="pillow",
        decoder_version=decoder_version("pillow"),
        repairs=notes,
    )
    return Clip(kind=media.kind, frames=frames, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Selection:
    """Frames to be shown, by their positions in the source, and when."""

    positions: list[int]
    timestamps_s: tuple[float, ...]
    sample_fps: float
    snapped: bool = False
    notes: tuple[str, ...] = ()


def _decode_video(
    source: FrameSource,
    media: Media,
    budget: FrameBudget,
    rules: FamilyRules,
    decoder: str,
    allocate: Allocate,
) -> Clip:
    while True:
        selection = _select(source.index, media, budget, rules)
        height, width = resize_shape(
            source.height,
            source.width,
            num_frames=len(selection.positions),
            budget=budget,
            rules=rules,
        )
        frames = allocate((len(selection.positions), 3, height, width))
        try:
            shown = _read_into(frames, source, selection.positions, budget)
        except EndsEarlyError:
            continue
        metadata = _metadata(source, selection, shown, decoder)
        return Clip(kind=media.kind, frames=frames, metadata=metadata)


def _read_into(
    frames: np.ndarray, source: FrameSource, positions: list[int], budget: FrameBudget
) -> list[int]:
    """Fill `frames`; returns which frames of the source are shown in them."""
    import torch

    _, _, height, width = frames.shape
    target = torch.from_numpy(frames)
    shown = []
    for number, (position, frame) in enumerate(source.read(positions)):
        target[number].copy_(resize_frame(frame, height, width, budget.convention))
        shown.append(position)
    return shown


def _select(index: FrameIndex, media: Media, budget: FrameBudget, rules: FamilyRules) -> _Selection:
    chosen = select_frames(
        total_frames=len(index),
        source_fps=index.fps,
        budget=budget,
        rules=rules,
        start_s=media.start_s,
        end_s=media.end_s,
    )
    exact = _Selection(
        positions=index.shown_at(chosen.indices),
        timestamps_s=chosen.timestamps_s,
        sample_fps=chosen.sample_fps,
    )
    return exact if budget.snap is Snap.exact else _snap(exact, index, media)


def _snap(exact: _Selection, index: FrameIndex, media: Media) -> _Selection:
    """The key frames nearest to the chosen frames; fewer, where two have the same."""
    keys = index.nearest_keys(exact.timestamps_s, media.start_s, media.end_s)
    if not keys:
        return _Selection(
            positions=exact.positions,
            timestamps_s=exact.timestamps_s,
            sample_fps=exact.sample_fps,
            notes=("has no key frame to snap to: the very frames are shown",),
        )
    return _Selection(
        positions=keys,
        timestamps_s=tuple(index.times_s[keys].tolist()),
        sample_fps=exact.sample_fps * len(keys) / len(exact.positions),
        snapped=True,
    )


def _metadata(
    source: FrameSource, selection: _Selection, shown: list[int], decoder: str
) -> ClipMetadata:
    index = source.index
    return ClipMetadata(
        source_fps=index.fps,
        frame_indices=tuple(shown),
        timestamps_s=selection.timestamps_s,
        sample_fps=selection.sample_fps,
        total_frames=len(index),
        duration_s=len(index) / index.fps,
        width=source.width,
        height=source.height,
        decoder=decoder,
        decoder_version=decoder_version(decoder),
        snapped=selection.snapped,
        repairs=(*source.repairs, *selection.notes),
    )
