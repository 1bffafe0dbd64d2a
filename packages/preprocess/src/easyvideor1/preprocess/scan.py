"""From a video file to its `FrameIndex`, or only to what its header says; nothing is decoded.

One pass of PyAV over the packets serves both video decoders, so both have the same idea of the
frames. What a container says wrongly or unusually becomes a note.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from easyvideor1.preprocess.frame_index import FrameIndex, average_fps, evenly_spaced

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.stream import VideoStream

DURATION_SLACK_S = 1.0
"""By how much the announced duration may exceed that of the frames without a note."""

MAX_STEP_BACK_S = 0.5
"""Beyond it the time of decoding does not falter but begins again."""

UNTIMED_FORMATS = {"mpeg", "h264", "hevc", "vvc", "m4v", "mpegvideo", "obu"}
"""FFmpeg's names of program and elementary streams, which give no frame its own time."""

NUMBERED_FORMATS = {"avi", "mxf"}
"""Containers that number frames as they are stored."""


def url(path: str) -> str:
    """A path as FFmpeg's libraries take it: without this, `12:30.mp4` would be of protocol 12."""
    return f"file:{path}"


def open_container(path: str) -> "InputContainer":
    """The container at `path`; its tags may be in any encoding.

    Raises:
        ValueError: if the file is empty; and FFmpeg's errors.
    """
    import av

    status = os.stat(path)
    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise ValueError("the file is empty")
    return av.open(url(path), metadata_errors="ignore")


def video_stream(container: "InputContainer") -> "VideoStream":
    """The stream to show.

    Raises:
        ValueError: if there is none; the cover picture of a sound file does not count.
    """
    stream = container.streams.best("video")
    if stream is None:
        raise ValueError("no video stream")
    if _is_cover(stream):
        raise ValueError("no video stream, only a cover picture")
    if stream.time_base is None:
        raise ValueError("no time base")
    if stream.codec_context is None:
        raise ValueError("FFmpeg has no decoder for its video")
    return stream  # type: ignore[return-value]


def packets_of(container: "InputContainer", stream: "VideoStream") -> Iterator["Packet"]:
    """The packets of a stream from where the container stands, and an empty one at the end."""
    # PyAV stumbles at the end of a file in which further streams have begun midway.
    with suppress(IndexError):
        yield from container.demux(stream)


def scan(path: str) -> FrameIndex:
    """The frames of a video file.

    Raises:
        ValueError: if the file has no video or no frames; and FFmpeg's errors.
    """
    with open_container(path) as container:
        stream = video_stream(container)
        packets = _Packets.read(container, stream)
        notes = (*packets.notes, *_format_notes(container, stream))
        if packets.num_untimed or _is_untimed(container, stream):
            return _count(packets, stream, (*notes, "gives no frame a time of its own"))
        if packets.greatest_step_back() * float(stream.time_base or 1) > MAX_STEP_BACK_S:
            return _count(packets, stream, (*notes, "its times begin again midway"))
        notes += _announcement_notes(container, stream, packets)
        return _by_time(packets, container, stream, notes)


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceProbe:
    """What the header of a medium says of it; the medium itself may hold less."""

    total_frames: int
    fps: float
    height: int
    """As stored: a video turned by a quarter is shown with height and width changed over."""
    width: int


def read_header(path: str) -> SourceProbe:
    """The header of a video file. Only a file whose header says too little is read to its end.

    Raises:
        ValueError: if the file has no video; and FFmpeg's errors.
    """
    with open_container(path) as container:
        stream = video_stream(container)
        fps = _announced_rate(stream)
        total_frames = stream.frames or round(_announced_duration_s(container, stream) * (fps or 0))
        size = stream.height, stream.width
    if not fps or total_frames < 1:
        index = scan(path)
        fps, total_frames = index.fps, len(index)
    return SourceProbe(total_frames=total_frames, fps=fps, height=size[0], width=size[1])


def _announced_duration_s(container: "InputContainer", stream: "VideoStream") -> float:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    return (container.duration or 0) / 1e6


@dataclass(kw_only=True, slots=True)
class _Packets:
    """Of one stream, in the order they are stored; each is a frame, as far as a container knows."""

    pts: list[int] = field(default_factory=list)
    dts: list[int | None] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    is_key: list[bool] = field(default_factory=list)
    other_pts: set[int] = field(default_factory=set)
    num_packets: int = 0
    num_damaged: int = 0
    num_untimed: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, container: "InputContainer", stream: "VideoStream") -> "_Packets":
        from av.error import InvalidDataError

        packets = cls()
        try:
            for packet in packets_of(container, stream):
                # The last one is empty: it would make a decoder give out what it holds.
                if packet.size:
                    packets._add(packet)
        except InvalidDataError as error:
            packets.notes = (f"cannot be read to its end: {error.strerror}",)
        if not packets.num_packets:
            raise ValueError("no video packets")
        return packets

    def greatest_step_back(self) -> int:
        """By how much the time of decoding ever falls, as where two files were joined."""
        times = [time for time in self.dts if time is not None]
        return -min(np.diff(times), default=0)

    def _add(self, packet: "Packet") -> None:
        self.num_packets += 1
        self.num_untimed += packet.pts is None
        time = packet.pts if packet.pts is not None else packet.dts
        if packet.is_discard or packet.is_corrupt:
            self.num_damaged += packet.is_corrupt
            if time is not None:
                self.other_pts.add(time)
            return
        self.pts.append(0 if time is None else time)
        self.dts.append(packet.dts)
        self.durations.append(packet.duration or 0)
        self.is_key.append(packet.is_keyframe)


def _by_time(
    packets: _Packets,
    container: "InputContainer",
    stream: "VideoStream",
    notes: tuple[str, ...],
) -> FrameIndex:
    assert stream.time_base is not None
    if not packets.pts:
        raise ValueError("no intact video packets")
    pts, order = np.unique(np.array(packets.pts, np.int64), return_index=True)
    durations = np.array(packets.durations, np.int64)[order]
    if len(pts) > 1:
        durations[durations <= 0] = int(np.median(np.diff(pts)))
    keys = np.flatnonzero(np.array(packets.is_key)[order])
    fps = average_fps(pts, durations, stream.time_base) or _announced_rate(stream)
    if not fps:
        if len(pts) > 1:
            raise ValueError("no frame rate")
        fps = 1.0  # a single frame has none, and needs none
    return FrameIndex(
        pts=pts,
        durations=durations,
        keys=keys,
        key_dts=_where_known(packets.dts, packets.pts)[order][keys],
        time_base=stream.time_base,
        fps=fps,
        stream=stream.index,
        seeks_by_dts=container.format.name == "mpegts",
        other_pts=frozenset(packets.other_pts - set(packets.pts)),
        notes=notes,
    )


def _where_known(times: list[int | None], otherwise: list[int]) -> np.ndarray:
    pairs = zip(times, otherwise, strict=True)
    return np.array([other if time is None else time for time, other in pairs], np.int64)


def _count(packets: _Packets, stream: "VideoStream", notes: tuple[str, ...]) -> FrameIndex:
    fps = _announced_rate(stream)
    if not fps:
        raise ValueError("no frame rate")
    # Also damaged packets: whatever comes out of the decoder has a number.
    index = evenly_spaced(packets.num_packets, fps).counted()
    *others, reason = notes
    note = f"{reason}: frames are counted, at {fps:g} a second"
    return replace(index, stream=stream.index, notes=(*others, note))


def _announced_frames(container: "InputContainer", stream: "VideoStream") -> int:
    """Also counted where the header has no number; 0 if nothing tells it before the end."""
    # Without the frames that an edit list of an mp4 cuts off, and with those of all fragments.
    is_mp4 = container.format.name.startswith("mov,")
    return len(stream.index_entries) if is_mp4 else stream.frames


def _announced_rate(stream: "VideoStream") -> float | None:
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate else None


def _is_untimed(container: "InputContainer", stream: "VideoStream") -> bool:
    name = container.format.name
    if name not in NUMBERED_FORMATS:
        return name in UNTIMED_FORMATS
    # With B-frames the order of storage is not that of display. FFmpeg's versions number H.264 and
    # HEVC differently even without.
    return stream.has_b_frames or stream.codec.name in ("h264", "hevc")


def _format_notes(container: "InputContainer", stream: "VideoStream") -> tuple[str, ...]:
    notes: list[str] = []
    count = sum(not _is_cover(other) for other in container.streams.video)
    if count > 1:
        notes.append(f"has {count} video streams, of which number {stream.index} is shown")
    shape = stream.sample_aspect_ratio
    if shape and shape != 1:
        notes.append(
            f"its pixels are {shape.numerator}:{shape.denominator} wide; shown as they are stored"
        )
    if _has_alpha(stream):
        notes.append("its alpha channel is not applied")
    return tuple(notes)


def _is_cover(stream: "Stream") -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def _has_alpha(stream: "VideoStream") -> bool:
    if stream.metadata.get("alpha_mode") == "1":
        return True
    # FFmpeg's GIF decoder lays the frames on white itself.
    is_gif = stream.codec_context.name == "gif"
    return bool(
        stream.pix_fmt and not is_gif and any(part.is_alpha for part in stream.format.components)
    )


def _announcement_notes(
    container: "InputContainer", stream: "VideoStream", packets: _Packets
) -> tuple[str, ...]:
    """What the header promises beyond what is there, and what is there but damaged."""
    assert stream.time_base is not None
    notes: tuple[str, ...] = ()
    if packets.num_damaged:
        notes = (f"damaged frames left out: {packets.num_damaged}",)
    announced = _announced_frames(container, stream)
    if announced > packets.num_packets:
        return (f"announces {announced} frames, holds {packets.num_packets}", *notes)
    if announced or container.duration is None or not packets.pts:
        return notes
    end = max(time + length for time, length in zip(packets.pts, packets.durations, strict=True))
    # Containers differ in whether a duration counts from 0 or from the first frame.
    end_s = max(end, end - min(packets.pts)) * float(stream.time_base)
    announced_s = _announced_duration_s(container, stream)
    if announced_s > end_s + DURATION_SLACK_S:
        return (f"announces {announced_s:.2f} s, its video ends after {end_s:.2f} s", *notes)
    return notes
