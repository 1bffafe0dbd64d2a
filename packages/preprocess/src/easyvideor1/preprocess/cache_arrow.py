"""The arrow cache: sealed shards of bounded size, one clip per record batch, mapped when read.

A writer owns its shards. A shard grows among the drafts of its run and is sealed by rename; the
small index beside it (`arrow_shard`) makes opening a cache, its statistics and its maintenance
independent of the frames. The time of the index is when the shard was last used.
"""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa

from easyvideor1.preprocess.arrow_shard import (
    OpenShard,
    index_path,
    map_shard,
    read_clip,
    read_clips,
    read_entries,
    read_keys,
)
from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.preprocess.frame_cache import (
    CacheFile,
    ClipWriter,
    EncodedClip,
    FrameCache,
    total_bytes,
)
from easyvideor1.schema.files import sync_entry

SEAL_AFTER_S = 60.0
"""An open shard is sealed at the next clip after this time: a kill loses about a minute of work."""
MAX_OPEN_SHARDS = 128
"""Mapped at once; views of clips keep their own map alive."""
CLOCK_GRAIN_NS = 2_000_000_000
"""A folder may change again within this time and keep its modification time."""


class ArrowCache(FrameCache):
    def __init__(self, folder: Path, config: CacheConfig, *, notes_use: bool = True):
        self._folder = folder / "shards"
        self._config, self._notes_use = config, notes_use
        self._keys: dict[Path, list[str]] = {}
        self._places: dict[str, tuple[Path, int]] = {}
        self._gone: set[Path] = set()
        self._settled_mtime_ns = -1
        self._maps: dict[Path, pa.MemoryMappedFile] = {}
        self._noted: set[Path] = set()
        self._lock = threading.Lock()

    def has(self, key: str) -> bool:
        return self._place(key) is not None

    def keys(self) -> list[str]:
        with self._lock:
            self._refresh()
            return list(self._places)

    def read_encoded(self, key: str) -> EncodedClip:
        while (place := self._place(key)) is not None:
            shard, position = place
            try:
                return read_clip(self._mapped(shard), shard, position)
            except FileNotFoundError:
                self._forget(shard)  # removed meanwhile; the clip may be in another
        raise KeyError(key)

    def writer(self, drafts: Path) -> ClipWriter:
        return ArrowWriter(self._folder, drafts, self._config)

    def paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.arrow"))

    def file(self, path: Path) -> CacheFile:
        index = index_path(path)
        status = path.stat()
        num_bytes, used_s = status.st_size, status.st_mtime
        with contextlib.suppress(FileNotFoundError):
            num_bytes += index.stat().st_size
            used_s = max(used_s, index.stat().st_mtime)
        entries = tuple(read_entries(path))
        return CacheFile(path=path, num_bytes=num_bytes, used_s=used_s, entries=entries)

    def clips(self, path: Path) -> Iterator[EncodedClip]:
        return read_clips(path)

    def shrink(self, path: Path, keep: Collection[str], drafts: Path) -> None:
        used_s = self.file(path).used_s
        kept = {clip.key: clip for clip in self.clips(path) if clip.key in keep}
        if kept:
            shard = self._folder / f"{uuid.uuid4().hex[:12]}-00000.arrow"
            rewritten = OpenShard(shard, drafts)
            for clip in kept.values():
                rewritten.add(clip)
            rewritten.seal()
            for written in (shard, index_path(shard)):
                os.utime(written, (used_s, used_s))
        # In this order: a shard without its index is complete.
        index_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        sync_entry(self._folder)

    def num_bytes(self) -> int:
        return total_bytes([*self.paths(), *self._folder.glob("*.index")])

    def _place(self, key: str) -> tuple[Path, int] | None:
        if key not in self._places:
            with self._lock:
                self._refresh()
        return self._places.get(key)

    def _refresh(self) -> None:
        """Take in shards sealed, and let go of shards removed, since the last look."""
        try:
            mtime_ns = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if mtime_ns == self._settled_mtime_ns:
            return
        looked_ns = time.time_ns()
        listed = [path for path in self.paths() if path not in self._gone]
        if self._keys.keys() - listed:
            self._keep_only(listed)
        for path in listed:
            if path not in self._keys:
                self._take_in(path)
        if looked_ns - mtime_ns > CLOCK_GRAIN_NS:
            self._settled_mtime_ns = mtime_ns

    def _take_in(self, path: Path) -> None:
        try:
            keys = read_keys(path)
        except FileNotFoundError:  # removed since it was listed
            return
        self._keys[path] = keys
        for position, key in enumerate(keys):
            self._places.setdefault(key, (path, position))

    def _keep_only(self, shards: list[Path]) -> None:
        self._keys = {path: self._keys[path] for path in shards if path in self._keys}
        self._maps = {path: mapped for path, mapped in self._maps.items() if path in self._keys}
        places: dict[str, tuple[Path, int]] = {}
        for path, keys in self._keys.items():
            for position, key in enumerate(keys):
                places.setdefault(key, (path, position))
        self._places = places

    def _forget(self, shard: Path) -> None:
        """Let go of a shard that is gone, even where a listing still shows it."""
        with self._lock:
            self._gone.add(shard)
            self._settled_mtime_ns = -1
            self._refresh()

    def _mapped(self, shard: Path) -> pa.MemoryMappedFile:
        with self._lock:
            mapped = self._maps.pop(shard, None) or map_shard(shard)
            self._maps[shard] = mapped  # last in the dict: the most recently used
            if len(self._maps) > MAX_OPEN_SHARDS:
                del self._maps[next(iter(self._maps))]
            if self._notes_use and shard not in self._noted:
                self._noted.add(shard)
                # A cache may be read-only, or another user's.
                with contextlib.suppress(OSError):
                    os.utime(index_path(shard))
            return mapped


class ArrowWriter(ClipWriter):
    def __init__(self, folder: Path, drafts: Path, config: CacheConfig):
        super().__init__(config)
        self._folder, self._drafts = folder, drafts
        self._name = uuid.uuid4().hex[:12]
        self._num_sealed = 0
        self._shard: OpenShard | None = None

    def add_encoded(self, clip: EncodedClip) -> None:
        if self._shard is None:
            path = self._folder / f"{self._name}-{self._num_sealed:05d}.arrow"
            self._shard = OpenShard(path, self._drafts)
        self._shard.add(clip)
        is_full = self._shard.num_bytes() >= self._config.shard_bytes
        if is_full or self._shard.age_s() >= SEAL_AFTER_S:
            self.seal()

    def seal(self) -> None:
        if self._shard is not None:
            self._shard.seal()
            self._shard = None
            self._num_sealed += 1

    def discard(self) -> None:
        if self._shard is not None:
            self._shard.discard()
            self._shard = None
