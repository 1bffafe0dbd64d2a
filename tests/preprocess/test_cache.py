"""The frame cache: exact, sealed or absent, readable by everyone at once."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from easyvideor1.preprocess import cache_arrow
from easyvideor1.preprocess.cache import open_cache, verify
from easyvideor1.preprocess.config import CacheConfig, CacheFormat, Codec
from easyvideor1.preprocess.errors import DamagedCacheError, LeaseLostError
from easyvideor1.preprocess.frame_cache import FrameCache, StoredClip
from tests.stored_clips import drafts_of, stored_clip

SHARD_BYTES = 400_000
"""Six of the test clips pass it."""


@pytest.fixture(params=["arrow-raw", "arrow-zstd", "pt-raw", "pt-zstd"])
def any_config(request: pytest.FixtureRequest, tmp_path: Path) -> CacheConfig:
    format_name, codec = request.param.split("-")
    return CacheConfig(
        dir=str(tmp_path / "cache"),
        format=CacheFormat(format_name),
        codec=Codec(codec),
        shard_bytes=SHARD_BYTES,
    )


def fill(config: CacheConfig, numbers: range) -> list[StoredClip]:
    clips = [stored_clip(number) for number in numbers]
    with open_cache(config).writer(drafts_of(config.dir)) as writer:
        for clip in clips:
            writer.add(clip)
    return clips


def assert_holds(cache: FrameCache, clips: list[StoredClip]) -> None:
    for expected in clips:
        found = cache.read(expected.clip.key)
        assert np.array_equal(found.clip.frames, expected.clip.frames)
        assert found.clip.metadata == expected.clip.metadata
        assert (found.clip.key, found.clip.kind) == (expected.clip.key, expected.clip.kind)
        assert (found.settings, found.source) == (expected.settings, expected.source)
    assert len(cache.keys()) == len(clips)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def problems(config: CacheConfig) -> list[str]:
    return [problem for _, problem in verify(open_cache(config)) if problem]


def test_what_was_written_is_read_back_exactly(any_config: CacheConfig) -> None:
    clips = fill(any_config, range(23))
    assert_holds(open_cache(any_config), clips)
    assert problems(any_config) == []


def test_clips_of_any_shape_fit(any_config: CacheConfig) -> None:
    shapes = [(1, 32, 32), (7, 32, 320), (128, 64, 64)]
    clips = [stored_clip(n, num_frames=t, height=h, width=w) for n, (t, h, w) in enumerate(shapes)]
    with open_cache(any_config).writer(drafts_of(any_config.dir)) as writer:
        for clip in clips:
            writer.add(clip)
    assert_holds(open_cache(any_config), clips)


def test_frames_cannot_be_written_to(any_config: CacheConfig) -> None:
    (stored,) = fill(any_config, range(1))
    frames = open_cache(any_config).get(stored.clip.key).frames
    with pytest.raises(ValueError, match="read-only"):
        frames[0] = 0


def test_frames_outlive_the_cache_they_are_mapped_from(any_config: CacheConfig) -> None:
    clips = fill(any_config, range(3))
    frames = [open_cache(any_config).get(clip.clip.key).frames for clip in clips]
    for read, expected in zip(frames, clips, strict=True):
        assert np.array_equal(read, expected.clip.frames)


def test_raw_arrow_frames_are_not_copied(cache_config: CacheConfig) -> None:
    (stored,) = fill(cache_config, range(1))
    cache = open_cache(cache_config)
    before = pa.total_allocated_bytes()
    frames = cache.get(stored.clip.key).frames
    assert pa.total_allocated_bytes() - before < frames.nbytes / 10
    assert not frames.flags.owndata
    assert frames.flags.c_contiguous


def test_a_cache_that_is_not_there_is_empty(any_config: CacheConfig) -> None:
    cache = open_cache(any_config)
    assert cache.keys() == []
    assert not cache.has("0" * 40)
    with pytest.raises(KeyError):
        cache.get("0" * 40)


def test_an_open_reader_sees_what_is_sealed_later(any_config: CacheConfig) -> None:
    cache = open_cache(any_config)
    first = fill(any_config, range(2))
    assert all(cache.has(clip.clip.key) for clip in first)
    second = fill(any_config, range(2, 4))
    assert all(cache.has(clip.clip.key) for clip in second)


def test_shards_are_sealed_at_their_size(cache_config: CacheConfig) -> None:
    config = replace(cache_config, shard_bytes=SHARD_BYTES)
    fill(config, range(23))
    sizes = [path.stat().st_size for path in Path(config.dir).rglob("*.arrow")]
    assert len(sizes) == 4
    assert max(sizes) < 1.2 * SHARD_BYTES


def test_a_shard_is_sealed_after_a_while(
    cache_config: CacheConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_arrow, "SEAL_AFTER_S", 0.0)
    cache = open_cache(cache_config)
    writer = cache.writer(drafts_of(cache_config.dir))
    writer.add(stored_clip(0))
    assert cache.has(stored_clip(0).clip.key)


def test_an_exception_leaves_only_what_was_sealed(cache_config: CacheConfig) -> None:
    config = replace(cache_config, shard_bytes=SHARD_BYTES)
    with pytest.raises(RuntimeError), open_cache(config).writer(drafts_of(config.dir)) as writer:
        for number in range(8):
            writer.add(stored_clip(number))
        raise RuntimeError
    assert_holds(open_cache(config), [stored_clip(number) for number in range(6)])
    assert not files_below(Path(config.dir) / "runs")


def test_a_lost_index_is_derived_from_its_shard(cache_config: CacheConfig) -> None:
    clips = fill(cache_config, range(5))
    (index,) = Path(cache_config.dir).rglob("*.index")
    index.unlink()
    assert_holds(open_cache(cache_config), clips)


def kill_a_writer(config: CacheConfig, after: int) -> int:
    """SIGKILL a process once it has added `after` clips; how many it had added."""
    program = [sys.executable, "-m", "tests.stored_clips"]
    arguments = [config.dir, config.format.value, str(config.shard_bytes)]
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        added = -1
        for line in process.stdout:
            added = int(line)
            if added == after:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return added + 1


@pytest.mark.parametrize("after", [0, 13])
def test_a_killed_writer_loses_only_its_open_shard(any_config: CacheConfig, after: int) -> None:
    added = kill_a_writer(any_config, after)
    cache = open_cache(any_config)
    survivors = [n for n in range(added + 1) if cache.has(stored_clip(n).clip.key)]
    assert survivors == list(range(len(survivors)))
    assert len(survivors) >= (added - 7 if any_config.format is CacheFormat.arrow else added)
    assert_holds(cache, [stored_clip(n) for n in survivors])

    fill(any_config, range(len(survivors), 20))
    assert_holds(open_cache(any_config), [stored_clip(n) for n in range(20)])
    assert problems(any_config) == []


def test_a_writer_whose_drafts_are_removed_is_told_so(any_config: CacheConfig) -> None:
    drafts = drafts_of(any_config.dir)
    writer = open_cache(any_config).writer(drafts)
    writer.add(stored_clip(0))
    shutil.rmtree(drafts)
    with pytest.raises(LeaseLostError, match=drafts.name):
        writer.seal()
        writer.add(stored_clip(1))
    writer.discard()
    sealed_before = 1 if any_config.format is CacheFormat.pt else 0
    assert_holds(open_cache(any_config), [stored_clip(0)][:sealed_before])


def test_two_processes_may_write_at_once(cache_config: CacheConfig) -> None:
    context = multiprocessing.get_context("spawn")
    shares = [range(0, 16), range(8, 24)]
    writers = [context.Process(target=fill, args=(cache_config, share)) for share in shares]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert_holds(open_cache(cache_config), [stored_clip(n) for n in range(24)])
    assert len(problems(cache_config)) == 8
    assert all("as well; job=gc" in problem for problem in problems(cache_config))


def test_two_writers_may_write_the_same_clips_at_once(any_config: CacheConfig) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fill(any_config, range(8)), range(2)))
    assert_holds(open_cache(any_config), [stored_clip(n) for n in range(8)])
    num_twice = 0 if any_config.format is CacheFormat.pt else 8
    assert len(problems(any_config)) == num_twice


def test_many_threads_may_read_at_once(any_config: CacheConfig) -> None:
    clips = fill(any_config, range(12))
    cache = open_cache(any_config)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda stored: cache.get(stored.clip.key), clips * 10))
    for read, expected in zip(found, clips * 10, strict=True):
        assert np.array_equal(read.frames, expected.clip.frames)


def test_reading_arrow_imports_neither_torch_nor_ray(cache_config: CacheConfig) -> None:
    (stored,) = fill(cache_config, range(1))
    program = (
        "import sys; from easyvideor1.preprocess.cache import open_cache;"
        "from easyvideor1.preprocess.config import CacheConfig;"
        f"open_cache(CacheConfig(dir={cache_config.dir!r})).get({stored.clip.key!r});"
        "sys.exit(any(name in sys.modules for name in ('torch', 'ray', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def flip_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))


@pytest.mark.parametrize("format_name", ["arrow", "pt"])
def test_verify_finds_a_changed_pixel(cache_config: CacheConfig, format_name: str) -> None:
    config = replace(cache_config, format=CacheFormat(format_name))
    clips = fill(config, range(3))
    (path,) = [
        path
        for path in Path(config.dir).rglob(f"*.{format_name}")
        if format_name == "arrow" or path.stem == clips[1].clip.key
    ]
    content = path.read_bytes()
    flip_byte(path, content.index(clips[1].clip.frames[2].tobytes()))
    found = {key: problem for key, problem in verify(open_cache(config)) if problem}
    assert found == {clips[1].clip.key: "the frames differ from their checksum"}


@pytest.mark.parametrize("format_name", ["arrow", "pt"])
def test_a_truncated_file_is_named(cache_config: CacheConfig, format_name: str) -> None:
    config = replace(cache_config, format=CacheFormat(format_name))
    (stored,) = fill(config, range(1))
    (path,) = Path(config.dir).rglob(f"*.{format_name}")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(DamagedCacheError, match=path.name):
        open_cache(config).get(stored.clip.key)
