"""The interface of both cache formats, and what they keep of a clip.

Whatever is readable was sealed: written aside, synced, then renamed. `cache` opens a format,
`engine` writes, `store` reads, `maintenance` looks after the files. No torch, no ray.
"""

import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.codecs import EncodedFrames, encode
from easyvideor1.preprocess.config import CacheConfig, Codec
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.schema.records import MediaKind

MEDIA_SETTINGS = frozenset({"content", "span_s", "frames_fps"})
"""The fields of `keys.clip_settings` that tell media apart; the others tell how they were read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredClip:
    """A clip with what the cache keeps about it."""

    clip: Clip
    settings: dict[str, Any]
    """Of `keys.clip_settings`: the key is their hash."""
    source: str
    """Where the medium was when it was decoded; not part of the key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedClip:
    """A stored clip whose frames are still encoded: as it lies in a file."""

    key: str
    kind: MediaKind
    source: str
    settings: dict[str, Any]
    metadata: ClipMetadata
    frames: EncodedFrames
    place: str = ""
    """Names the clip in messages, e.g. `clip 3 of /data/cache/shards/1f….arrow`."""

    @classmethod
    def of(cls, stored: StoredClip, config: CacheConfig) -> Self:
        """Encode a clip as `config` says."""
        clip = stored.clip
        return cls(
            key=clip.key,
            kind=clip.kind,
            source=stored.source,
            settings=stored.settings,
            metadata=clip.metadata,
            frames=encode(clip.frames, config),
        )

    def decode(self) -> StoredClip:
        """The clip with its frames.

        Raises:
            DamagedCacheError: if they do not decode.
        """
        try:
            frames = self.frames.decode()
            clip = Clip(kind=self.kind, frames=frames, metadata=self.metadata, key=self.key)
        except ValueError as error:
            raise damaged_error(self.place or self.key, error) from error
        return StoredClip(clip=clip, settings=self.settings, source=self.source)

    def entry(self) -> "ClipEntry":
        """What an index says about the clip."""
        reading = {name: self.settings[name] for name in self.settings.keys() - MEDIA_SETTINGS}
        return ClipEntry(
            key=self.key,
            kind=self.kind,
            source=self.source,
            reading=json.dumps(reading, sort_keys=True),
            codec=self.frames.codec,
            shape=self.frames.shape,
            num_bytes=self.frames.payload.size,
            psnr_db=self.frames.psnr_db,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipEntry:
    """What is known of a clip without reading its frames."""

    key: str
    kind: MediaKind
    source: str
    reading: str
    """JSON of its settings without those of the medium itself: equal for all clips of one run."""
    codec: Codec
    shape: tuple[int, int, int, int]
    num_bytes: int
    """Of the payload."""
    psnr_db: float | None

    @property
    def raw_bytes(self) -> int:
        """Of the frames once they are decoded."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFile:
    """A sealed file, with an index where the format has one."""

    path: Path
    num_bytes: int
    """On disk, the index included."""
    used_s: float
    """When it was sealed or, later, when a process last began to read from it; Unix time."""
    entries: tuple[ClipEntry, ...]


class ClipWriter(ABC):
    """Adds clips to a cache. One per worker; leaving the context seals what was added."""

    def __init__(self, config: CacheConfig):
        self._config = config

    def add(self, stored: StoredClip) -> None:
        """Encode and write one clip. It can be read once it is sealed, at the latest by `seal`."""
        self.add_encoded(EncodedClip.of(stored, self._config))

    @abstractmethod
    def add_encoded(self, clip: EncodedClip) -> None:
        """Write one clip as it is, whatever its codec."""

    @abstractmethod
    def seal(self) -> None:
        """Make everything added so far durable and visible to readers."""

    @abstractmethod
    def discard(self) -> None:
        """Drop what is not sealed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.seal()
        else:
            self.discard()


class FrameCache(ABC):
    """All sealed clips below one folder. Safe to read from several threads and processes.

    Clips of several codecs may lie side by side. Files may appear and go while others read: a clip
    that is gone is a `KeyError`.
    """

    @abstractmethod
    def has(self, key: str) -> bool: ...

    @abstractmethod
    def read_encoded(self, key: str) -> EncodedClip:
        """One clip as it is stored.

        Raises:
            KeyError: if the cache does not hold it.
            DamagedCacheError: if its file does not hold what it says.
        """

    def read(self, key: str) -> StoredClip:
        """One clip with its provenance; raises as `read_encoded`."""
        return self.read_encoded(key).decode()

    def get(self, key: str) -> Clip:
        """One clip; its frames may be a read-only view of a mapped file."""
        return self.read(key).clip

    @abstractmethod
    def keys(self) -> list[str]: ...

    @abstractmethod
    def writer(self, drafts: Path) -> ClipWriter:
        """A writer whose unsealed files lie in the folder `drafts`, see `sealed_file`."""

    @abstractmethod
    def paths(self) -> list[Path]:
        """All sealed files, without their indices."""

    @abstractmethod
    def file(self, path: Path) -> CacheFile:
        """What a sealed file holds, without reading frames.

        Raises:
            FileNotFoundError: if it is gone.
            DamagedCacheError: if it cannot be read.
        """

    @abstractmethod
    def clips(self, path: Path) -> Iterator[EncodedClip]:
        """Every clip in a sealed file, also those that another file holds as well.

        Raises:
            FileNotFoundError: if it is gone.
            DamagedCacheError: if it cannot be read.
        """

    @abstractmethod
    def shrink(self, path: Path, keep: Collection[str], drafts: Path) -> None:
        """Leave only the clips `keep` of a sealed file; without any, remove the file.

        Killed at any point, it has lost none of `keep`; at worst they are there twice.
        """

    @abstractmethod
    def num_bytes(self) -> int:
        """On disk, all sealed files."""


def damaged_error(place: str | Path, error: Exception) -> DamagedCacheError:
    """The error for a file or a clip in it that cannot be read."""
    return DamagedCacheError(
        f"{place} cannot be read ({error}); delete the file, with its index if it has one, and run "
        "evr-preprocess again"
    )


def total_bytes(paths: Iterable[Path]) -> int:
    """On disk, of those files that are still there."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
