"""Which clips of a cache can go: the decisions behind `job=gc`.

A clip that is stored twice goes once. Clips that nothing needs go all, or the longest unused first
until the cache fits a quota; use is noted per file (`FrameCache.file`), so a file's clips go
together. Left-overs of killed conversions of data files go after a day.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from easyvideor1.preprocess.frame_cache import CacheFile, ClipEntry

LEFT_OVER_S = 86_400.0
"""A hidden draft beside converted data files that nothing has written to for this long is dead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What leaves one file. The file goes with its last clip, else it is written anew."""

    file: CacheFile
    going: frozenset[int]
    """Positions in `file.entries`."""

    @property
    def clips(self) -> list[ClipEntry]:
        """What goes."""
        return [self.file.entries[position] for position in sorted(self.going)]

    @property
    def keep(self) -> set[str]:
        """Keys that stay in this file."""
        entries = enumerate(self.file.entries)
        return {entry.key for position, entry in entries if position not in self.going}

    @property
    def num_bytes(self) -> int:
        """What the removal frees."""
        if len(self.going) == len(self.file.entries):
            return self.file.num_bytes
        return sum(entry.num_bytes for entry in self.clips)


def plan_removals(
    files: Sequence[CacheFile],
    is_needed: Callable[[ClipEntry], bool],
    *,
    unused: bool,
    quota_bytes: float | None,
) -> list[Removal]:
    """What should go, at most one entry per file.

    Args:
        files: all of the cache.
        is_needed: whether a clip must stay.
        unused: all clips that need not stay go.
        quota_bytes: clips that need not stay go while the cache is larger than this.
    """
    spare = {file.path: _positions(file, lambda entry: not is_needed(entry)) for file in files}
    going = _second_copies(files, spare)
    if unused:
        going = {path: going[path] | spare[path] for path in going}
    if quota_bytes is not None:
        size = sum(file.num_bytes - _removal(file, going).num_bytes for file in files)
        for file in sorted(files, key=lambda file: file.used_s):
            if size <= quota_bytes:
                break
            freed_before = _removal(file, going).num_bytes
            going[file.path] |= spare[file.path]
            size -= _removal(file, going).num_bytes - freed_before
    return [_removal(file, going) for file in files if going[file.path]]


def remove_left_overs(folder: Path, *, older_than_s: float = LEFT_OVER_S) -> int:
    """Remove drafts of killed conversions of data files; returns how many.

    Args:
        folder: of the cache; conversions are below its `samples`.
        older_than_s: how long ago anything was last written to a draft.
    """
    drafts = [*folder.glob("samples/.*"), *folder.glob("samples/*/.*")]
    dead = [draft for draft in drafts if time.time() - _last_written_s(draft) > older_than_s]
    for draft in dead:
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)
    return len(dead)


def _second_copies(
    files: Sequence[CacheFile], spare: dict[Path, frozenset[int]]
) -> dict[Path, frozenset[int]]:
    """By file: positions of clips that an earlier position or another file holds as well."""
    second: dict[Path, frozenset[int]] = {}
    held: set[str] = set()
    # Files with nothing to spare first: what a killed removal had written anew is one of them.
    for file in sorted(files, key=lambda file: len(spare[file.path])):
        copies: set[int] = set()
        for position, entry in enumerate(file.entries):
            if entry.key in held:
                copies.add(position)
            held.add(entry.key)
        second[file.path] = frozenset(copies)
    return second


def _removal(file: CacheFile, going: dict[Path, frozenset[int]]) -> Removal:
    return Removal(file=file, going=going[file.path])


def _positions(file: CacheFile, condition: Callable[[ClipEntry], bool]) -> frozenset[int]:
    return frozenset(i for i, entry in enumerate(file.entries) if condition(entry))


def _last_written_s(path: Path) -> float:
    """Of a file, or of the newest thing in a folder; Unix time."""
    times: list[float] = []
    for entry in [path, *path.rglob("*")]:
        try:
            times.append(entry.stat().st_mtime)
        except FileNotFoundError:  # renamed or removed meanwhile
            return time.time()
    return max(times)
