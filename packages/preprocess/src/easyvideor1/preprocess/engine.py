"""Fills the frame cache: every medium of the samples once, on Ray workers, resumable.

Plan (which keys are missing) → decode on workers that own their shards → report. What cannot be
decoded goes to the quarantine with its reason. Called by `evr-preprocess`, and by train and
evaluate before they begin; with nothing to do, neither Ray nor a decoder is started.
"""

import dataclasses
import functools
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.config import CacheConfig, DecodeConfig, Decoder, RayConfig
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.decoders import resolve_decoder
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.quarantine import Failure, Quarantine
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.records import Media, Sample

QUEUE_PER_WORKER = 2
"""Jobs sent ahead, so that a worker never waits for the driver."""
PLANNING_THREADS = 16
"""Fingerprints are many small reads, slow one after another on a network file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipJob:
    """One medium to be decoded under one budget."""

    media: Media
    budget: FrameBudget
    rules: FamilyRules
    settings: dict[str, Any]
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReport:
    """What one run of the engine did. Counts are of distinct clips."""

    samples: int
    reused: int
    """Were in the cache before."""
    decoded: int
    failures: tuple[Failure, ...]
    """Decoded in vain, now or earlier, and missing files."""
    seconds: float

    @property
    def cached(self) -> int:
        """Clips of these samples that are in the cache now."""
        return self.reused + self.decoded

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def failed_sample_ids(self) -> set[str]:
        """Samples that lack at least one of their media."""
        return {sample_id for failure in self.failures for sample_id in failure.sample_ids}

    def __str__(self) -> str:
        return (
            f"{self.samples} samples: {self.decoded} decoded, {self.reused} reused, "
            f"{self.failed} failed in {self.seconds:.1f} s"
        )


@dataclass(kw_only=True, slots=True)
class _Plan:
    jobs: dict[str, ClipJob] = field(default_factory=dict)
    sample_ids: dict[str, list[str]] = field(default_factory=dict)
    """By key."""
    unreadable: list[Failure] = field(default_factory=list)


def cache_samples(
    samples: Sequence[Sample],
    *,
    store: ClipStore,
    ray: RayConfig | None = None,
    progress: bool = True,
) -> CacheReport:
    """Put every clip of `samples` into the cache that `store` reads.

    Args:
        samples: those without media count, and need nothing.
        store: cache, budgets, rules and decoder.
        ray: the cluster to use; None is one of our own.
        progress: show a bar.
    """
    return cache_all([(samples, store)], ray=ray, progress=progress)


def cache_all(
    parts: Sequence[tuple[Sequence[Sample], ClipStore]],
    *,
    ray: RayConfig | None = None,
    progress: bool = True,
) -> CacheReport:
    """As `cache_samples` for several sets, e.g. training and validation, in one run.

    The stores share one cache and one decoder; their budgets may differ.
    """
    started_s = time.monotonic()
    store = parts[0][1]
    cache_config = dataclasses.replace(
        store.cache_config, dir=str(resolve_output(store.cache_config.dir))
    )
    cache = open_cache(cache_config)
    quarantine = Quarantine(cache_config)

    plan = _plan(parts, progress)
    pending = {key: job for key, job in plan.jobs.items() if not cache.has(key)}
    reused = len(plan.jobs) - len(pending)
    failures = list(plan.unreadable)
    quarantine.add(plan.unreadable)
    if not store.decode_config.retry_quarantined:
        known = quarantine.reasons()
        failures += [
            _failure(plan, job, known[key]) for key, job in pending.items() if key in known
        ]
        pending = {key: job for key, job in pending.items() if key not in known}

    decoded = 0
    for job, reason in _decode_all(list(pending.values()), cache_config, store, ray, progress):
        if reason is None:
            decoded += 1
        else:
            failure = _failure(plan, job, reason)
            quarantine.add([failure])
            failures.append(failure)
    return CacheReport(
        samples=sum(len(samples) for samples, _ in parts),
        reused=reused,
        decoded=decoded,
        failures=tuple(failures),
        seconds=time.monotonic() - started_s,
    )


def _failure(plan: _Plan, job: ClipJob, reason: str) -> Failure:
    return Failure(
        path=media_name(job.media),
        reason=reason,
        sample_ids=tuple(plan.sample_ids[job.key]),
        key=job.key,
    )


def _plan(parts: Sequence[tuple[Sequence[Sample], ClipStore]], progress: bool) -> _Plan:
    """One job per key, however many samples and paths lead to it."""
    plan = _Plan()
    for samples, store in parts:
        users: dict[Media, list[str]] = {}
        for sample in samples:
            for media in sample.media:
                users.setdefault(media, []).append(sample.id)
        with ThreadPoolExecutor(PLANNING_THREADS) as pool:
            described = pool.map(functools.partial(_settings_or_error, store), users)
            bar = tqdm(described, "planning", len(users), delay=2, disable=not progress)
            for media, settings in zip(users, bar, strict=True):
                _add(plan, store, media, settings, users[media])
    return plan


def _settings_or_error(store: ClipStore, media: Media) -> dict[str, Any] | DecodeError:
    try:
        return store.settings(media)
    except DecodeError as error:
        return error


def _add(
    plan: _Plan,
    store: ClipStore,
    media: Media,
    settings: dict[str, Any] | DecodeError,
    sample_ids: list[str],
) -> None:
    if isinstance(settings, DecodeError):
        plan.unreadable.append(
            Failure(path=settings.path, reason=settings.reason, sample_ids=tuple(sample_ids))
        )
        return
    key = key_of(settings)
    plan.jobs.setdefault(
        key,
        ClipJob(
            media=media,
            budget=store.budget(media),
            rules=store.rules,
            settings=settings,
            key=key,
        ),
    )
    plan.sample_ids.setdefault(key, []).extend(sample_ids)


def _decode_all(
    jobs: list[ClipJob],
    cache_config: CacheConfig,
    store: ClipStore,
    ray_config: RayConfig | None,
    progress: bool,
) -> Iterator[tuple[ClipJob, str | None]]:
    """Decode the jobs on workers; yields each with None or why it failed."""
    if not jobs:
        return
    wanted = store.decode_config.workers or len(os.sched_getaffinity(0))
    with ray_session(ray_config or RayConfig(), num_cpus=min(wanted, len(jobs))):
        import ray

        num_workers = min(len(jobs), store.decode_config.workers or _free_cpus())
        worker_class: Any = ray.remote(num_cpus=1)(CacheWorker)
        # Chosen here, once, and said once; the keys already name it.
        decode_config = dataclasses.replace(
            store.decode_config, decoder=Decoder(resolve_decoder(store.decode_config.decoder))
        )
        counter_dir = os.environ.get(decode_counter.VARIABLE, "")
        workers = [
            worker_class.remote(cache_config, decode_config, counter_dir)
            for _ in range(num_workers)
        ]
        failed = 0
        with tqdm(total=len(jobs), desc="decoding", unit="clip", disable=not progress) as bar:
            for job, reason in _dispatch(jobs, workers):
                failed += reason is not None
                bar.set_postfix(failed=failed, refresh=False)
                bar.update()
                yield job, reason
        ray.get([worker.close.remote() for worker in workers])
        for worker in workers:
            ray.kill(worker)


def _free_cpus() -> int:
    import ray

    return max(1, int(ray.available_resources().get("CPU", 1.0)))


def _dispatch(jobs: list[ClipJob], workers: list[Any]) -> Iterator[tuple[ClipJob, str | None]]:
    """Keep every worker supplied with a few jobs; yields outcomes as they come."""
    import ray

    waiting = deque(jobs)
    in_flight: dict[Any, tuple[Any, ClipJob]] = {}

    def send(worker: Any) -> None:
        if waiting:
            job = waiting.popleft()
            in_flight[worker.cache.remote(job)] = worker, job

    for _ in range(QUEUE_PER_WORKER):
        for worker in workers:
            send(worker)
    while in_flight:
        done, _ = ray.wait(list(in_flight), num_returns=1)
        worker, job = in_flight.pop(done[0])
        send(worker)
        yield job, ray.get(done[0])


class CacheWorker:
    """A Ray actor: decodes in a child that can be killed, writes shards that only it owns."""

    def __init__(self, cache_config: CacheConfig, decode_config: DecodeConfig, counter_dir: str):
        if counter_dir:
            os.environ[decode_counter.VARIABLE] = counter_dir
        self._decoder = KillableDecoder(decode_config)
        drafts = resolve_output(cache_config.dir) / "runs" / uuid.uuid4().hex
        drafts.mkdir(parents=True)
        self._writer = open_cache(cache_config).writer(drafts)

    def cache(self, job: ClipJob) -> str | None:
        """Decode one medium and write its frames; returns why that failed."""
        try:
            clip = self._decoder.decode(job.media, job.budget, job.rules)
        except DecodeError as error:
            return error.reason
        self._writer.add(
            StoredClip(
                clip=dataclasses.replace(clip, key=job.key),
                settings=job.settings,
                source=media_name(job.media),
            )
        )
        return None

    def close(self) -> None:
        """Seal what was written."""
        self._writer.seal()
        self._decoder.close()
