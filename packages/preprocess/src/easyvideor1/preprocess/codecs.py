"""Frames uint8 [T, 3, H, W] to a stored payload and back, for both cache formats.

`raw` and `zstd` give the frames back exactly. `jpeg` and `h264` store each frame on its own, one
after the other, and record how near they come. Every codec runs on one thread: many clips are
written and read at once. PyAV and Pillow are imported only where they are needed.
"""

import hashlib
import io
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from easyvideor1.preprocess.config import CacheConfig, Codec
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    import av
    from av.video.plane import VideoPlane

ZSTD_LEVEL = 3
"""A sixth smaller than level 1 on real footage; 9 gains a tenth more at three times the time."""
JPEG_SUBSAMPLING = "4:2:0"
"""As in nearly every video, so that 128 frames of 512 x 512 stay below 15 MB at quality 95."""
X264_OPTIONS = {"g": "1", "preset": "veryfast", "tune": "psnr"}
"""Every frame a key frame. For these, `veryfast` with `tune=psnr` comes as near as `medium` at
about its size, in half the time. Another choice gives other frames under the same keys, as does
another JPEG_SUBSAMPLING: raise `decode.DECODE_VERSION` with it."""
IDENTICAL_DB = 100.0
"""The PSNR of frames that come back exactly, so that means over clips stay finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedFrames:
    """The frames of a clip as a cache stores them."""

    codec: Codec
    parameters: dict[str, int]
    """What the codec was told: `level`, `quality` or `crf`."""
    shape: tuple[int, int, int, int]
    """(T, 3, H, W)"""
    payload: np.ndarray = field(repr=False)
    """uint8 [bytes]; may be a read-only view of a mapped file."""
    frame_bytes: tuple[int, ...]
    """[T] parts of the payload, one per frame; empty for lossless codecs."""
    digest: str
    """Of the frames for lossless codecs, else of the payload; see `checksum`."""
    psnr_db: float | None
    """Over all frames, when they were encoded; None for lossless codecs."""

    def decode(self) -> np.ndarray:
        """The frames, uint8 [T, 3, H, W], read-only; of `raw`, a view of the payload.

        Raises:
            ValueError: if the payload does not hold frames of that shape.
        """
        try:
            frames = _decoded(self)
        # A damaged payload makes zstd, libjpeg and FFmpeg raise errors of several kinds.
        except Exception as error:
            raise ValueError(f"its {self.codec.value} payload does not decode: {error}") from error
        frames.flags.writeable = False
        return frames

    def problem(self) -> str:
        """What is wrong with the payload, or the empty text. Decodes all of it."""
        if self.codec.is_lossy and checksum(self.payload) != self.digest:
            return "the payload differs from its checksum"
        try:
            frames = self.decode()
        except ValueError as error:
            return str(error)
        if not self.codec.is_lossy and checksum(frames) != self.digest:
            return "the frames differ from their checksum"
        return ""


def encode(frames: np.ndarray, config: CacheConfig) -> EncodedFrames:
    """Encode frames as `cache.codec` says.

    Args:
        frames: uint8 [T, 3, H, W]; of `raw`, the payload is a view of them where they are
            contiguous.
        config: the codec and its parameters.

    Raises:
        UserError: for `h264` and an odd height or width.
    """
    frames = np.ascontiguousarray(frames)
    if config.codec.is_lossy:
        return _encode_lossy(frames, config)
    parameters: dict[str, int] = {}
    payload = frames.reshape(-1)
    if config.codec is Codec.zstd:
        parameters = {"level": ZSTD_LEVEL}
        compressed = _zstd().compress(pa.py_buffer(payload))
        payload = np.frombuffer(compressed, np.uint8)
    return EncodedFrames(
        codec=config.codec,
        parameters=parameters,
        shape=_shape(frames),
        payload=payload,
        frame_bytes=(),
        digest=checksum(frames),
        psnr_db=None,
    )


def checksum(values: np.ndarray) -> str:
    """BLAKE2b of the bytes of an array, 32 hexadecimal digits."""
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).hexdigest()


def psnr_db(frames: np.ndarray, others: Iterable[np.ndarray]) -> float:
    """Peak signal-to-noise ratio over all frames, in decibels.

    Args:
        frames: uint8 [T, 3, H, W].
        others: as many frames, uint8 [3, H, W].
    """
    squares = 0
    for frame, other in zip(frames, others, strict=True):
        difference = np.subtract(frame, other, dtype=np.int32)
        squares += int(np.square(difference).sum(dtype=np.int64))
    if squares == 0:
        return IDENTICAL_DB
    return 10 * math.log10(255**2 * frames.size / squares)


def _encode_lossy(frames: np.ndarray, config: CacheConfig) -> EncodedFrames:
    if config.codec is Codec.jpeg:
        parameters = {"quality": config.jpeg_quality}
        parts = [_to_jpeg(frame, config.jpeg_quality) for frame in frames]
    else:
        parameters = {"crf": config.h264_crf}
        parts = _to_h264(frames, config.h264_crf)
    payload = np.frombuffer(b"".join(parts), np.uint8)
    return EncodedFrames(
        codec=config.codec,
        parameters=parameters,
        shape=_shape(frames),
        payload=payload,
        frame_bytes=tuple(len(part) for part in parts),
        digest=checksum(payload),
        psnr_db=psnr_db(frames, _lossy_frames(config.codec, parts, frames.shape[2:])),
    )


def _decoded(encoded: EncodedFrames) -> np.ndarray:
    if encoded.codec is Codec.raw:
        return encoded.payload.reshape(encoded.shape)
    if encoded.codec is Codec.zstd:
        # The length comes from the record, so a damaged one must not make us allocate without end.
        size = math.prod(encoded.shape)
        pixels = _zstd().decompress(pa.py_buffer(encoded.payload), size)
        return np.frombuffer(pixels, np.uint8).reshape(encoded.shape)
    frames = np.empty(encoded.shape, np.uint8)
    decoded = _lossy_frames(encoded.codec, _parts(encoded), encoded.shape[2:])
    for target, frame in zip(frames, decoded, strict=True):
        target[...] = frame
    return frames


def _parts(encoded: EncodedFrames) -> list[bytes]:
    """The payload cut into its frames."""
    ends = np.cumsum([0, *encoded.frame_bytes]).tolist()
    if len(ends) != encoded.shape[0] + 1 or ends[-1] != encoded.payload.size:
        raise ValueError(f"{len(ends) - 1} frames in {encoded.payload.size} bytes")
    return [encoded.payload[start:end].tobytes() for start, end in pairwise(ends)]


def _lossy_frames(
    codec: Codec, parts: Iterable[bytes], size: tuple[int, ...]
) -> Iterator[np.ndarray]:
    """Frames uint8 [3, H, W]; each may be overwritten once the next one is asked for."""
    decoder = _from_jpeg if codec is Codec.jpeg else _from_h264
    for frame in decoder(parts):
        if frame.shape[1:] != size:
            raise ValueError(f"a frame of {frame.shape[1:]} where {size} was recorded")
        yield frame


def _shape(frames: np.ndarray) -> tuple[int, int, int, int]:
    num_frames, channels, height, width = frames.shape
    return num_frames, channels, height, width


def _zstd() -> pa.Codec:
    return pa.Codec("zstd", compression_level=ZSTD_LEVEL)


def _to_jpeg(frame: np.ndarray, quality: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0)))
    image.save(file, "JPEG", quality=quality, subsampling=JPEG_SUBSAMPLING)
    return file.getvalue()


def _from_jpeg(parts: Iterable[bytes]) -> Iterator[np.ndarray]:
    from PIL import Image

    for part in parts:
        with Image.open(io.BytesIO(part), formats=["JPEG"]) as image:
            yield np.asarray(image).transpose(2, 0, 1)


def _to_h264(frames: np.ndarray, crf: int) -> list[bytes]:
    """One self-contained packet per frame."""
    import av

    _, _, height, width = frames.shape
    if height % 2 or width % 2:
        raise UserError(
            f"cache.codec=h264 needs even heights and widths, got {height} x {width}; "
            "use cache.codec=jpeg"
        )
    encoder = av.CodecContext.create("libx264", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuv420p"
    encoder.time_base, encoder.framerate = Fraction(1, 25), Fraction(25)
    encoder.thread_count = 1
    encoder.options = {**X264_OPTIONS, "crf": str(crf)}
    colours = _Colours()
    packets: list[av.Packet] = []
    for number, frame in enumerate(frames):
        yuv = colours.to_yuv(frame)
        yuv.pts = number
        packets += encoder.encode(yuv)
    packets += encoder.encode(None)
    return [bytes(packet) for packet in packets]


def _from_h264(parts: Iterable[bytes]) -> Iterator[np.ndarray]:
    import av

    decoder = av.CodecContext.create("h264", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    # Without it FFmpeg paints over what it cannot read.
    decoder.options = {"err_detect": "explode"}
    colours = _Colours()
    for part in parts:
        for frame in decoder.decode(av.Packet(part)):
            yield colours.to_rgb(frame)
    for frame in decoder.decode(None):
        yield colours.to_rgb(frame)


class _Colours:
    """RGB to the 4:2:0 YUV of the stored video and back, with one matrix and one range.

    BT.601 in limited range, because swscale rounds that without a bias; in full range it darkens
    every frame by half a step. Nothing is read from the stream, so no default can be guessed wrong.
    """

    def __init__(self) -> None:
        from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

        self._reformatter = VideoReformatter()
        self._full, self._limited = ColorRange.JPEG, ColorRange.MPEG
        self._matrix = Colorspace.ITU601
        self._how = (
            Interpolation.BICUBIC
            | Interpolation.ACCURATE_RND
            | Interpolation.FULL_CHR_H_INP
            | Interpolation.FULL_CHR_H_INT
        )

    def to_yuv(self, frame: np.ndarray) -> "av.VideoFrame":
        """A frame for the encoder from uint8 [3, H, W]."""
        import av

        _, height, width = frame.shape
        rgb = av.VideoFrame(width, height, "gbrp")
        for plane, channel in zip(rgb.planes, _GBR, strict=True):
            _rows(plane)[:height, :width] = frame[channel]
        return self._reformat(rgb, "yuv420p", self._full, self._limited)

    def to_rgb(self, frame: "av.VideoFrame") -> np.ndarray:
        """uint8 [3, H, W] from a frame of the decoder."""
        rgb = self._reformat(frame, "gbrp", self._limited, self._full)
        image = np.empty((3, rgb.height, rgb.width), np.uint8)
        for plane, channel in zip(rgb.planes, _GBR, strict=True):
            image[channel] = _rows(plane)[: rgb.height, : rgb.width]
        return image

    def _reformat(
        self, frame: "av.VideoFrame", pixel_format: str, source_range: int, target_range: int
    ) -> "av.VideoFrame":
        return self._reformatter.reformat(
            frame,
            format=pixel_format,
            src_colorspace=self._matrix,
            dst_colorspace=self._matrix,
            src_color_range=source_range,
            dst_color_range=target_range,
            interpolation=self._how,
            threads=1,
        )


_GBR = (1, 2, 0)
"""Which channel of an RGB image each plane of FFmpeg's `gbrp` holds."""


def _rows(plane: "VideoPlane") -> np.ndarray:
    """The memory of a plane, uint8 [rows, bytes per row], rows padded at their end."""
    return np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
