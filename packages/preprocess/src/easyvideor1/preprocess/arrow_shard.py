"""One file of the arrow cache: a shard of clips, one per record batch, and the index beside it.

The index repeats what is known of the clips without their frames. It is sealed after its shard, so
a kill may leave a shard without one; then the same is read from the shard. Used by `cache_arrow`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easyvideor1.preprocess.clip import ClipMetadata
from easyvideor1.preprocess.codecs import EncodedFrames
from easyvideor1.preprocess.config import Codec
from easyvideor1.preprocess.frame_cache import ClipEntry, EncodedClip, damaged_error
from easyvideor1.preprocess.sealed_file import SealedFile
from easyvideor1.schema.records import MediaKind

VERSION = b"2"

PAGE_BYTES = 4096
"""Payloads begin on pages of the file: copying mapped frames takes a third less time, and what maps
or pins them need not care where they lie."""

_MARK = b"ARROW1\0\0"

ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowIOError, OSError, ValueError, KeyError)
"""What damaged bytes make pyarrow and the reading of records raise."""


def _field(name: str, kind: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable)


def _metadata(record: bytes) -> dict[bytes | str, bytes | str]:
    return {b"easyvideor1.record": record, b"easyvideor1.version": VERSION}


CLIP_SCHEMA = pa.schema(
    [
        _field("key", pa.string()),
        _field("kind", pa.string()),
        _field("source", pa.string()),
        _field("settings", pa.string()),
        _field("metadata", pa.string()),
        _field("codec", pa.string()),
        _field("parameters", pa.string()),
        _field("shape", pa.list_(pa.int64(), 4)),
        _field("digest", pa.string()),
        _field("psnr_db", pa.float64(), nullable=True),
        _field("frame_bytes", pa.list_(pa.int64())),
        _field("padding", pa.binary()),
        # `large`, because the frames of a clip may pass 2 GiB. The last, see `_to_batch`.
        _field("payload", pa.large_binary()),
    ],
    metadata=_metadata(b"Clip"),
)
INDEX_SCHEMA = pa.schema(
    [
        _field("key", pa.string()),
        _field("kind", pa.string()),
        _field("source", pa.string()),
        _field("reading", pa.dictionary(pa.int32(), pa.string())),
        _field("codec", pa.string()),
        _field("shape", pa.list_(pa.int64(), 4)),
        _field("num_bytes", pa.int64()),
        _field("psnr_db", pa.float64(), nullable=True),
    ],
    metadata=_metadata(b"ClipEntry"),
)


class OpenShard:
    """A shard that is being written among the drafts of a run."""

    def __init__(self, path: Path, drafts: Path):
        self._opened_s = time.monotonic()
        self._drafts = drafts
        self._entries: list[ClipEntry] = []
        self._sealed_file = SealedFile(path, drafts)
        self._batches = pa.ipc.new_file(self._sealed_file.file, CLIP_SCHEMA)

    def add(self, clip: EncodedClip) -> None:
        # The file begins with a mark and the schema, which are written with the first batch.
        position = self.num_bytes() or len(_MARK) + CLIP_SCHEMA.serialize().size
        self._batches.write_batch(_to_batch(clip, position))
        self._entries.append(clip.entry())

    def num_bytes(self) -> int:
        return self._sealed_file.file.tell()

    def age_s(self) -> float:
        return time.monotonic() - self._opened_s

    def seal(self) -> None:
        """Make the shard visible, then its index."""
        self._batches.close()
        self._sealed_file.seal()
        with SealedFile(index_path(self._sealed_file.path), self._drafts) as index:
            with pa.ipc.new_file(index.file, INDEX_SCHEMA) as batches:
                batches.write_batch(_to_index(self._entries))
            index.seal()

    def discard(self) -> None:
        self._sealed_file.discard()


def index_path(shard: Path) -> Path:
    """The index of a shard."""
    return shard.with_suffix(".index")


def map_shard(shard: Path) -> pa.MemoryMappedFile:
    """Open a shard; raises as `read_entries`."""
    try:
        return pa.memory_map(str(shard))
    except FileNotFoundError:
        raise
    except ARROW_ERRORS as error:  # an empty file cannot be mapped
        raise damaged_error(shard, error) from error


def num_batches(mapped: pa.MemoryMappedFile) -> int:
    """How many clips an opened shard holds."""
    return pa.ipc.open_file(mapped).num_record_batches


def read_clip(mapped: pa.MemoryMappedFile, shard: Path, position: int) -> EncodedClip:
    """Clip `position` of an opened shard; its payload is a view of the map.

    Raises:
        DamagedCacheError: if it cannot be read.
    """
    place = f"clip {position} of {shard}"
    try:
        reader = pa.ipc.open_file(mapped)
        _check_version(reader.schema)
        batch = reader.get_batch(position)
        # Offsets and text only; without it damaged offsets read beyond the map.
        batch.validate(full=True)
    except ARROW_ERRORS as error:
        raise damaged_error(place, error) from error
    try:
        return _from_batch(batch, place)
    # Damaged text makes parsers, enums and records raise whatever they do.
    except Exception as error:
        raise damaged_error(place, error) from error


def read_clips(shard: Path) -> Iterator[EncodedClip]:
    """Every clip in a shard; raises as `read_entries`."""
    mapped = map_shard(shard)
    try:
        positions = range(num_batches(mapped))
    except ARROW_ERRORS as error:
        raise damaged_error(shard, error) from error
    for position in positions:
        yield read_clip(mapped, shard, position)


def read_keys(shard: Path) -> list[str]:
    """The keys in a shard, in the order of its batches; raises as `read_entries`."""
    if (table := _read_index(shard, columns=["key"])) is not None:
        return table["key"].to_pylist()
    return [clip.key for clip in read_clips(shard)]


def read_entries(shard: Path) -> list[ClipEntry]:
    """What is known of the clips in a shard without their frames.

    Raises:
        FileNotFoundError: if the shard is gone.
        DamagedCacheError: if it, or its index, cannot be read.
    """
    if (table := _read_index(shard)) is not None:
        return [_entry(row) for row in table.to_pylist()]
    return [clip.entry() for clip in read_clips(shard)]


def _read_index(shard: Path, columns: list[str] | None = None) -> pa.Table | None:
    """None where there is no index."""
    index = index_path(shard)
    chosen = None if columns is None else [INDEX_SCHEMA.get_field_index(name) for name in columns]
    try:
        with pa.memory_map(str(index)) as mapped:
            options = pa.ipc.IpcReadOptions(included_fields=chosen)
            reader = pa.ipc.open_file(mapped, options=options)
            _check_version(reader.schema)
            return reader.read_all()
    except FileNotFoundError:
        return None
    except ARROW_ERRORS as error:
        raise damaged_error(index, error) from error


def _to_batch(clip: EncodedClip, position: int) -> pa.RecordBatch:
    """A batch whose payload begins on a page when it is written at `position` of a file."""
    frames = clip.frames
    values: dict[str, Any] = {
        "key": clip.key,
        "kind": clip.kind.value,
        "source": clip.source,
        "settings": json.dumps(clip.settings),
        "metadata": json.dumps(clip.metadata.as_dict()),
        "codec": frames.codec.value,
        "parameters": json.dumps(frames.parameters),
        "shape": list(frames.shape),
        "digest": frames.digest,
        "psnr_db": frames.psnr_db,
        "frame_bytes": list(frames.frame_bytes),
        "padding": b"",
    }
    without_payload = _batch(values, np.empty(0, np.uint8))
    # A batch is written column after column, so its last one begins where the others end.
    values["padding"] = bytes(
        -(position + pa.ipc.get_record_batch_size(without_payload)) % PAGE_BYTES
    )
    return _batch(values, np.ascontiguousarray(frames.payload))


def _batch(values: dict[str, Any], payload: np.ndarray) -> pa.RecordBatch:
    columns = [pa.array([value], CLIP_SCHEMA.field(name).type) for name, value in values.items()]
    # From the buffer, so that the payload is not copied on its way to the file.
    offsets = np.array([0, payload.size], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    columns.append(pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, buffers))
    return pa.RecordBatch.from_arrays(columns, schema=CLIP_SCHEMA)


def _from_batch(batch: pa.RecordBatch, place: str) -> EncodedClip:
    row = {name: batch[name][0].as_py() for name in batch.schema.names[:-1]}
    # The value buffer itself: a scalar of the column would be a copy.
    payload = np.frombuffer(batch["payload"].buffers()[2], np.uint8)
    num_frames, channels, height, width = row["shape"]
    return EncodedClip(
        key=row["key"],
        kind=MediaKind(row["kind"]),
        source=row["source"],
        settings=json.loads(row["settings"]),
        metadata=ClipMetadata.from_dict(json.loads(row["metadata"])),
        frames=EncodedFrames(
            codec=Codec(row["codec"]),
            parameters=json.loads(row["parameters"]),
            shape=(num_frames, channels, height, width),
            payload=payload,
            frame_bytes=tuple(row["frame_bytes"]),
            digest=row["digest"],
            psnr_db=row["psnr_db"],
        ),
        place=place,
    )


def _to_index(entries: list[ClipEntry]) -> pa.RecordBatch:
    values: dict[str, list[Any]] = {
        "key": [entry.key for entry in entries],
        "kind": [entry.kind.value for entry in entries],
        "source": [entry.source for entry in entries],
        "reading": [entry.reading for entry in entries],
        "codec": [entry.codec.value for entry in entries],
        "shape": [list(entry.shape) for entry in entries],
        "num_bytes": [entry.num_bytes for entry in entries],
        "psnr_db": [entry.psnr_db for entry in entries],
    }
    columns = [pa.array(column, INDEX_SCHEMA.field(name).type) for name, column in values.items()]
    return pa.RecordBatch.from_arrays(columns, schema=INDEX_SCHEMA)


def _entry(row: dict[str, Any]) -> ClipEntry:
    num_frames, channels, height, width = row["shape"]
    return ClipEntry(
        key=row["key"],
        kind=MediaKind(row["kind"]),
        source=row["source"],
        reading=row["reading"],
        codec=Codec(row["codec"]),
        shape=(num_frames, channels, height, width),
        num_bytes=row["num_bytes"],
        psnr_db=row["psnr_db"],
    )


def _check_version(schema: pa.Schema) -> None:
    found = (schema.metadata or {}).get(b"easyvideor1.version", b"1")
    if found != VERSION:
        raise ValueError(
            f"its format has version {found.decode()}, this easyvideor1 reads {VERSION.decode()}"
        )
