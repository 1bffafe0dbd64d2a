"""Hands jobs to workers and follows each to its end, whoever brings it about.

A job is claimed just before it is sent (`lease`), sent while the frames in flight stay within a
number of bytes, and done once its clip can be read. What another run has claimed is put off until
that run has sealed it, given up on it or died. A worker that dies is replaced: what it had not
sealed is sent again, and the medium it died over is set aside when that happens twice.
"""

import functools
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.cache_worker import ClipJob, Outcome
from easyvideor1.preprocess.decode_progress import DecodeProgress
from easyvideor1.preprocess.errors import LeaseLostError
from easyvideor1.preprocess.frame_cache import FrameCache
from easyvideor1.preprocess.geometry import MAX_ASPECT_RATIO
from easyvideor1.preprocess.lease import RunLease
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import MediaKind

JOBS_PER_WORKER = 2
"""Sent ahead, so that a worker never waits for the driver."""
POLL_S = 1.0
"""Between looks at what other runs do."""
MAX_DEATHS = 2
"""Of workers over one medium, after which it is set aside."""
MAX_DEATHS_IN_A_ROW = 8
"""Of workers without a clip in between, after which the run ends."""
LAST_SEAL_S = 10.0
"""For workers to seal what they have when the run ends early."""


class End(StrEnum):
    """How a job ended."""

    decoded = "decoded"
    elsewhere = "elsewhere"
    """Another run decoded it."""
    failed = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedJob:
    job: ClipJob
    end: End
    problem: str = ""
    """Why it failed."""
    repaired: bool = False
    num_bytes: int = 0
    """Of the frames, where this run decoded them."""


@dataclass(kw_only=True, slots=True, eq=False)
class _Worker:
    actor: Any
    drafts: Path
    has_started: bool = False
    is_sealing: bool = False
    jobs: list[ClipJob] = field(default_factory=list)
    """Sent and not answered, oldest first: it is busy with the first."""
    unsealed: dict[str, FinishedJob] = field(default_factory=dict)
    """By key: decoded, and not readable yet."""

    @property
    def max_bytes(self) -> int:
        """Of frames that it may hold: those of one job at a time."""
        return max(map(max_frame_bytes, self.jobs), default=0)


class Dispatcher:
    """Iterate over it once: it yields every job with its end.

    Args:
        jobs: with distinct keys, none of them in the cache when last looked.
        lease: of this run.
        cache: to look into for what other runs have sealed.
        quarantined: why other runs could not decode a key; None where they could, or may not count.
        start_worker: makes a `CacheWorker` actor whose drafts go to a folder.
        num_workers: how many of them.
        max_bytes: of frames in flight; one job always is.
        progress: shows what happens.
    """

    def __init__(
        self,
        jobs: Sequence[ClipJob],
        *,
        lease: RunLease,
        cache: FrameCache,
        quarantined: Callable[[str], str | None],
        start_worker: Callable[[Path], Any],
        num_workers: int,
        max_bytes: float,
        progress: DecodeProgress,
    ):
        self._waiting = deque(_rotated(jobs, lease.run_id))
        self._put_off: deque[ClipJob] = deque()
        self._lease, self._cache, self._quarantined = lease, cache, quarantined
        self._start_worker = start_worker
        self._num_workers = num_workers
        self._max_bytes = max_bytes
        self._progress = progress
        self._workers: list[_Worker] = []
        self._calls: dict[Any, tuple[_Worker, ClipJob | None]] = {}
        self._deaths: dict[str, int] = {}
        self._deaths_in_a_row = 0
        self._looked_s = time.monotonic()

    def __iter__(self) -> Iterator[FinishedJob]:
        """Every job, once, in the order they end.

        Raises:
            LeaseLostError: if another run took this one for dead.
            DiskFullError: if there is no room for the frames.
            UserError: if workers cannot live here.
        """
        try:
            self._workers = [self._new_worker() for _ in range(self._num_workers)]
            while self._is_open():
                self._lease.check()
                yield from self._send()
                self._seal_idle()
                yield from self._receive()
                self._look_at_others()
        except LeaseLostError:
            raise
        except BaseException:
            self._seal_in_time()
            raise
        finally:
            self._end_workers()

    def _is_open(self) -> bool:
        unsealed = any(worker.unsealed for worker in self._workers)
        return bool(self._waiting or self._put_off or self._calls or unsealed)

    def _new_worker(self) -> _Worker:
        drafts = self._lease.new_drafts()
        worker = _Worker(actor=self._start_worker(drafts), drafts=drafts)
        self._calls[worker.actor.ready.remote()] = worker, None
        return worker

    def _send(self) -> Iterator[FinishedJob]:
        """Claim and send jobs as long as there is room for them."""
        while self._waiting and (worker := self._worker_for(self._waiting[0])):
            job = self._waiting.popleft()
            if not self._lease.claim(job.key):
                self._put_off.append(job)
                continue
            if found := self._done_by_another_run(job):
                self._lease.drop(job.key)
                self._progress.end(failed=found.end is End.failed)
                yield found
                continue
            worker.jobs.append(job)
            self._calls[worker.actor.cache.remote(job)] = worker, job

    def _worker_for(self, job: ClipJob) -> _Worker | None:
        """The idlest worker that may get the job; None while there is none."""
        in_flight = sum(worker.max_bytes for worker in self._workers)
        for worker in sorted(self._workers, key=lambda worker: len(worker.jobs)):
            if not worker.has_started or len(worker.jobs) == JOBS_PER_WORKER:
                continue
            more = max(0, max_frame_bytes(job) - worker.max_bytes)
            if not in_flight or in_flight + more <= self._max_bytes:
                return worker
        return None

    def _done_by_another_run(self, job: ClipJob) -> FinishedJob | None:
        """Asked after the claim is ours: from then on no other run ends the job."""
        if self._cache.has(job.key):
            return FinishedJob(job=job, end=End.elsewhere)
        if problem := self._quarantined(job.key):
            return FinishedJob(job=job, end=End.failed, problem=problem)
        return None

    def _seal_idle(self) -> None:
        """A worker without further work seals, so that nobody waits for its clips."""
        if self._waiting:
            return
        for worker in self._workers:
            if worker.unsealed and not worker.jobs and not worker.is_sealing:
                worker.is_sealing = True
                self._calls[worker.actor.seal.remote()] = worker, None

    def _receive(self) -> Iterator[FinishedJob]:
        import ray

        if not self._calls:
            if self._put_off:
                time.sleep(POLL_S)
            return
        answered, _ = ray.wait(list(self._calls), num_returns=1, timeout=POLL_S)
        for call in answered:
            yield from self._take_answer(call)

    def _take_answer(self, call: Any) -> Iterator[FinishedJob]:
        import ray
        from ray.exceptions import RayActorError, RayTaskError

        worker, job = self._calls[call]
        try:
            outcome: Outcome = ray.get(call)
        except RayActorError as error:
            if error.actor_init_failed:
                raise RuntimeError(f"a decoding worker did not start: {error}") from error
            yield from self._replace(worker)
            return
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise
        del self._calls[call]
        worker.has_started = True
        if job is None:
            worker.is_sealing = False
        else:
            self._deaths_in_a_row = 0
            worker.jobs.remove(job)
            finished = _finished(job, outcome)
            failed = finished.end is End.failed
            self._progress.end(failed=failed, num_bytes=finished.num_bytes)
            if failed:
                # Noted by whoever takes it from here, before another run may claim it.
                yield finished
                self._lease.drop(job.key)
            else:
                worker.unsealed[job.key] = finished
        for key in outcome.sealed:
            self._lease.drop(key)
            yield worker.unsealed.pop(key)

    def _replace(self, worker: _Worker) -> Iterator[FinishedJob]:
        """Start a worker in place of a dead one, and send again what that one had not sealed."""
        import ray

        self._deaths_in_a_row += 1
        if self._deaths_in_a_row >= MAX_DEATHS_IN_A_ROW:
            raise UserError(
                f"{MAX_DEATHS_IN_A_ROW} decoding workers died one after another, as when memory "
                "runs out; lower decode.workers, decode.in_flight_gb or the budget"
            )
        self._calls = {call: sent for call, sent in self._calls.items() if sent[0] is not worker}
        # Even if it lives on, out of reach, it can seal nothing without its folder.
        ray.kill(worker.actor)
        shutil.rmtree(worker.drafts, ignore_errors=True)
        self._workers[self._workers.index(worker)] = self._new_worker()
        again = [finished.job for finished in worker.unsealed.values()]
        self._progress.lost(len(again))
        if worker.jobs:
            suspect, *rest = worker.jobs
            self._deaths[suspect.key] = self._deaths.get(suspect.key, 0) + 1
            if self._deaths[suspect.key] < MAX_DEATHS:
                again.append(suspect)
            else:
                problem = (
                    f"the worker process that decoded it died {MAX_DEATHS} times, as when memory "
                    "runs out"
                )
                finished = FinishedJob(job=suspect, end=End.failed, problem=problem)
                self._progress.end(failed=True)
                yield finished
                self._lease.drop(suspect.key)
            again += rest
        self._waiting.extendleft(reversed(again))

    def _look_at_others(self) -> None:
        """Try again what other runs had claimed, once they have let go of it."""
        if self._waiting or not self._put_off or time.monotonic() - self._looked_s < POLL_S:
            return
        self._looked_s = time.monotonic()
        self._lease.remove_dead_runs()
        claimed = self._lease.claimed()
        self._waiting = deque(job for job in self._put_off if job.key not in claimed)
        self._put_off = deque(job for job in self._put_off if job.key in claimed)
        self._progress.waiting(len(self._put_off) if not self._calls else 0)

    def _seal_in_time(self) -> None:
        """Keep what the workers have decoded, if they can seal it soon."""
        import ray

        calls = [worker.actor.seal.remote() for worker in self._workers if worker.unsealed]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=LAST_SEAL_S)

    def _end_workers(self) -> None:
        import ray

        for worker in self._workers:
            ray.kill(worker.actor)


def max_frame_bytes(job: ClipJob) -> int:
    """More than the frames of the job's clip can have, whatever the source is."""
    budget = job.budget
    is_image = job.media.kind is MediaKind.image
    return _max_bytes(
        1 if is_image else budget.max_frames,
        budget.min_pixels,
        budget.max_pixels,
        None if is_image else budget.total_pixels,
        job.rules.factor,
    )


@functools.lru_cache
def _max_bytes(
    num_frames: int, min_pixels: int, max_pixels: int, total_pixels: int | None, factor: int
) -> int:
    pixels = num_frames * max_pixels
    if total_pixels is not None:
        # qwen-vl-utils lifts a frame's share to 1.05 times the least.
        pixels = min(pixels, max(total_pixels, math.ceil(1.05 * num_frames * min_pixels)))
    # Rounded up by less than the factor on both sides; the thinnest frame has the longest ones.
    longest = math.sqrt(max_pixels * MAX_ASPECT_RATIO)
    rounding = factor * (longest + longest / MAX_ASPECT_RATIO) + factor**2
    return 3 * (pixels + num_frames * math.ceil(rounding))


def _rotated(jobs: Sequence[ClipJob], run_id: str) -> list[ClipJob]:
    """From another job on in each run, so that runs on the same data rarely meet."""
    start = int(run_id, 16) % len(jobs)
    return [*jobs[start:], *jobs[:start]]


def _finished(job: ClipJob, outcome: Outcome) -> FinishedJob:
    if outcome.problem is not None:
        return FinishedJob(job=job, end=End.failed, problem=outcome.problem)
    return FinishedJob(
        job=job, end=End.decoded, repaired=outcome.repaired, num_bytes=outcome.num_bytes
    )
