"""A video file as a source of frames: exactly those asked for, each needed group decoded once.

Reads along a `FrameIndex` and jumps where a key frame lies on the way. Where the file does not keep
what its index says, the nearest earlier frame stands in, or the index is cut; both are said.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from easyvideor1.preprocess.config import Device
from easyvideor1.preprocess.frame_readers import Decoded, open_reader
from easyvideor1.preprocess.scan import scan

if TYPE_CHECKING:
    from torch import Tensor

JUMP_FRAMES = 4
"""A jump must save more frames than it costs: those that a decoder holds back for reordering."""

MAX_MISSES = 8
"""Key frames tried in vain before a file is read in order: with periodic intra refresh, say, none
of them can be decoded without the frames before it."""


class EndsEarlyError(Exception):
    """Nothing could be decoded from some frame on; the index ends there now, so sample again."""


class VideoFile:
    """The frames of a video file by their position in `index`.

    Args:
        path: of the file.
        decoder: `torchcodec` or `pyav`.
        device: where to decode; `cuda` with torchcodec only.

    Raises:
        ValueError: if nothing can be decoded; and errors of the libraries.
    """

    def __init__(self, path: str, decoder: str, device: Device = Device.cpu):
        self.index = scan(path)
        self._reader = open_reader(path, self.index, decoder, device)
        self._notes = list(self._reader.notes())
        self._stand_ins: list[int] = []
        self._can_jump = True
        self._start()
        if self._current is None:
            raise ValueError("no frame can be decoded")
        self.height, self.width = self._reader.size(self._current.raw)

    @property
    def repairs(self) -> tuple[str, ...]:
        """What is unusual about the file and how it was read so far."""
        repairs = (*self.index.notes, *self.index.rate_notes(), *self._notes)
        if not self._stand_ins:
            return repairs
        times_s = self.index.times_s[self._stand_ins]
        listed = ", ".join(f"{time_s:.2f}" for time_s in times_s[:8])
        listed += ", …" if len(times_s) > 8 else ""
        return (
            *repairs,
            f"sampled frames that cannot be decoded: {len(times_s)}, at {listed} s; "
            "the nearest others stand in",
        )

    def read(self, positions: Sequence[int]) -> Iterator[tuple[int, "Tensor"]]:
        """Frames uint8 [3, height, width] RGB with their positions, for `positions` that do not
        descend. Those given back differ where another frame has to stand in.

        Raises:
            EndsEarlyError: if no frame can be decoded from some position on; then `index` is cut.
            ValueError: if more than half of the frames cannot be decoded.
        """
        self._stand_ins = []
        last = None
        for position in positions:
            if last is None or last[0] != position:
                last = position, *self._read(position)
                if len(self._stand_ins) > len(positions) / 2:
                    raise ValueError(
                        f"more than half of the {len(positions)} sampled frames cannot be decoded"
                    )
            yield last[1], last[2]

    def _read(self, position: int) -> tuple[int, "Tensor"]:
        try:
            frame = self._frame(position)
        except EndsEarlyError:
            self._cut()
            raise
        if frame.pts == self._pts[position]:
            return position, self._reader.rgb(frame.raw)
        self._stand_ins.append(position)
        return self._position(frame.pts), self._reader.rgb(frame.raw)

    def _cut(self) -> None:
        """Let the index end at the last frame that can be decoded."""
        found, readable = len(self.index), bisect_right(self._pts, self._last_pts())
        if readable < found:
            self.index = self.index.first(readable)
            self._notes.append(f"of {found} frames in the file, {readable} can be decoded")
        elif self._can_jump:
            self._can_jump = False
        else:
            raise ValueError("its frames are decoded at one time and not at another")
        self._start()

    def _start(self) -> None:
        """Go to the first frame of the file."""
        self._pts: list[int] = self.index.pts.tolist()
        self._known = set(self._pts)
        self._rewind()
        if self.index.is_timed and self._has_other_times:
            self.index = self.index.counted()
            self._notes.append("its frames have other times than its packets: they are counted")
            self._start()

    def _rewind(self) -> None:
        self._reader.rewind()
        self._restart()
        first = next(self._frames, None)
        if first is not None:
            self._frames = chain([first], self._frames)
            self._has_other_times = (
                first.pts not in self._known and first.pts not in self.index.other_pts
            )
        self._current = self._next()

    def _restart(self) -> None:
        self._frames = self._reader.frames()
        self._num_decoded = 0
        self._before: Decoded | None = None
        self._has_other_times = False

    def _next(self) -> Decoded | None:
        """The next decoded frame that the index has."""
        for frame in self._frames:
            self._num_decoded += 1
            if not self.index.is_timed:
                return Decoded(self._num_decoded - 1, frame.raw)
            if frame.pts in self._known:
                return frame
        return None

    def _frame(self, position: int) -> Decoded:
        """The frame at a position, or the nearest one before it that can be decoded."""
        wanted = self._pts[position]
        if self._before and self._current and self._before.pts < wanted < self._current.pts:
            return self._before
        if self._must_jump(position):
            self._go_to(position)
        while self._current and self._current.pts < wanted:
            self._before, self._current = self._current, self._next()
        if self._current is None:
            raise EndsEarlyError
        if self._current.pts == wanted:
            return self._current
        return self._before or self._current

    def _must_jump(self, position: int) -> bool:
        if self._current is None or self._current.pts > self._pts[position]:
            return True
        number = self._last_key(position)
        here = self._position(self._current.pts)
        return self._can_jump and number > 0 and self.index.keys[number] > here + JUMP_FRAMES

    def _go_to(self, position: int) -> None:
        """To the last key frame before a position from which decoding begins well.

        A search may miss the key frame, in transport streams above all, and it may be damaged.
        """
        last = self._last_key(position) if self._can_jump else 0
        for number in range(last, max(last - MAX_MISSES, 0), -1):
            if self._reaches(number):
                return
            if self._current is None:
                raise EndsEarlyError
        self._can_jump = self._can_jump and last <= MAX_MISSES
        self._rewind()

    def _reaches(self, number: int) -> bool:
        """Jump to a key frame; whether it is the first that comes out."""
        index = self.index
        pts = self._pts[index.keys[number]]
        self._reader.jump(int(index.key_dts[number]) if index.seeks_by_dts else pts)
        self._restart()
        self._current = self._next()
        # Frames that are shown before the key frame but stored behind it lack what they refer to.
        while self._current and self._current.pts < pts:
            self._current = self._next()
        return self._current is not None and self._current.pts == pts

    def _last_pts(self) -> int:
        """Time of the last frame that can be decoded."""
        numbers = range(1, len(self.index.keys))
        # Damage of a tail: up to some key frame all can be decoded, and from there on none.
        first_bad = bisect_left(numbers, True, key=lambda number: not self._reaches(number))
        if first_bad == 0 or not self._reaches(numbers[first_bad - 1]):
            self._rewind()
        last = None
        while self._current:
            last, self._current = self._current, self._next()
        if last is None:
            raise ValueError("no frame can be decoded")
        return last.pts

    def _last_key(self, position: int) -> int:
        """Number of the last key frame at or before a position; -1 if there is none."""
        return bisect_right(self.index.keys, position) - 1

    def _position(self, pts: int) -> int:
        return max(0, bisect_right(self._pts, pts) - 1)
