"""Decoded frames of a video file, one after another from a jump on: by torchcodec or by PyAV.

Both give what their FFmpeg gives and skip packets that it refuses, as the ffmpeg program does.
Which frames are wanted and what stands in for a missing one is `video`'s.
"""

import errno
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from easyvideor1.preprocess.config import Device
from easyvideor1.preprocess.frame_index import FrameIndex
from easyvideor1.preprocess.scan import open_container, packets_of, url

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.filter import Graph
    from av.video.frame import VideoFrame
    from torch import Tensor


NO_PTS = -(1 << 63)
"""Time of a frame to which the decoder gives none."""


class Decoded(NamedTuple):
    """A frame that is decoded but not converted to RGB."""

    pts: int
    """In units of the stream's time base."""
    raw: Any
    """Of the reader's library."""


class FrameReader(Protocol):
    """Of a file that the first `rewind` opens; `frames` goes on from the last of the two moves."""

    def rewind(self) -> None:
        """To the beginning, by opening the file anew: not every format can be searched."""
        ...

    def jump(self, pts: int) -> None:
        """To the key frame at or before a time."""
        ...

    def frames(self) -> Iterator[Decoded]:
        """Frames as the decoder gives them, to the end."""
        ...

    def size(self, raw: Any) -> tuple[int, int]:
        """Height and width as displayed."""
        ...

    def rgb(self, raw: Any) -> "Tensor":
        """uint8 [3, height, width] as displayed."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What is to be said about how this reader decodes."""
        ...


def open_reader(path: str, index: FrameIndex, decoder: str, device: Device) -> FrameReader:
    """The reader of a decoder's name."""
    if decoder == "torchcodec":
        return TorchcodecReader(path, index, device)
    return PyavReader(path, index)


class TorchcodecReader:
    """By the stages of torchcodec: demuxer, packet decoder and colour converter.

    One frame at a time stays in the processor's cache from decoding to resizing, which is faster
    than torchcodec's batches, and a refused packet costs one frame instead of the rest.
    """

    def __init__(self, path: str, index: FrameIndex, device: Device):
        from torchcodec.decoders import ColorConverter

        self._path, self._index, self._device = path, index, device.value
        self._converter = ColorConverter(device=self._device)
        self._demuxer: Any = None
        self._decoder: Any = None

    def rewind(self) -> None:
        from torchcodec.decoders import Demuxer

        self._demuxer = Demuxer(url(self._path), streams=self._index.stream)
        stream: Any = self._demuxer.streams[0]
        self._decoder = stream.make_decoder(device=self._device, num_ffmpeg_threads=1)

    def jump(self, pts: int) -> None:
        self._demuxer.seek(float(pts * self._index.time_base))
        self._decoder.reset()

    def frames(self) -> Iterator[Decoded]:
        for packet in self._packets():
            for raw in self._decode(packet):
                yield Decoded(self._ticks(raw.pts_seconds), raw)
        for raw in self._decoder.drain():
            yield Decoded(self._ticks(raw.pts_seconds), raw)

    def _packets(self) -> Iterator[Any]:
        try:
            yield from self._demuxer
        except RuntimeError as error:
            # Where a file is cut off, and not where its disk or the memory fails.
            if "Invalid data" not in str(error):
                raise

    def _decode(self, packet: Any) -> list:
        try:
            return self._decoder.decode(packet)
        except RuntimeError as error:
            status = re.search(r"Failed to send packet to decoder \(status (-?\d+)\)", str(error))
            if status is None:
                raise
            if int(status[1]) == -errno.ENOMEM:
                raise MemoryError(str(error)) from error
            return []

    def _ticks(self, seconds: float) -> int:
        time_base = self._index.time_base
        ticks = round(seconds * time_base.denominator / time_base.numerator)
        return max(ticks, NO_PTS)

    def size(self, raw: Any) -> tuple[int, int]:
        return _turned(raw.height, raw.width, raw.rotation)

    def rgb(self, raw: Any) -> "Tensor":
        return self._converter.convert(raw).data

    def notes(self) -> tuple[str, ...]:
        return () if self._device == "cpu" else self._cuda_notes()

    def _cuda_notes(self) -> tuple[str, ...]:
        """Say so if NVDEC does not know the codec: torchcodec then decodes on the CPU unasked."""
        from torchcodec.decoders import VideoDecoder

        # It need not know more of the file than one frame to say how it would decode it.
        first = {"pts": int(self._index.pts[0]), "duration": 1, "key_frame": 1}
        status = VideoDecoder(
            url(self._path),
            stream_index=self._index.stream,
            device=self._device,
            custom_frame_mappings=json.dumps({"frames": [first]}),
        ).cpu_fallback
        return (
            (f"decoded on the CPU, converted and resized on the GPU: {status}",) if status else ()
        )


class PyavReader:
    """By PyAV, whose wheel brings its own FFmpeg."""

    def __init__(self, path: str, index: FrameIndex):
        self._path, self._index = path, index
        self._container: InputContainer | None = None
        self._stream: Any = None
        self._graphs: dict[tuple, Graph] = {}

    def rewind(self) -> None:
        if self._container is not None:
            self._container.close()
        self._container = open_container(self._path)
        stream: Any = self._container.streams[self._index.stream]
        stream.thread_type = "NONE"
        self._stream = stream

    def jump(self, pts: int) -> None:
        assert self._container is not None
        self._container.seek(pts, stream=self._stream)

    def frames(self) -> Iterator[Decoded]:
        for packet in self._packets():
            for raw in self._decode(packet):
                yield Decoded(NO_PTS if raw.pts is None else raw.pts, raw)

    def _packets(self) -> Iterator[Any]:
        from av.error import InvalidDataError

        assert self._container is not None
        # As above: only where a file is cut off.
        with suppress(InvalidDataError):
            yield from packets_of(self._container, self._stream)

    def _decode(self, packet: Any) -> "list[VideoFrame]":
        from av.error import FFmpegError

        try:
            return packet.decode()
        except MemoryError:
            raise
        except FFmpegError:
            return []

    def size(self, raw: "VideoFrame") -> tuple[int, int]:
        return _turned(raw.height, raw.width, raw.rotation)

    def rgb(self, raw: "VideoFrame") -> "Tensor":
        import torch

        is_deep = raw.format.components[0].bits > 8
        converted = self._by_filter(raw) if is_deep else raw
        array = converted.to_ndarray(format="rgb24", threads=1)
        if raw.rotation:
            array = np.ascontiguousarray(np.rot90(array, k=round(raw.rotation / 90)))
        return torch.from_numpy(array).permute(2, 0, 1)

    def _by_filter(self, raw: "VideoFrame") -> "VideoFrame":
        """As the ffmpeg program and torchcodec convert. PyAV's own conversion places the chroma of
        more than 8 bits otherwise, which changes edges by up to half the range.
        """
        from av.filter import Graph

        form = raw.width, raw.height, raw.format.name
        if form not in self._graphs:
            graph = Graph()
            graph.threads = 1
            source = graph.add_buffer(
                width=raw.width,
                height=raw.height,
                format=raw.format,
                time_base=self._index.time_base,
            )
            graph.link_nodes(
                source,
                graph.add("scale", "flags=bicubic"),
                graph.add("format", "rgb24"),
                graph.add("buffersink"),
            ).configure()
            self._graphs[form] = graph
        self._graphs[form].push(raw)
        converted: Any = self._graphs[form].pull()
        return converted

    def notes(self) -> tuple[str, ...]:
        return ()


def _turned(height: int, width: int, rotation: float) -> tuple[int, int]:
    return (width, height) if round(rotation / 90) % 2 else (height, width)
