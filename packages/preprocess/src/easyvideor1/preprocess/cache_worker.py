"""The Ray actor that makes clips: decodes in a child that can be killed, writes shards of its own.

Frames go from the decoder's memory to the file without a copy in between. The unsealed files lie in
a folder that belongs to this worker alone, inside that of the run (`lease`).
"""

import dataclasses
import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.config import CacheConfig, DecodeConfig
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.errors import DecodeError, DiskFullError, LeaseLostError
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.killable import KillableDecoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipJob:
    """One medium to be decoded under one budget."""

    media: Media
    budget: FrameBudget
    rules: FamilyRules
    settings: dict[str, Any]
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one job."""

    problem: str | None = None
    """Why there are no frames; None if they were written."""
    repaired: bool = False
    """The source was damaged and gave frames all the same."""
    num_bytes: int = 0
    """Of the frames."""
    sealed: tuple[str, ...] = ()
    """Keys of this worker's clips that can be read from now on."""


class CacheWorker:
    """A Ray actor.

    Args:
        cache_config: the cache to write to.
        decode_config: how to decode.
        drafts: existing folder of this worker for files that are not sealed yet.
        counter_dir: where calls of `decode` are counted; empty for nowhere.
    """

    def __init__(
        self,
        cache_config: CacheConfig,
        decode_config: DecodeConfig,
        drafts: Path,
        counter_dir: str,
    ):
        if counter_dir:
            os.environ[decode_counter.VARIABLE] = counter_dir
        self._decoder = KillableDecoder(decode_config)
        self._folder = Path(cache_config.dir)
        self._drafts = drafts
        self._writer = open_cache(cache_config).writer(drafts)
        self._unsealed: list[str] = []

    def ready(self) -> Outcome:
        """Nothing; answered once the worker has started."""
        return Outcome()

    def cache(self, job: ClipJob) -> Outcome:
        """Decode one medium and write its frames.

        Raises:
            DiskFullError: if they do not fit; the worker's unsealed files are deleted.
            LeaseLostError: if another run took over.
        """
        try:
            clip = self._decoder.decode(job.media, job.budget, job.rules)
        except DecodeError as error:
            return Outcome(problem=error.reason)
        stored = StoredClip(
            clip=dataclasses.replace(clip, key=job.key),
            settings=job.settings,
            source=media_name(job.media),
        )
        self._write(stored)
        self._unsealed.append(job.key)
        return Outcome(
            repaired=bool(clip.metadata.repairs),
            num_bytes=clip.frames.nbytes,
            sealed=self._newly_sealed(),
        )

    def seal(self) -> Outcome:
        """Make everything written so far readable; raises as `cache`."""
        try:
            self._writer.seal()
        except OSError as error:
            self._refuse_full_disk(error)
            raise
        return Outcome(sealed=self._newly_sealed())

    def _write(self, stored: StoredClip) -> None:
        try:
            self._writer.add(stored)
        except (OSError, RuntimeError) as error:
            self._refuse_full_disk(error)
            raise

    def _refuse_full_disk(self, error: Exception) -> None:
        if is_disk_full(error):
            free_bytes = free_disk_bytes(self._folder)
            # Room for the other workers to seal theirs.
            self._writer.discard()
            raise DiskFullError(str(self._folder), free_bytes) from error

    def _newly_sealed(self) -> tuple[str, ...]:
        """The keys written until now, once none of their files is a draft any more."""
        try:
            has_drafts = any(self._drafts.iterdir())
        except FileNotFoundError as error:
            raise LeaseLostError(str(self._drafts)) from error
        if has_drafts:
            return ()
        sealed, self._unsealed = tuple(self._unsealed), []
        return sealed


def is_disk_full(error: BaseException | None) -> bool:
    """Whether the end of the disk, or of a quota, is behind an error; torch.save hides it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def free_disk_bytes(folder: Path) -> int:
    """Of the disk that a folder is on, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
