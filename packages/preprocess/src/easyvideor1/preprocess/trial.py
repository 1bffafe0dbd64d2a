"""Decodes and encodes a few clips to see what that takes: the measured part of a plan.

Each thread owns a decoder process, as a worker of the engine does. Nothing is written to the cache.
"""

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from easyvideor1.preprocess.cache_worker import ClipJob
from easyvideor1.preprocess.codecs import encode
from easyvideor1.preprocess.config import CacheConfig, Codec, DecodeConfig
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.estimate import Probed, Trial, decoding_work
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip

NUM_THREADS = 4
"""Media decoded at once: under a load like that of a run, where there are few cores."""
TIME_S = 60.0
"""After it no further medium is begun."""
ENCODED_FRAMES = 32
"""Of a clip, encoded with each codec; in a row, because zstd compares frames with their like."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trials:
    """What came of it."""

    done: tuple[Trial, ...]
    failures: dict[str, str]
    """Why media gave no frames, by their cache keys."""


def try_clips(
    clips: Sequence[tuple[ClipJob, Probed]],
    decode_config: DecodeConfig,
    cache_config: CacheConfig,
    *,
    num_workers: int,
    progress: bool = True,
) -> Trials:
    """Decode clips in their order, until all are done or the time is up.

    Args:
        clips: a random sample, each with its header.
        decode_config: decoder and limits.
        cache_config: parameters of the codecs.
        num_workers: of the run that is planned; no more are tried at once.
        progress: show a bar.
    """
    if not clips:
        return Trials(done=(), failures={})
    num_threads = min(NUM_THREADS, num_workers, len(clips))
    with tqdm(total=len(clips), desc="trying", unit="clip", disable=not progress) as bar:
        queue = _Queue(deque(clips), bar)
        with ThreadPoolExecutor(num_threads) as pool:
            threads = [
                pool.submit(queue.work_off, decode_config, cache_config) for _ in range(num_threads)
            ]
        for thread in threads:
            thread.result()
    return Trials(done=tuple(queue.done), failures=queue.failures)


class _Queue:
    """Clips that several threads work off."""

    def __init__(self, waiting: "deque[tuple[ClipJob, Probed]]", bar: tqdm):
        self.done: list[Trial] = []
        self.failures: dict[str, str] = {}
        self._waiting, self._bar = waiting, bar
        self._end_s = time.monotonic() + TIME_S
        self._lock = threading.Lock()

    def work_off(self, decode_config: DecodeConfig, cache_config: CacheConfig) -> None:
        """One thread's share, in a decoder process of its own, which ends with the thread."""
        is_warm = False
        with KillableDecoder(decode_config) as decoder:
            while (clip := self._next()) is not None:
                job, probed = clip
                try:
                    if not is_warm:  # then the process has started and loaded its libraries
                        decoder.decode(job.media, job.budget, job.rules)
                        is_warm = True
                    started_s = time.perf_counter()
                    frames = decoder.decode(job.media, job.budget, job.rules)
                    seconds = time.perf_counter() - started_s
                except DecodeError as error:
                    self.failures[job.key] = error.reason
                else:
                    self.done.append(_trial(frames, probed, seconds, cache_config))
                with self._lock:
                    self._bar.update()

    def _next(self) -> tuple[ClipJob, Probed] | None:
        with self._lock:
            is_late = bool(self.done) and time.monotonic() > self._end_s
            return self._waiting.popleft() if self._waiting and not is_late else None


def _trial(clip: "Clip", probed: Probed, seconds: float, config: CacheConfig) -> Trial:
    num_frames = len(clip.frames)
    first = max(0, (num_frames - ENCODED_FRAMES) // 2)
    part = clip.frames[first : first + ENCODED_FRAMES]
    encoded_bytes: dict[Codec, int] = {}
    encoding_s: dict[Codec, float] = {}
    for codec in (Codec.zstd, Codec.jpeg, Codec.h264):
        started_s = time.perf_counter()
        try:
            encoded = encode(part, dataclasses.replace(config, codec=codec))
        except UserError:  # h264 takes even sizes only
            continue
        encoding_s[codec] = (time.perf_counter() - started_s) * num_frames / len(part)
        encoded_bytes[codec] = encoded.payload.size
    return Trial(
        kind=clip.kind,
        work=decoding_work(probed, num_frames),
        decoding_s=seconds,
        part_bytes=part.nbytes,
        encoded_bytes=encoded_bytes,
        encoding_s=encoding_s,
    )
