"""Decoder processes for whoever needs frames now: as many as are asked at once, up to a limit.

Each child belongs to a thread of the pool, because a child ends with the thread that started it and
the callers' threads may end at any time. Used by `store`.
"""

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media


class DecoderPool:
    """Decodes in children that a deadline and a memory limit can end.

    Args:
        config: decoder, limits, and how many at once.
    """

    def __init__(self, config: DecodeConfig):
        self._config = config
        num_threads = config.workers or len(os.sched_getaffinity(0))
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="evr-decode")
        self._own = threading.local()
        self._decoders: list[KillableDecoder] = []
        weakref.finalize(self, _close_all, self._decoders)

    def decode(self, media: Media, budget: FrameBudget, rules: FamilyRules) -> Clip:
        """As `KillableDecoder.decode`; may be called from several threads.

        Raises:
            DecodeError: if the medium gives no frames, takes too long or kills the decoder.
        """
        return self._threads.submit(self._decode, media, budget, rules).result()

    def close(self) -> None:
        """End the children once the calls that run have ended."""
        self._threads.shutdown()
        _close_all(self._decoders)

    def _decode(self, media: Media, budget: FrameBudget, rules: FamilyRules) -> Clip:
        if not hasattr(self._own, "decoder"):
            self._own.decoder = KillableDecoder(self._config)
            self._decoders.append(self._own.decoder)
        return self._own.decoder.decode(media, budget, rules)


def _close_all(decoders: list[KillableDecoder]) -> None:
    while decoders:
        decoders.pop().close()
