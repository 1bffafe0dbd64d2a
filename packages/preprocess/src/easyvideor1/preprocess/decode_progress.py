"""The progress bar of a decoding run: clips, rate, ETA, MB/s of frames, failures, and waiting."""

import time
from types import TracebackType
from typing import Self

from tqdm import tqdm


class DecodeProgress:
    """Shows what `dispatch` tells it.

    Args:
        total: clips to come.
        shown: draw a bar.
    """

    def __init__(self, total: int, *, shown: bool):
        self._bar = tqdm(total=total, desc="decoding", unit="clip", disable=not shown)
        self._started_s = time.monotonic()
        self._num_bytes = 0
        self._num_failed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands."""
        self._bar.close()

    def end(self, *, failed: bool = False, num_bytes: int = 0) -> None:
        """One more clip is decoded, by us or by another run, or has failed.

        Args:
            failed: there are no frames of it.
            num_bytes: of frames that this run decoded.
        """
        self._num_failed += failed
        self._num_bytes += num_bytes
        seconds = max(time.monotonic() - self._started_s, 1e-3)
        rate = f"{self._num_bytes / 1e6 / seconds:.1f} MB/s"
        self._bar.set_postfix_str(f"{rate}, failed={self._num_failed}", refresh=False)
        self._bar.update()

    def lost(self, num_clips: int) -> None:
        """Clips that have to be decoded again."""
        self._bar.update(-num_clips)

    def waiting(self, num_clips: int) -> None:
        """Nothing is left to do but to wait for clips that other runs decode."""
        text = f"decoding ({num_clips} clips by another run)" if num_clips else "decoding"
        self._bar.set_description_str(text, refresh=False)
        self._bar.refresh()
