"""What gc decides: the rules that hold for every cache, whatever lies in it."""

import os
import time
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from easyvideor1.preprocess.config import Codec
from easyvideor1.preprocess.frame_cache import CacheFile, ClipEntry
from easyvideor1.preprocess.garbage import Removal, plan_removals, remove_left_overs
from easyvideor1.schema.records import MediaKind

OVERHEAD = 7
"""Bytes of a file besides its payloads."""


def entry(key: int) -> ClipEntry:
    return ClipEntry(
        key=str(key),
        kind=MediaKind.video,
        source=f"{key}.mp4",
        reading="{}",
        codec=Codec.raw,
        shape=(1, 3, 32, 32),
        num_bytes=100 + key,
        psnr_db=None,
    )


@st.composite
def caches(draw: st.DrawFn) -> list[CacheFile]:
    """Files of some of twelve clips; the same clip may lie in several files, or twice in one."""
    contents = draw(
        st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=5), min_size=1, max_size=6)
    )
    files = []
    for number, keys in enumerate(contents):
        entries = tuple(entry(key) for key in keys)
        files.append(
            CacheFile(
                path=Path(f"{number}.arrow"),
                num_bytes=OVERHEAD + sum(one.num_bytes for one in entries),
                used_s=float(draw(st.integers(0, 9))),
                entries=entries,
            )
        )
    return files


def left(files: list[CacheFile], removals: list[Removal]) -> dict[Path, list[ClipEntry]]:
    """By file, what is there afterwards; a file without clips is gone."""
    going = {removal.file.path: removal.going for removal in removals}
    staying = {
        file.path: [
            one for i, one in enumerate(file.entries) if i not in going.get(file.path, frozenset())
        ]
        for file in files
    }
    return {path: entries for path, entries in staying.items() if entries}


def size(staying: dict[Path, list[ClipEntry]]) -> int:
    return sum(OVERHEAD + sum(one.num_bytes for one in entries) for entries in staying.values())


def keys_of(staying: dict[Path, list[ClipEntry]]) -> Counter[str]:
    return Counter(one.key for entries in staying.values() for one in entries)


needs = st.sets(st.integers(0, 11).map(str))


@given(caches(), needs)
def test_without_a_rule_only_second_copies_go(files: list[CacheFile], needed: set[str]) -> None:
    removals = plan_removals(files, lambda one: one.key in needed, unused=False, quota_bytes=None)
    before = {one.key for file in files for one in file.entries}
    assert keys_of(left(files, removals)) == Counter(dict.fromkeys(before, 1))


@given(caches(), needs)
def test_of_unused_clips_none_stays(files: list[CacheFile], needed: set[str]) -> None:
    removals = plan_removals(files, lambda one: one.key in needed, unused=True, quota_bytes=None)
    before = {one.key for file in files for one in file.entries}
    assert keys_of(left(files, removals)) == Counter(dict.fromkeys(before & needed, 1))


@given(caches(), needs, st.integers(0, 3000))
def test_a_quota_is_kept_unless_needed_clips_alone_exceed_it(
    files: list[CacheFile], needed: set[str], quota: int
) -> None:
    removals = plan_removals(files, lambda one: one.key in needed, unused=False, quota_bytes=quota)
    staying = left(files, removals)
    before = {one.key for file in files for one in file.entries}
    counts = keys_of(staying)
    assert max(counts.values(), default=0) <= 1
    assert before & needed <= counts.keys()
    spare = counts.keys() - needed
    assert size(staying) <= quota or not spare
    # The longest unused first: a file that gave up spare clips is no younger than one that did not.
    used = {file.path: file.used_s for file in files}
    keeps_spare = [
        used[path] for path, entries in staying.items() if any(one.key in spare for one in entries)
    ]
    everywhere = keys_of({file.path: list(file.entries) for file in files})
    gave_up = [
        removal.file.used_s
        for removal in removals
        if any(one.key not in needed and everywhere[one.key] == 1 for one in removal.clips)
    ]
    assert max(gave_up, default=0.0) <= min(keeps_spare, default=9.0)


@given(caches(), needs)
def test_a_removal_says_what_it_frees(files: list[CacheFile], needed: set[str]) -> None:
    removals = plan_removals(files, lambda one: one.key in needed, unused=True, quota_bytes=None)
    before = sum(file.num_bytes for file in files)
    assert size(left(files, removals)) == before - sum(one.num_bytes for one in removals)


@given(caches(), needs)
def test_a_gc_killed_after_any_shard_it_wrote_anew_is_taken_up(
    files: list[CacheFile], needed: set[str]
) -> None:
    def plan(files: list[CacheFile]) -> list[Removal]:
        return plan_removals(files, lambda one: one.key in needed, unused=True, quota_bytes=None)

    before = {one.key for file in files for one in file.entries}
    for removal in plan(files):
        # Written anew, and the old file is still there.
        entries = tuple(one for one in map(entry, range(12)) if one.key in removal.keep)
        anew = CacheFile(path=Path("anew"), num_bytes=1, used_s=0.0, entries=entries)
        staying = left([*files, anew], plan([*files, anew]))
        assert keys_of(staying) == Counter(dict.fromkeys(before & needed, 1))


def test_left_overs_are_judged_by_the_newest_thing_in_them(tmp_path: Path) -> None:
    then_s = time.time() - 1000
    old, alive = tmp_path / "samples/.old.1", tmp_path / "samples/.alive.2"
    for folder in (old, alive):
        (folder / "images").mkdir(parents=True)
        (folder / "images/0.png").write_bytes(b"x")
        for path in (folder / "images", folder / "images/0.png", folder):
            os.utime(path, (then_s, then_s))
    (alive / "images/0.png").touch()
    index = tmp_path / "samples/index/.entry.77"
    index.parent.mkdir()
    index.write_text("{}")
    os.utime(index, (then_s, then_s))
    kept = tmp_path / "samples/index/entry"
    kept.write_text("{}")
    os.utime(kept, (then_s, then_s))

    assert remove_left_overs(tmp_path, older_than_s=500) == 2
    assert not old.exists()
    assert not index.exists()
    assert alive.exists()
    assert kept.exists()
