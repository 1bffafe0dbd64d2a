"""Cache keys: equal exactly when the frames are equal.

A key is a hash over settings: the content of the media file, the span, the budget, the family's
rules, the decoder with its device, a codec that changes frames, and the versions of our own
sampling and decoding. Name and time of the file are not in it, so a moved or copied video keeps its
frames.
"""

import functools
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheMode,
    Codec,
    DecodeConfig,
    Device,
    Fingerprint,
)
from easyvideor1.preprocess.decode import DECODE_VERSION
from easyvideor1.preprocess.decoders import decoder_for
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import SAMPLER_VERSION
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind

BLOCK_BYTES = 4096
EDGE_BYTES = 65_536
"""Read at either end, where containers keep their tables."""
SPREAD_BLOCKS = 64


IMAGE_LIMITS = ("min_pixels", "max_pixels", "convention")
"""The fields of a budget that the frames of an image depend on."""


def clip_settings(
    media: Media,
    budget: FrameBudget,
    rules: FamilyRules,
    decode: DecodeConfig,
    cache: CacheConfig,
) -> dict[str, Any]:
    """Everything the frames of a medium depend on, as JSON-serialisable values.

    Args:
        media: the medium; its file is looked into.
        budget: what applies to it.
        rules: of the model family.
        decode: decoder and device.
        cache: fingerprint and codec; a codec without loss makes no difference.

    Raises:
        DecodeError: if a media file is missing or is no file.
    """
    limits = budget.as_dict()
    if media.kind is MediaKind.image:
        limits = {name: limits[name] for name in IMAGE_LIMITS}
    settings = {
        "content": _content(media, cache.fingerprint),
        "kind": media.kind.value,
        "span_s": [media.start_s, media.end_s],
        "frames_fps": media.frames_fps,
        "budget": limits,
        "rules": rules.as_dict(),
        "decoder": _decoder_name(media, decode),
        "versions": {"decode": DECODE_VERSION, "sampler": SAMPLER_VERSION},
    }
    # Frames decoded live were in no cache.
    if cache.codec.is_lossy and cache.mode is not CacheMode.live:
        settings["codec"] = _codec_name(cache)
    return settings


def _decoder_name(media: Media, decode: DecodeConfig) -> str:
    """E.g. `torchcodec`, `torchcodec:cuda`, `pyav` or `pillow`."""
    name = decoder_for(media, decode.decoder)
    if name == "torchcodec" and decode.device is not Device.cpu:
        return f"{name}:{decode.device.value}"
    return name


def _codec_name(cache: CacheConfig) -> str:
    """E.g. `jpeg:95` or `h264:18`."""
    quality = cache.jpeg_quality if cache.codec is Codec.jpeg else cache.h264_crf
    return f"{cache.codec.value}:{quality}"


def key_of(settings: dict[str, Any]) -> str:
    """40 hexadecimal digits over the settings of a clip."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def _content(media: Media, fingerprint: Fingerprint) -> str | list[str]:
    if media.frames:
        return [content_fingerprint(path, fingerprint) for path in media.frames]
    return content_fingerprint(media.path, fingerprint)


def content_fingerprint(path: str, fingerprint: Fingerprint = Fingerprint.fast) -> str:
    """A hash of a file's content, e.g. `fast:1c9d…`. Remembered while the file stays as it is.

    Raises:
        DecodeError: if there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise DecodeError(path, error.strerror or str(error)) from error
    if not Path(path).is_file():
        raise DecodeError(path, "not a file")
    if status.st_size == 0:
        raise DecodeError(path, "the file is empty")
    return _fingerprint(path, fingerprint, status.st_size, status.st_mtime_ns, status.st_ino)


@functools.lru_cache(maxsize=1_000_000)
def _fingerprint(path: str, fingerprint: Fingerprint, size: int, mtime_ns: int, inode: int) -> str:
    digest = hashlib.blake2b(str(size).encode(), digest_size=20)
    if fingerprint is Fingerprint.full:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    else:
        with open(path, "rb", buffering=0) as file:
            for start, length in _fast_ranges(size):
                file.seek(start)
                digest.update(file.read(length))
    return f"{fingerprint.value}:{digest.hexdigest()}"


def _fast_ranges(size: int) -> Sequence[tuple[int, int]]:
    """Start and length of the parts that tell two files apart without reading them whole."""
    if size <= 2 * EDGE_BYTES + SPREAD_BLOCKS * BLOCK_BYTES:
        return [(0, size)]
    step = (size - 2 * EDGE_BYTES) / SPREAD_BLOCKS
    spread = [(EDGE_BYTES + int(step * i), BLOCK_BYTES) for i in range(SPREAD_BLOCKS)]
    return [(0, EDGE_BYTES), *spread, (size - EDGE_BYTES, EDGE_BYTES)]
