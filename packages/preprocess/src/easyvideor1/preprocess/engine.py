"""Fills the frame cache: every medium of the samples once, on Ray workers, resumable, shared.

Plan (which keys are missing) → `dispatch` to workers under this run's lease → report. What cannot
be decoded goes to the quarantine with its reason. Called by `evr-preprocess`, and through
`ensure_cached` by train and evaluate before they begin; with nothing to do, neither Ray nor a
decoder is started.
"""

import dataclasses
import functools
import math
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.cache_settings import explain_missing, record_settings
from easyvideor1.preprocess.cache_worker import CacheWorker, ClipJob, free_disk_bytes, is_disk_full
from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheMode,
    DecodeConfig,
    Decoder,
    Device,
    RayConfig,
)
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.decode_progress import DecodeProgress
from easyvideor1.preprocess.decoders import resolve_decoder
from easyvideor1.preprocess.dispatch import Dispatcher, End, FinishedJob
from easyvideor1.preprocess.errors import DecodeError, DiskFullError, MissingClipsError
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.lease import RunLease
from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.preprocess.quarantine import Failure, Quarantine
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, Sample

PLANNING_THREADS = 16
"""Fingerprints are many small reads, slow one after another on a network file system."""
MANY_CLIPS = 10_000

Parts = Sequence[tuple[Sequence[Sample], ClipStore]]
"""Sets of samples, e.g. training and validation, each with the store that reads its clips. The
stores share one cache and one decoder; their budgets may differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReport:
    """What one run of the engine did. Counts are of distinct clips."""

    samples: int
    reused: int
    """Were in the cache before."""
    decoded: int
    """By this run."""
    elsewhere: int = 0
    """Decoded by another run at the same time."""
    repaired: int = 0
    """Of those this run decoded: their metadata say what is unusual or damaged in the source."""
    failures: tuple[Failure, ...]
    """Decoded in vain, now or earlier, and missing files."""
    seconds: float

    @property
    def cached(self) -> int:
        """Clips of these samples that are in the cache now."""
        return self.reused + self.decoded + self.elsewhere

    @property
    def failed(self) -> int:
        return len(self.failures)

    @property
    def failed_sample_ids(self) -> set[str]:
        """Samples that lack at least one of their media."""
        return {sample_id for failure in self.failures for sample_id in failure.sample_ids}

    def __str__(self) -> str:
        notes = [
            f"{self.elsewhere} decoded by another run" if self.elsewhere else "",
            f"{self.repaired} from unusual or damaged sources" if self.repaired else "",
        ]
        more = "".join(f", {note}" for note in notes if note)
        return (
            f"{self.samples} samples: {self.decoded} decoded, {self.reused} reused, "
            f"{self.failed} failed{more} in {self.seconds:.1f} s"
        )


@dataclass(kw_only=True, slots=True)
class Survey:
    """What some data need, beside what their cache holds."""

    pending: list[ClipJob] = field(default_factory=list)
    """To be decoded."""
    reused: list[ClipJob] = field(default_factory=list)
    """In the cache."""
    failures: list[Failure] = field(default_factory=list)
    """Media that cannot be read, or could not be decoded earlier."""
    sample_ids: dict[str, list[str]] = field(default_factory=dict)
    """Who shows a clip, by its key."""

    def failure(self, job: ClipJob, reason: str) -> Failure:
        """The entry for a clip that gives no frames."""
        return Failure(
            path=media_name(job.media),
            reason=reason,
            sample_ids=tuple(self.sample_ids[job.key]),
            key=job.key,
        )


@dataclass(kw_only=True, slots=True)
class _Plan:
    jobs: dict[str, ClipJob] = field(default_factory=dict)
    sample_ids: dict[str, list[str]] = field(default_factory=dict)
    """By key."""
    unreadable: list[Failure] = field(default_factory=list)


def ensure_cached(
    parts: Parts, *, ray: RayConfig | None = None, progress: bool = True
) -> CacheReport | None:
    """Do what `cache.mode` says about clips that are missing before data are used.

    Args:
        parts: the data, each set with its store.
        ray: the cluster to use; None is one of our own.
        progress: show a bar.

    Returns:
        The report; None in live mode, where nothing is cached.

    Raises:
        MissingClipsError: if clips are missing and the mode is `require`.
    """
    mode = parts[0][1].cache_config.mode
    if mode is CacheMode.live:
        return None
    if mode is CacheMode.require:
        return _require_all(parts, progress)
    return cache_all(parts, ray=ray, progress=progress)


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


def cache_all(parts: Parts, *, ray: RayConfig | None = None, progress: bool = True) -> CacheReport:
    """As `cache_samples` for several sets in one run.

    Raises:
        DiskFullError: what was sealed until then stays.
        LeaseLostError: another run took this one for dead; what was sealed until then stays.
    """
    started_s = time.monotonic()
    config = _absolute(parts[0][1].cache_config)
    ends: list[FinishedJob] = []
    with _full_disk_told(config, ends):
        found = survey(parts, progress=progress)
        quarantine = Quarantine(config)
        quarantine.add(found.failures)
        # Closed whatever happens here: the lease and the workers end with it.
        with closing(_decode_all(found.pending, parts, config, ray, progress)) as outcomes:
            for finished in outcomes:
                ends.append(finished)
                if finished.end is End.failed:
                    failure = found.failure(finished.job, finished.problem)
                    quarantine.add([failure])
                    found.failures.append(failure)
    return CacheReport(
        samples=_num_samples(parts),
        reused=len(found.reused),
        decoded=sum(finished.end is End.decoded for finished in ends),
        elsewhere=sum(finished.end is End.elsewhere for finished in ends),
        repaired=sum(finished.repaired for finished in ends),
        failures=tuple(found.failures),
        seconds=time.monotonic() - started_s,
    )


@contextmanager
def _full_disk_told(config: CacheConfig, ends: list[FinishedJob]) -> Generator[None]:
    """Turn the end of the disk, in a worker or here, into an error that says what there is."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        free_bytes, cause = free_disk_bytes(Path(config.dir)), error
    except DiskFullError as error:
        free_bytes, cause = error.free_bytes, error
    else:
        return
    added = [finished for finished in ends if finished.end is End.decoded]
    raise DiskFullError(
        config.dir,
        free_bytes,
        num_clips=len(added),
        frame_bytes=sum(finished.num_bytes for finished in added),
    ) from cause


def needed_keys(parts: Parts, *, progress: bool = True) -> set[str]:
    """The keys of all clips of these data. Media that cannot be read have none."""
    return set(_plan(parts, progress).jobs)


def survey(parts: Parts, *, progress: bool = True, retry: bool | None = None) -> Survey:
    """Compare data with their cache and its quarantine; decodes nothing.

    Args:
        parts: the data.
        progress: show a bar where planning takes long.
        retry: whether media in quarantine are to be decoded; None is as the config says.
    """
    plan = _plan(parts, progress)
    config = parts[0][1].cache_config
    if retry is None:
        retry = parts[0][1].decode_config.retry_quarantined
    cache, known = open_cache(config), {} if retry else Quarantine(config).reasons()
    # Of a few clips each is looked for; of many, the list of all keys is cheaper.
    is_cached = cache.has if len(plan.jobs) < MANY_CLIPS else set(cache.keys()).__contains__
    found = Survey(failures=list(plan.unreadable), sample_ids=plan.sample_ids)
    for key, job in plan.jobs.items():
        if is_cached(key):
            found.reused.append(job)
        elif key in known:
            found.failures.append(found.failure(job, known[key]))
        else:
            found.pending.append(job)
    return found


def _require_all(parts: Parts, progress: bool) -> CacheReport:
    started_s = time.monotonic()
    found = survey(parts, progress=progress, retry=False)
    if missing := found.pending:
        config = _absolute(parts[0][1].cache_config)
        raise MissingClipsError(
            len(missing),
            tuple(dict.fromkeys(id for job in missing for id in found.sample_ids[job.key])),
            tuple(media_name(job.media) for job in missing),
            config.dir,
            explain_missing(open_cache(config), Path(config.dir), [j.settings for j in missing]),
        )
    return CacheReport(
        samples=_num_samples(parts),
        reused=len(found.reused),
        decoded=0,
        failures=tuple(found.failures),
        seconds=time.monotonic() - started_s,
    )


def _absolute(config: CacheConfig) -> CacheConfig:
    """Workers may have another working directory."""
    return dataclasses.replace(config, dir=str(resolve_output(config.dir)))


def _num_samples(parts: Parts) -> int:
    return sum(len(samples) for samples, _ in parts)


def _plan(parts: Parts, progress: bool) -> _Plan:
    """One job per key, however many samples and paths lead to it."""
    plan = _Plan()
    for samples, store in parts:
        users: dict[Media, list[str]] = {}
        for sample in samples:
            for media in sample.media:
                users.setdefault(media, []).append(sample.id)
        describe = functools.partial(_settings_or_error, store)
        described = map_ahead(describe, users, threads=PLANNING_THREADS)
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
    parts: Parts,
    config: CacheConfig,
    ray_config: RayConfig | None,
    progress: bool,
) -> Generator[FinishedJob]:
    """Decode the jobs under a lease of our own; yields each with its end."""
    if not jobs:
        return
    decode_config = parts[0][1].decode_config
    cache, quarantine = open_cache(config), Quarantine(config)
    wanted = min(len(jobs), decode_config.workers or len(os.sched_getaffinity(0)))
    on_gpu = decode_config.device is Device.cuda
    with (
        RunLease(Path(config.dir)) as lease,
        ray_session(ray_config or RayConfig(), num_cpus=wanted, num_gpus=None if on_gpu else 0),
        DecodeProgress(len(jobs), shown=progress) as bar,
    ):
        record_settings(Path(config.dir), lease.drafts, (job.settings for job in jobs))
        num_workers = min(len(jobs), decode_config.workers or _free_cpus())
        yield from Dispatcher(
            jobs,
            lease=lease,
            cache=cache,
            # Tried again on purpose: what an earlier run says does not count.
            quarantined=(lambda _: None) if decode_config.retry_quarantined else quarantine.reason,
            start_worker=_worker_starter(config, decode_config, num_workers),
            num_workers=num_workers,
            max_bytes=decode_config.in_flight_gb * 1e9,
            progress=bar,
        )


def _worker_starter(
    config: CacheConfig, decode_config: DecodeConfig, num_workers: int
) -> Callable[[Path], Any]:
    """What starts a worker actor whose unsealed files go to a folder."""
    import ray

    num_gpus = _gpu_share(num_workers) if decode_config.device is Device.cuda else 0.0
    worker_class: Any = ray.remote(num_cpus=1, num_gpus=num_gpus)(CacheWorker)
    # Chosen here, once, and said once; the keys already name it.
    decode_config = dataclasses.replace(
        decode_config, decoder=Decoder(resolve_decoder(decode_config.decoder))
    )
    counter_dir = os.environ.get(decode_counter.VARIABLE, "")
    return lambda drafts: worker_class.remote(config, decode_config, drafts, counter_dir)


def _free_cpus() -> int:
    import ray

    return max(1, int(ray.available_resources().get("CPU", 1.0)))


def _gpu_share(num_workers: int) -> float:
    """Of one worker, so that all of them are spread over the GPUs."""
    import ray

    num_gpus = ray.cluster_resources().get("GPU", 0.0)
    if num_gpus < 1:
        raise UserError("decode.device=cuda needs a GPU, and Ray sees none; set decode.device=cpu")
    return math.floor(min(1.0, num_gpus / num_workers) * 1e4) / 1e4
