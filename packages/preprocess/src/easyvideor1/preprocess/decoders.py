"""Sources of frames behind one interface: torchcodec, PyAV, image files.

A source knows how many frames it has before any is decoded, and decodes only those it is asked for.
Sampling, resizing and error texts are `decode`'s. torch, torchcodec, PyAV and Pillow are imported
when a source is opened.
"""

import functools
import importlib.metadata
import logging
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from easyvideor1.preprocess.config import Decoder
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind

if TYPE_CHECKING:
    from av.video.frame import VideoFrame
    from torch import Tensor

_log = logging.getLogger(__name__)
_choosing = threading.Lock()
"""Many threads ask at once, and a first import that fails must be seen whole by each."""


class FrameSource(Protocol):
    """An opened medium."""

    @property
    def decoder(self) -> str: ...
    @property
    def total_frames(self) -> int: ...
    @property
    def fps(self) -> float:
        """Average over the whole source."""
        ...

    @property
    def height(self) -> int:
        """Of the frames as `read` gives them."""
        ...

    @property
    def width(self) -> int: ...

    def read(self, indices: Sequence[int]) -> "Tensor":
        """uint8 [n, 3, height, width] RGB; `indices` ascend, also from call to call."""
        ...


def open_source(media: Media, decoder: str) -> FrameSource:
    """Open one medium with the decoder that `decoder_for` names."""
    if media.kind is MediaKind.image:
        return ImageFiles([media.path], fps=1.0)
    if media.frames:
        assert media.frames_fps is not None
        return ImageFiles(media.frames, fps=media.frames_fps)
    return TorchcodecVideo(media.path) if decoder == "torchcodec" else PyavVideo(media.path)


def decoder_for(media: Media, wanted: Decoder) -> str:
    """`pillow` for image files, else `torchcodec` or `pyav`."""
    is_video_file = media.kind is MediaKind.video and not media.frames
    return resolve_decoder(wanted) if is_video_file else "pillow"


def decoder_version(decoder: str) -> str:
    """Version of the library behind a decoder's name."""
    distribution = {"pyav": "av"}.get(decoder, decoder)
    return importlib.metadata.version(distribution)


def resolve_decoder(wanted: Decoder) -> str:
    """The video decoder to use: `wanted`, or for `auto` the first that works here.

    Raises:
        UserError: if torchcodec is asked for by name and its FFmpeg libraries do not load.
    """
    if wanted is Decoder.pyav:
        return "pyav"
    with _choosing:
        problem = torchcodec_problem()
        if not problem:
            return "torchcodec"
        if wanted is Decoder.torchcodec:
            raise UserError(
                f"decode.decoder=torchcodec does not load: {problem}; "
                "install FFmpeg 4 to 8 with its shared libraries, or set decode.decoder=pyav"
            )
        _say_pyav(problem)
        return "pyav"


@functools.cache
def torchcodec_problem() -> str:
    """Why torchcodec cannot be used here, in one line; empty if it can."""
    try:
        import torchcodec
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    # The import alone says nothing: it succeeds without FFmpeg, for the sake of its image decoders.
    return "" if torchcodec.ffmpeg_major_version is not None else "it finds no FFmpeg libraries"


@functools.cache
def _say_pyav(problem: str) -> None:
    _log.warning("decoding with PyAV, because torchcodec does not load: %s", problem)


def clean_rate(fps: float) -> float:
    """`fps` without the noise of its computation, e.g. 12.0 for 12.000000000000002.

    Noise would let the number of frames, which is truncated, differ by one between decoders. All
    usual rates, 30000/1001 included, have small denominators and come out exactly.
    """
    return float(Fraction(fps).limit_denominator(10_000))


class TorchcodecVideo:
    """Exact frames: the file is scanned once, without decoding, for the times of all frames."""

    decoder = "torchcodec"

    def __init__(self, path: str):
        from torchcodec.decoders import VideoDecoder

        self._video = VideoDecoder(path, seek_mode="exact", num_ffmpeg_threads=1)
        metadata = self._video.metadata
        if not metadata.num_frames or not metadata.average_fps:
            raise ValueError(f"{metadata.num_frames} frames at {metadata.average_fps} fps")
        if not metadata.height or not metadata.width:
            raise ValueError("frames of unknown size")
        self.total_frames = metadata.num_frames
        self.fps = clean_rate(metadata.average_fps)
        self.height, self.width = metadata.height, metadata.width

    def read(self, indices: Sequence[int]) -> "Tensor":
        return self._video.get_frames_at(list(indices)).data


class PyavVideo:
    """The same frames by way of PyAV, whose wheel brings its own FFmpeg."""

    decoder = "pyav"

    def __init__(self, path: str):
        import av

        self._container = av.open(path)
        if not self._container.streams.video:
            raise ValueError("no video stream")
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "NONE"
        if self._stream.time_base is None:
            raise ValueError("no time base")
        self._time_base = float(self._stream.time_base)
        self._pts, self._key_pts, self.fps = self._scan()
        self.total_frames = len(self._pts)
        self._decoded: Iterator[VideoFrame] = iter(())
        self._seek(self._pts[0])
        self._pending: VideoFrame | None = next(self._decoded, None)
        if self._pending is None:
            raise ValueError("no frame can be decoded")
        self.height, self.width = _upright(self._pending).shape[:2]

    def _scan(self) -> tuple[list[int], list[int], float]:
        """Times of all frames and of the key frames in stream units, and the average rate."""
        pts: list[int] = []
        key_pts: list[int] = []
        end = 0
        for packet in self._container.demux(self._stream):
            time = packet.pts if packet.pts is not None else packet.dts
            if time is None or packet.is_discard:
                continue
            pts.append(time)
            end = max(end, time + (packet.duration or 0))
            if packet.is_keyframe:
                key_pts.append(time)
        if not pts:
            raise ValueError("no video packets")
        pts.sort()
        return pts, sorted(key_pts), self._average_fps(len(pts), (end - pts[0]) * self._time_base)

    def _average_fps(self, num_frames: int, duration_s: float) -> float:
        if duration_s > 0:
            return clean_rate(num_frames / duration_s)
        if not self._stream.average_rate:
            raise ValueError("no frame rate")
        return float(self._stream.average_rate)

    def read(self, indices: Sequence[int]) -> "Tensor":
        import torch

        frames = [_upright(self._frame_at(self._pts[index])) for index in indices]
        return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)

    def _frame_at(self, pts: int) -> "VideoFrame":
        """Decode on to the frame, after a jump if a key frame lies on the way."""
        key_pts = self._last_key_before(pts)
        if self._pending is None or _pts(self._pending) < key_pts:
            self._seek(key_pts)
            self._pending = next(self._decoded, None)
        while self._pending is not None and _pts(self._pending) < pts:
            self._pending = next(self._decoded, None)
        if self._pending is None or _pts(self._pending) != pts:
            raise ValueError(f"the frame at {pts * self._time_base:.3f} s cannot be decoded")
        return self._pending

    def _last_key_before(self, pts: int) -> int:
        position = bisect_right(self._key_pts, pts)
        return self._key_pts[position - 1] if position else self._pts[0]

    def _seek(self, pts: int) -> None:
        self._container.seek(pts, stream=self._stream)
        self._decoded = self._container.decode(self._stream)


def _pts(frame: "VideoFrame") -> int:
    if frame.pts is None:
        raise ValueError("a frame without a time")
    return frame.pts


def _upright(frame: "VideoFrame") -> np.ndarray:
    """uint8 [H, W, 3] RGB as displayed."""
    array = frame.to_ndarray(format="rgb24")
    return np.rot90(array, k=round(frame.rotation / 90)) if frame.rotation else array


class ImageFiles:
    """One image, or a video given as a list of image files."""

    decoder = "pillow"

    def __init__(self, paths: Sequence[str], fps: float):
        self._paths = paths
        self.total_frames, self.fps = len(paths), fps
        first = self._open(0)
        self.height, self.width = first.shape[:2]

    def read(self, indices: Sequence[int]) -> "Tensor":
        import torch

        frames = [self._open(index) for index in indices]
        for index, frame in zip(indices, frames, strict=True):
            if frame.shape[:2] != (self.height, self.width):
                raise ValueError(
                    f"{self._paths[index]} is {frame.shape[1]}x{frame.shape[0]}, "
                    f"the first frame {self.width}x{self.height}"
                )
        return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)

    def _open(self, index: int) -> np.ndarray:
        from PIL import Image, ImageOps

        with Image.open(self._paths[index]) as image:
            upright: Any = ImageOps.exif_transpose(image)
            return np.asarray(upright.convert("RGB"))
