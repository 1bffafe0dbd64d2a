"""The interface of both cache formats, and what a stored clip carries.

Whatever is readable was sealed: written aside, synced, then renamed. `cache` opens a format,
`engine` writes, `store` reads. No torch, no ray.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from easyvideor1.preprocess.clip import Clip


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredClip:
    """A clip with what the cache keeps about it."""

    clip: Clip
    settings: dict[str, Any]
    """Of `keys.clip_settings`: the key is their hash."""
    source: str
    """Where the medium was when it was decoded; not part of the key."""
    digest: str = ""
    """Of the frames, see `frames_digest`; filled by the cache."""


class ClipWriter(ABC):
    """Adds clips to a cache. One per worker; leaving the context seals what was added."""

    @abstractmethod
    def add(self, stored: StoredClip) -> None:
        """Write one clip. It can be read once it is sealed, at the latest by `seal`."""

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
    """All sealed clips below one folder. Safe to read from several threads and processes."""

    @abstractmethod
    def has(self, key: str) -> bool: ...

    @abstractmethod
    def read(self, key: str) -> StoredClip:
        """One clip with its provenance.

        Raises:
            KeyError: if the cache does not hold it.
            DamagedCacheError: if its file does not hold what it says.
        """

    def get(self, key: str) -> Clip:
        """One clip; its frames may be a read-only view of a mapped file."""
        return self.read(key).clip

    @abstractmethod
    def keys(self) -> list[str]: ...

    @abstractmethod
    def writer(self, drafts: Path) -> ClipWriter:
        """A writer whose unsealed files lie in the folder `drafts`, see `sealed_file`."""

    @abstractmethod
    def num_bytes(self) -> int:
        """On disk, all sealed files."""


def frames_digest(frames: np.ndarray) -> str:
    """Checksum of the frames of a clip, kept beside them and compared by `verify`."""
    return hashlib.blake2b(np.ascontiguousarray(frames).data, digest_size=16).hexdigest()
