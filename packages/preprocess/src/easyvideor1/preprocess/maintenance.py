"""Jobs over a cache that exists: what it holds, whether it is intact, what can go, another form.

Each prints what it found; `cli` calls them. They read around the notes of use that `gc` goes by, so
looking after a cache does not make its clips look used.
"""

import contextlib
import dataclasses
import functools
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from easyvideor1.preprocess import cache as caches
from easyvideor1.preprocess.cache_settings import flat_settings, record_settings
from easyvideor1.preprocess.config import CacheConfig, CacheFormat, Codec, PreprocessConfig
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.preprocess.frame_cache import (
    CacheFile,
    ClipEntry,
    EncodedClip,
    FrameCache,
    damaged_error,
)
from easyvideor1.preprocess.garbage import Removal, plan_removals, remove_left_overs
from easyvideor1.preprocess.lease import RunLease
from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.preprocess.quarantine import Quarantine
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind

MAX_THREADS = 8
"""Clips that `export` encodes at once; each holds its frames in memory."""


@dataclass(kw_only=True, slots=True)
class _Total:
    """Sums over clips."""

    clips: int = 0
    num_bytes: int = 0
    raw_bytes: int = 0
    psnr_db: list[float] = field(default_factory=list)

    def add(self, entry: ClipEntry) -> None:
        self.clips += 1
        self.num_bytes += entry.num_bytes
        self.raw_bytes += entry.raw_bytes
        if entry.psnr_db is not None:
            self.psnr_db.append(entry.psnr_db)

    def __str__(self) -> str:
        ratio = self.num_bytes / self.raw_bytes if self.raw_bytes else 0.0
        text = f"{self.clips} clips, {_mb(self.num_bytes)}, {ratio:.3f} of raw"
        if self.psnr_db:
            text += f", PSNR {fmean(self.psnr_db):.1f} dB, at least {min(self.psnr_db):.1f} dB"
        return text


def stats(config: PreprocessConfig) -> None:
    """Print what the cache holds, by codec and by settings. Reads no frames.

    Raises:
        UserError: if there is no cache.
    """
    cache = _opened(config.cache)
    sources: set[tuple[MediaKind, str]] = set()
    frames = num_files = 0
    total = _Total()
    by_codec: dict[Codec, _Total] = defaultdict(_Total)
    by_reading: dict[str, _Total] = defaultdict(_Total)
    for file in _files(cache):
        num_files += 1
        for entry in file.entries:
            sources.add((entry.kind, entry.source))
            frames += entry.shape[0]
            for part in (total, by_codec[entry.codec], by_reading[entry.reading]):
                part.add(entry)
    kinds = Counter(kind.value for kind, _ in sources)
    media = "".join(f", {count} {kind}s" for kind, count in sorted(kinds.items()))
    print(f"cache        {_folder(config)} ({config.cache.format.value})")
    print(f"clips        {total.clips} of {len(sources)} media{media}")
    print(f"frames       {frames}, {_mb(total.raw_bytes)} of pixels")
    print(f"on disk      {_mb(cache.num_bytes())} in {num_files} files")
    for codec, part in sorted(by_codec.items()):
        print(f"{codec.value:<12} {part}")
    for reading, described in _describe(by_reading).items():
        print(f"settings     {by_reading[reading]}: {described}")
    print(f"quarantined  {len(Quarantine(config.cache).reasons())}")


def verify(config: PreprocessConfig) -> None:
    """Read every clip and compare it with its checksum, its key, its shape and its index.

    Raises:
        UserError: if something is damaged or stored twice, or there is no cache.
    """
    cache = _opened(config.cache)
    names: set[str] = set()
    damaged = twice = 0
    for name, problem in caches.verify(cache, progress=True):
        if name in names:
            twice += 1
        elif problem:
            damaged += 1
        if problem:
            tqdm.write(f"{name}: {problem}")
        names.add(name)
    found = []
    if damaged:
        found.append(
            f"{damaged} of {len(names)} clips in {_folder(config)} are damaged; "
            "delete their files and run evr-preprocess again"
        )
    if twice:
        found.append(
            f"{twice} of {len(names)} clips in {_folder(config)} are stored twice; "
            "job=gc gc.delete=true removes one of each"
        )
    if found:
        raise UserError(". ".join(found))
    print(f"{len(names)} clips in {_folder(config)} are intact")


def gc(config: PreprocessConfig) -> None:
    """Remove clips that are stored twice, and those that `config.gc` names.

    Clips that the config's data need always stay. Readers of removed clips are told that they are
    gone; frames that they hold stay valid.

    Raises:
        UserError: if there is no cache, or another run writes into it.
    """
    cache = _opened(config.cache)
    is_needed = _need(config)
    if not config.gc.delete:
        _print_removals(config, *_planned(config, cache, is_needed))
        print("nothing was removed; gc.delete=true does it")
        return
    with _sole_run(_folder(config), "gc") as drafts:
        removals, files = _planned(config, cache, is_needed)
        _print_removals(config, removals, files)
        for removal in tqdm(removals, "removing", unit="file", delay=2):
            cache.shrink(removal.file.path, removal.keep, drafts)
        if num_left_overs := remove_left_overs(_folder(config)):
            print(f"removed {num_left_overs} left-overs of killed conversions of data files")


def export(config: PreprocessConfig) -> None:
    """Write every clip of the cache in the form that `config.export` names; the keys stay.

    What the target holds already is skipped, so a killed export is taken up by another.

    Raises:
        UserError: if there is no cache, if the target is the cache itself, if another run writes
            into it, or if clips are damaged, after all others.
    """
    cache = _opened(config.cache)
    target_config, folder = _export_target(config)
    target = caches.open_cache(target_config, notes_use=False)
    total, damaged, readings = _Total(), 0, set[str]()
    with _sole_run(folder, "export") as drafts, target.writer(drafts) as writer:
        keys = cache.keys()
        missing = [key for key in keys if not target.has(key)]
        recode = functools.partial(_recoded, cache, target_config)
        clips = map_ahead(recode, missing, threads=_num_threads())
        for clip in tqdm(clips, "exporting", len(missing), unit="clip"):
            if isinstance(clip, DamagedCacheError):
                damaged += 1
                tqdm.write(str(clip))
            elif clip is not None:
                entry = clip.entry()
                if entry.reading not in readings:
                    record_settings(folder, drafts, [clip.settings])
                    readings.add(entry.reading)
                writer.add_encoded(clip)
                total.add(entry)
    num_there = len(keys) - len(missing)
    print(f"{total}; {num_there} were there; {folder} ({target_config.format.value})")
    if damaged:
        raise UserError(
            f"{damaged} of {len(keys)} clips in {_folder(config)} are damaged and were left out; "
            "delete their files and run evr-preprocess again"
        )


def _export_target(config: PreprocessConfig) -> tuple[CacheConfig, Path]:
    """The cache to write to and its folder; not the one that is read."""
    target = dataclasses.replace(
        config.cache,
        dir=config.export.dir or config.cache.dir,
        format=config.export.format,
        codec=config.export.codec,
    )
    folder = resolve_output(target.dir)
    if (folder, target.format) == (_folder(config), config.cache.format):
        raise UserError(
            f"job=export would write into the cache that it reads, {folder} "
            f"({target.format.value}); give another export.dir or export.format"
        )
    return target, folder


def _recoded(
    cache: FrameCache, config: CacheConfig, key: str
) -> EncodedClip | DamagedCacheError | None:
    """A clip as `config` stores it; None if it is gone."""
    try:
        clip = cache.read_encoded(key)
        if clip.frames.codec.is_lossy or clip.frames.codec is config.codec:
            return clip
        recoded = EncodedClip.of(clip.decode(), config)
        if recoded.frames.digest != clip.frames.digest:
            raise damaged_error(clip.place, ValueError("the frames differ from their checksum"))
        return recoded
    except KeyError:
        return None
    except DamagedCacheError as error:
        return error


def _planned(
    config: PreprocessConfig, cache: FrameCache, is_needed: Callable[[ClipEntry], bool]
) -> tuple[list[Removal], list[CacheFile]]:
    files = list(_files(cache))
    quota_gb = config.gc.quota_gb
    removals = plan_removals(
        files,
        is_needed,
        unused=config.gc.unused,
        quota_bytes=None if quota_gb is None else quota_gb * 1e9,
    )
    return removals, files


def _print_removals(
    config: PreprocessConfig, removals: Sequence[Removal], files: Sequence[CacheFile]
) -> None:
    """Say what goes, by settings, and what stays."""
    going: dict[str, _Total] = defaultdict(_Total)
    for removal in removals:
        for entry in removal.clips:
            going[entry.reading].add(entry)
    freed = sum(removal.num_bytes for removal in removals)
    stays = sum(file.num_bytes for file in files) - freed
    num_going = sum(len(removal.going) for removal in removals)
    num_staying = sum(len(file.entries) for file in files) - num_going
    print(f"cache        {_folder(config)} ({config.cache.format.value})")
    print(f"goes         {num_going} clips, {_mb(freed)}")
    described = _describe({entry.reading for file in files for entry in file.entries})
    for reading, total in sorted(going.items()):
        print(f"  settings   {total}: {described[reading]}")
    print(f"stays        {num_staying} clips, {_mb(stays)}")
    if config.gc.quota_gb is not None and stays > config.gc.quota_gb * 1e9:
        print(f"what these data need does not fit into gc.quota_gb={config.gc.quota_gb}")


def _need(config: PreprocessConfig) -> Callable[[ClipEntry], bool]:
    """Whether the config's data need a clip."""
    if not config.gc.unused and config.gc.quota_gb is None:
        return lambda entry: True  # nothing goes but second copies

    from easyvideor1.preprocess.parts import open_parts

    parts = open_parts(config)

    from easyvideor1.preprocess.engine import needed_keys

    needed = needed_keys(parts)
    media = {media_name(m): m for samples, _ in parts for sample in samples for m in sample.media}

    def is_needed(entry: ClipEntry) -> bool:
        if entry.key in needed:
            return True
        medium = media.get(entry.source)
        # The key of a medium that is not there, as on a disk that is not mounted, is unknown.
        return medium is not None and not _is_there(medium)

    return is_needed


def _is_there(medium: Media) -> bool:
    return all(os.path.exists(path) for path in medium.frames or (medium.path,))


@contextlib.contextmanager
def _sole_run(folder: Path, job: str) -> Generator[Path]:
    """The folder for drafts of a run that has the cache in `folder` to itself."""
    with RunLease(folder) as lease:
        if others := lease.others():
            raise UserError(
                f"{', '.join(others)} writes into {folder}; run job={job} when it has ended"
            )
        yield lease.drafts


def _opened(config: CacheConfig) -> FrameCache:
    """The cache of a config; one that is not there, or only in the other format, is a mistake."""
    folder = resolve_output(config.dir)
    if not folder.is_dir():
        raise UserError(f"there is no cache in {folder}; set cache.dir")
    cache = caches.open_cache(config, notes_use=False)
    if cache.paths():
        return cache
    for other in CacheFormat:
        if caches.open_cache(dataclasses.replace(config, format=other)).paths():
            raise UserError(
                f"{folder} holds no clips in format {config.format.value}, but in format "
                f"{other.value}; set cache.format={other.value}"
            )
    return cache


def _files(cache: FrameCache) -> Iterator[CacheFile]:
    """What every file holds, from the indices."""
    for path in tqdm(cache.paths(), "listing", unit="file", delay=2):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            yield cache.file(path)


def _describe(readings: Iterable[str]) -> dict[str, str]:
    """Settings as text; of several, only what differs between them."""
    flat = {reading: flat_settings(json.loads(reading)) for reading in sorted(readings)}
    counts = Counter(
        f"{name}={value}" for fields in flat.values() for name, value in fields.items()
    )
    names = {name for fields in flat.values() for name in fields}
    described = {}
    for reading, fields in flat.items():
        items = [f"{name}={value}" for name, value in fields.items()]
        differing = [item for item in items if counts[item] < len(flat) or len(flat) == 1]
        absent = [f"no {name}" for name in sorted(names - fields.keys())]
        described[reading] = ", ".join(differing or absent)
    return described


def _folder(config: PreprocessConfig) -> Path:
    return resolve_output(config.cache.dir)


def _mb(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _num_threads() -> int:
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))
