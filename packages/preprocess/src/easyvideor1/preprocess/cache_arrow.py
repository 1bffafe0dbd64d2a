"""The arrow cache: sealed shards of bounded size, one clip per record batch, mapped when read.

A writer owns its shards. A shard grows among the drafts of its run and is sealed by rename; a
small index file beside it lists its keys, so that opening a cache reads no frames. An index that a
kill prevented is derived from the shard.
"""

import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.config import Codec
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.preprocess.frame_cache import ClipWriter, FrameCache, StoredClip, frames_digest
from easyvideor1.preprocess.sealed_file import SealedFile
from easyvideor1.schema.records import MediaKind

VERSION = b"1"
CLIP_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("shape", pa.list_(pa.int64(), 4), nullable=False),
        # One value of T x 3 x H x W bytes; `large`, because it may pass 2 GiB.
        pa.field("frames", pa.large_binary(), nullable=False),
    ],
    metadata={b"easyvideor1.record": b"Clip", b"easyvideor1.version": VERSION},
)
INDEX_SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False)])

SEAL_AFTER_S = 60.0
"""An open shard is sealed at the next clip after this time: a kill loses about a minute of work."""
MAX_OPEN_SHARDS = 128
"""Mapped at once; views of clips keep their own map alive."""

_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowIOError, OSError, ValueError, KeyError)


class ArrowCache(FrameCache):
    def __init__(self, folder: Path, *, codec: Codec, shard_bytes: int):
        self._folder = folder / "shards"
        self._codec, self._shard_bytes = codec, shard_bytes
        self._places: dict[str, tuple[Path, int]] = {}
        self._indexed: set[str] = set()
        self._scanned_mtime_ns = -1
        self._maps: dict[Path, pa.MemoryMappedFile] = {}
        self._lock = threading.Lock()

    def has(self, key: str) -> bool:
        return self._place(key) is not None

    def keys(self) -> list[str]:
        with self._lock:
            self._refresh()
            return list(self._places)

    def read(self, key: str) -> StoredClip:
        place = self._place(key)
        if place is None:
            raise KeyError(key)
        path, position = place
        try:
            batch = pa.ipc.open_file(self._mapped(path)).get_batch(position)
            return _from_batch(batch)
        except _ARROW_ERRORS as error:
            raise DamagedCacheError(
                f"clip {position} of {path} cannot be read ({error}); "
                "delete the shard with its index and run evr-preprocess again"
            ) from error

    def writer(self, drafts: Path) -> ClipWriter:
        return ArrowWriter(self._folder, drafts, codec=self._codec, shard_bytes=self._shard_bytes)

    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._folder.glob("*.arrow"))

    def _place(self, key: str) -> tuple[Path, int] | None:
        if key not in self._places:
            with self._lock:
                self._refresh()
        return self._places.get(key)

    def _refresh(self) -> None:
        """Take in shards sealed since the last look."""
        try:
            mtime_ns = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return
        # Within the clock's grain a newer change could carry the same time: look again.
        settled = time.time_ns() - mtime_ns > 2_000_000_000
        if mtime_ns == self._scanned_mtime_ns and settled:
            return
        for path in sorted(self._folder.glob("*.arrow")):
            if path.name in self._indexed:
                continue
            for position, key in enumerate(_keys_of(path)):
                self._places.setdefault(key, (path, position))
            self._indexed.add(path.name)
        self._scanned_mtime_ns = mtime_ns

    def _mapped(self, path: Path) -> pa.MemoryMappedFile:
        with self._lock:
            mapped = self._maps.pop(path, None) or pa.memory_map(str(path))
            self._maps[path] = mapped  # last in the dict: the most recently used
            if len(self._maps) > MAX_OPEN_SHARDS:
                del self._maps[next(iter(self._maps))]
            return mapped


class ArrowWriter(ClipWriter):
    def __init__(self, folder: Path, drafts: Path, *, codec: Codec, shard_bytes: int):
        self._folder, self._drafts, self._shard_bytes = folder, drafts, shard_bytes
        self._options = pa.ipc.IpcWriteOptions(compression="zstd" if codec is Codec.zstd else None)
        self._name = uuid.uuid4().hex[:12]
        self._num_sealed = 0
        self._shard: _OpenShard | None = None

    def add(self, stored: StoredClip) -> None:
        if self._shard is None:
            path = self._folder / f"{self._name}-{self._num_sealed:05d}.arrow"
            self._shard = _OpenShard(path, self._drafts, self._options)
        self._shard.add(stored)
        if self._shard.num_bytes() >= self._shard_bytes or self._shard.age_s() >= SEAL_AFTER_S:
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


class _OpenShard:
    """A shard that is being written."""

    def __init__(self, path: Path, drafts: Path, options: pa.ipc.IpcWriteOptions):
        self._opened_s = time.monotonic()
        self._keys: list[str] = []
        self._drafts = drafts
        self._sealed_file = SealedFile(path, drafts)
        self._batches = pa.ipc.new_file(self._sealed_file.file, CLIP_SCHEMA, options=options)

    def add(self, stored: StoredClip) -> None:
        self._batches.write_batch(_to_batch(stored))
        self._keys.append(stored.clip.key)

    def num_bytes(self) -> int:
        return self._sealed_file.file.tell()

    def age_s(self) -> float:
        return time.monotonic() - self._opened_s

    def seal(self) -> None:
        self._batches.close()
        self._sealed_file.seal()
        _write_index(self._sealed_file.path, self._drafts, self._keys)

    def discard(self) -> None:
        self._sealed_file.discard()


def _index_path(shard: Path) -> Path:
    return shard.with_suffix(".index")


def _write_index(shard: Path, drafts: Path, keys: list[str]) -> None:
    index = SealedFile(_index_path(shard), drafts)
    with pa.ipc.new_file(index.file, INDEX_SCHEMA) as batches:
        batches.write_table(pa.table({"key": keys}, schema=INDEX_SCHEMA))
    index.seal()


def _keys_of(shard: Path) -> list[str]:
    """The keys in a sealed shard, in the order of its batches."""
    index = _index_path(shard)
    try:
        if index.exists():
            with pa.memory_map(str(index)) as mapped:
                return pa.ipc.open_file(mapped).read_all()["key"].to_pylist()
        with pa.memory_map(str(shard)) as mapped:
            reader = pa.ipc.open_file(mapped)
            return [
                reader.get_batch(position)["key"][0].as_py()
                for position in range(reader.num_record_batches)
            ]
    except _ARROW_ERRORS as error:
        raise DamagedCacheError(
            f"the shard {shard} cannot be read ({error}); "
            "delete it with its index and run evr-preprocess again"
        ) from error


def _to_batch(stored: StoredClip) -> pa.RecordBatch:
    clip = stored.clip
    frames = np.ascontiguousarray(clip.frames)
    offsets = pa.py_buffer(np.array([0, frames.nbytes], np.int64))
    columns: list[Any] = [
        pa.array([clip.key]),
        pa.array([clip.kind.value]),
        pa.array([stored.source]),
        pa.array([json.dumps(stored.settings)]),
        pa.array([json.dumps(clip.metadata.as_dict())]),
        pa.array([frames_digest(frames)]),
        pa.array([list(clip.shape)], CLIP_SCHEMA.field("shape").type),
        # From the buffer, so that the frames are not copied on their way to the file.
        pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), 1, [None, offsets, pa.py_buffer(frames)]
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CLIP_SCHEMA)


def _from_batch(batch: pa.RecordBatch) -> StoredClip:
    _check_version(batch.schema)
    row = {name: batch[name][0].as_py() for name in batch.schema.names if name != "frames"}
    # The value buffer itself: a scalar of the column would be a copy.
    frames = np.frombuffer(batch["frames"].buffers()[2], np.uint8).reshape(row["shape"])
    frames.flags.writeable = False
    clip = Clip(
        kind=MediaKind(row["kind"]),
        frames=frames,
        metadata=ClipMetadata.from_dict(json.loads(row["metadata"])),
        key=row["key"],
    )
    return StoredClip(
        clip=clip,
        settings=json.loads(row["settings"]),
        source=row["source"],
        digest=row["digest"],
    )


def _check_version(schema: pa.Schema) -> None:
    found = (schema.metadata or {}).get(b"easyvideor1.version")
    if found != VERSION:
        raise ValueError(f"shard version {found!r}, this easyvideor1 reads {VERSION!r}")
