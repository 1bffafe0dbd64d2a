"""Which frames a source has, when each is shown, and which of them can be jumped to.

A `FrameIndex` comes from `scan` for a video file; pictures are evenly spaced. It turns the sampling
rule's nominal frames into frames of the source. No torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameIndex:
    """The N frames of a source in the order they are shown.

    Example: of a file of two frames at 25 fps, FrameIndex(pts=[0, 512], durations=[512, 512],
    keys=[0], key_dts=[-512], time_base=Fraction(1, 12800), fps=25.0)
    """

    pts: np.ndarray
    """int64 [N] ascending times in units of `time_base`."""
    durations: np.ndarray
    """int64 [N]"""
    keys: np.ndarray
    """int64 [K] positions of the key frames among the N."""
    key_dts: np.ndarray
    """int64 [K] times at which the key frames are to be decoded."""
    time_base: Fraction
    fps: float
    """Average over the whole source."""
    is_timed: bool = True
    """Whether a frame is known by its time. If not, frames are counted from the beginning."""
    stream: int = 0
    """Of the container's streams, the one that is shown."""
    seeks_by_dts: bool = False
    """Whether the container is searched by decoding time."""
    other_pts: frozenset[int] = frozenset()
    """Times of packets that are no frames to be shown: cut off by an edit list, or damaged."""
    notes: tuple[str, ...] = ()
    """What is unusual about the container, a sentence each."""

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.pts)

    @property
    def times_s(self) -> np.ndarray:
        """[N] seconds from the first frame."""
        return (self.pts - self.pts[0]) * float(self.time_base)

    @property
    def is_constant(self) -> bool:
        """Whether each frame lies within half a frame of its place at the average rate."""
        nominal_s = np.arange(len(self)) / self.fps
        return bool(np.abs(self.times_s - nominal_s).max() < 0.5 / self.fps)

    def shown_at(self, indices: Sequence[int]) -> list[int]:
        """Positions of the frames displayed at the times indices / fps.

        At a constant rate those are the indices themselves, whatever the rounding of the times.
        """
        if self.is_constant:
            return list(indices)
        # A time may be rounded by half a unit, also upwards.
        begins_s = self.times_s - 0.5 * float(self.time_base)
        shown = np.searchsorted(begins_s, np.asarray(indices) / self.fps, side="right") - 1
        return [int(position) for position in shown.clip(0)]

    def nearest_keys(
        self, times_s: Sequence[float], start_s: float | None, end_s: float | None
    ) -> list[int]:
        """Positions of the key frames of a span that are nearest to some times, each once.

        Empty if the span has none, or if frames are counted: then there is nothing to jump to.
        """
        if not self.is_timed:
            return []
        keys_s = self.times_s[self.keys]
        # Rounded as the span of the sampling rule is: 0.1 s may be 0.10000000000000002.
        inside = np.round(keys_s, 6) >= (start_s or 0.0)
        if end_s is not None:
            inside &= np.round(keys_s, 6) <= end_s
        keys, keys_s = self.keys[inside], keys_s[inside]
        if not len(keys):
            return []
        after = np.searchsorted(keys_s, times_s).clip(0, len(keys) - 1)
        before = (after - 1).clip(0)
        is_earlier_nearer = np.abs(keys_s[before] - times_s) <= np.abs(keys_s[after] - times_s)
        return [int(key) for key in np.unique(keys[np.where(is_earlier_nearer, before, after)])]

    def first(self, count: int) -> "FrameIndex":
        """The index of a source that ends after `count` frames."""
        is_kept = self.keys < count
        pts, durations = self.pts[:count], self.durations[:count]
        return replace(
            self,
            pts=pts,
            durations=durations,
            keys=self.keys[is_kept],
            key_dts=self.key_dts[is_kept],
            fps=average_fps(pts, durations, self.time_base) or self.fps,
        )

    def counted(self) -> "FrameIndex":
        """The same frames at even distances, to be told apart by their number alone."""
        return replace(
            evenly_spaced(len(self), self.fps),
            keys=np.zeros(1, np.int64),
            key_dts=np.zeros(1, np.int64),
            is_timed=False,
            stream=self.stream,
            notes=self.notes,
        )

    def rate_notes(self) -> tuple[str, ...]:
        """A note on a rate that varies."""
        if self.is_constant:
            return ()
        gaps_s = np.diff(self.times_s)
        return (
            f"variable frame rate: frames follow after {gaps_s.min():.3g} to {gaps_s.max():.3g} s; "
            "at each sampled time the frame displayed then is shown",
        )


def evenly_spaced(count: int, fps: float) -> FrameIndex:
    """The index of `count` pictures at a constant rate, each of which can be read alone."""
    positions = np.arange(count)
    return FrameIndex(
        pts=positions,
        durations=np.ones(count, np.int64),
        keys=positions,
        key_dts=positions,
        time_base=1 / Fraction(fps),
        fps=fps,
    )


def clean_rate(fps: float) -> float:
    """`fps` without the noise of its computation, e.g. 12.0 for 12.000000000000002.

    Noise would let the number of frames, which is truncated, differ by one between decoders. All
    usual rates, 30000/1001 included, have small denominators and come out exactly.
    """
    return float(Fraction(fps).limit_denominator(10_000))


def average_fps(pts: np.ndarray, durations: np.ndarray, time_base: Fraction) -> float | None:
    """Frames per second from the first frame to the end of the last; None if those coincide."""
    duration_s = int((pts + durations).max() - pts[0]) * float(time_base)
    return clean_rate(len(pts) / duration_s) if duration_s > 0 else None
