"""The frame cache: exact, sealed or absent, readable by everyone at once."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyvideor1.preprocess import arrow_shard, cache_arrow, cache_pt
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


def write(config: CacheConfig, clips: list[StoredClip]) -> None:
    with open_cache(config).writer(drafts_of(config.dir)) as writer:
        for clip in clips:
            writer.add(clip)


def fill(config: CacheConfig, numbers: range) -> list[StoredClip]:
    clips = [stored_clip(number) for number in numbers]
    write(config, clips)
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


@pytest.mark.parametrize("format_name", list(CacheFormat))
@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=15, deadline=None)
@given(
    clips=st.lists(
        st.tuples(
            st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([28, 32])
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_clips_are_read_back_in_every_codec_and_format(
    tmp_path_factory: pytest.TempPathFactory,
    codec: Codec,
    format_name: CacheFormat,
    clips: list[tuple[int, int, int, int]],
) -> None:
    config = CacheConfig(
        dir=str(tmp_path_factory.mktemp("any")), format=format_name, codec=codec, shard_bytes=50_000
    )
    written = [
        stored_clip(n, num_frames=t, height=h * side, width=w * side, smooth=codec.is_lossy)
        for n, (t, h, w, side) in enumerate(clips)
    ]
    write(config, written)
    cache = open_cache(config)
    assert sorted(cache.keys()) == sorted(clip.clip.key for clip in written)
    assert problems(config) == []
    for expected in written:
        found = cache.read(expected.clip.key)
        assert found.clip.metadata == expected.clip.metadata
        assert (found.settings, found.source) == (expected.settings, expected.source)
        assert found.clip.frames.shape == expected.clip.frames.shape
        if codec.is_lossy:
            error = found.clip.frames.astype(np.float64) - expected.clip.frames
            assert 10 * np.log10(255**2 / np.mean(error**2)) > 44
        else:
            assert np.array_equal(found.clip.frames, expected.clip.frames)


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_a_cache_may_hold_clips_of_several_codecs(
    cache_config: CacheConfig, format_name: CacheFormat
) -> None:
    config = replace(cache_config, format=format_name)
    for number, codec in enumerate(Codec):
        write(replace(config, codec=codec), [stored_clip(number, smooth=True)])
    for number, codec in enumerate(Codec):
        written = stored_clip(number, smooth=True)
        encoded = open_cache(config).read_encoded(written.clip.key)
        assert encoded.frames.codec is codec
        assert (encoded.frames.psnr_db is not None) == codec.is_lossy
        distance = encoded.decode().clip.frames.astype(int) - written.clip.frames
        assert np.abs(distance).max() <= (24 if codec.is_lossy else 0)
    assert problems(config) == []


@pytest.mark.parametrize("format_name", list(CacheFormat))
@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_known_of_a_file_without_reading_frames_is_what_it_holds(
    cache_config: CacheConfig, format_name: CacheFormat, codec: Codec
) -> None:
    config = replace(cache_config, format=format_name, codec=codec)
    written = [stored_clip(n, num_frames=n + 1, smooth=True) for n in range(3)]
    write(config, written)
    cache = open_cache(config)
    files = [cache.file(path) for path in cache.paths()]
    entries = {entry.key: entry for file in files for entry in file.entries}
    assert len(entries) == 3
    for number, clip in enumerate(written):
        entry, encoded = entries[clip.clip.key], cache.read_encoded(clip.clip.key)
        assert (entry.kind, entry.source, entry.codec) == (clip.clip.kind, clip.source, codec)
        assert entry.shape == clip.clip.shape
        assert entry.raw_bytes == (number + 1) * 3 * 64 * 96
        assert (entry.num_bytes, entry.psnr_db) == (
            encoded.frames.payload.size,
            encoded.frames.psnr_db,
        )
        reading = {"kind": "video", "budget": {"fps": 2.0, "max_frames": number + 1}}
        assert json.loads(entry.reading) == reading
    on_disk = sum(path.stat().st_size for path in files_below(Path(config.dir)))
    assert sum(file.num_bytes for file in files) == cache.num_bytes() == on_disk


def test_clips_of_any_shape_fit(any_config: CacheConfig) -> None:
    shapes = [(1, 32, 32), (7, 32, 320), (128, 64, 64)]
    clips = [stored_clip(n, num_frames=t, height=h, width=w) for n, (t, h, w) in enumerate(shapes)]
    write(any_config, clips)
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


@pytest.mark.parametrize("codec", list(Codec))
def test_every_payload_begins_on_a_page_of_its_shard(
    cache_config: CacheConfig, codec: Codec
) -> None:
    config = replace(cache_config, codec=codec)
    clips = [stored_clip(n, num_frames=1 + n % 3, smooth=True) for n in range(7)]
    write(config, clips)
    for clip in clips:
        payload = open_cache(config).read_encoded(clip.clip.key).frames.payload
        assert payload.ctypes.data % 4096 == 0


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


def test_a_reader_follows_clips_into_another_shard(cache_config: CacheConfig) -> None:
    clips = fill(cache_config, range(4))
    reader = open_cache(cache_config)
    assert_holds(reader, clips)
    frames = [reader.get(clip.clip.key).frames for clip in clips]

    (shard,) = reader.paths()
    kept = {clip.clip.key for clip in clips[1:3]}
    open_cache(cache_config).shrink(shard, kept, drafts_of(cache_config.dir))
    assert not shard.exists()
    time.sleep(0.01)
    assert_holds(reader, clips[1:3])
    for gone in (clips[0], clips[3]):
        assert not reader.has(gone.clip.key)
        with pytest.raises(KeyError):
            reader.get(gone.clip.key)
    for view, clip in zip(frames, clips, strict=True):
        assert np.array_equal(view, clip.clip.frames)


def test_a_shard_that_is_gone_is_noticed_when_it_is_read(cache_config: CacheConfig) -> None:
    clips = fill(cache_config, range(2)) + fill(cache_config, range(2, 4))
    reader = open_cache(cache_config)
    assert len(reader.keys()) == 4
    first, _ = reader.paths()
    gone = {entry.key for entry in reader.file(first).entries}
    folder = first.parent.stat()
    first.unlink()
    # As a network file system may show it for a while.
    os.utime(first.parent, ns=(folder.st_atime_ns, folder.st_mtime_ns))
    for clip in clips:
        if clip.clip.key in gone:
            with pytest.raises(KeyError):
                reader.get(clip.clip.key)
        else:
            assert np.array_equal(reader.get(clip.clip.key).frames, clip.clip.frames)
    assert len(reader.keys()) == 2


def test_a_clip_in_two_shards_outlives_either(cache_config: CacheConfig) -> None:
    (clip,) = fill(cache_config, range(1))
    fill(cache_config, range(1))
    reader = open_cache(cache_config)
    for shard in reader.paths():
        assert np.array_equal(reader.get(clip.clip.key).frames, clip.clip.frames)
        fill(cache_config, range(1))
        shard.unlink()
    assert np.array_equal(reader.get(clip.clip.key).frames, clip.clip.frames)


def test_a_pt_clip_that_is_gone_is_a_key_error(cache_config: CacheConfig) -> None:
    config = replace(cache_config, format=CacheFormat.pt)
    (clip,) = fill(config, range(1))
    cache = open_cache(config)
    (path,) = cache.paths()
    cache.shrink(path, set(), drafts_of(config.dir))
    with pytest.raises(KeyError):
        cache.get(clip.clip.key)


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_the_first_read_of_a_process_is_noted_in_the_file(
    cache_config: CacheConfig, format_name: CacheFormat
) -> None:
    config = replace(cache_config, format=format_name)
    (clip,) = fill(config, range(1))
    year_ago_s = time.time() - 365 * 86_400

    def used_s() -> float:
        cache = open_cache(config)
        return cache.file(cache.paths()[0]).used_s

    for path in files_below(Path(config.dir)):
        os.utime(path, (year_ago_s, year_ago_s))
    assert used_s() == pytest.approx(year_ago_s, abs=1)
    open_cache(config, notes_use=False).get(clip.clip.key)
    open_cache(config).has(clip.clip.key)
    assert used_s() == pytest.approx(year_ago_s, abs=1)

    cache = open_cache(config)
    cache.get(clip.clip.key)
    assert used_s() == pytest.approx(time.time(), abs=60)
    for path in files_below(Path(config.dir)):
        os.utime(path, (year_ago_s, year_ago_s))
    cache.get(clip.clip.key)
    assert used_s() == pytest.approx(year_ago_s, abs=1)


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_a_cache_that_cannot_be_written_to_is_read_all_the_same(
    cache_config: CacheConfig, format_name: CacheFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(cache_config, format=format_name)
    clips = fill(config, range(2))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert_holds(open_cache(config), clips)


def test_a_shrunk_shard_keeps_the_time_of_its_last_use(cache_config: CacheConfig) -> None:
    clips = fill(cache_config, range(3))
    cache = open_cache(cache_config, notes_use=False)
    (shard,) = cache.paths()
    for path in files_below(Path(cache_config.dir)):
        os.utime(path, (1e9, 1e9))
    cache.shrink(shard, {clips[2].clip.key}, drafts_of(cache_config.dir))
    (shrunk,) = cache.paths()
    assert shrunk != shard
    assert cache.file(shrunk).used_s == 1e9
    assert problems(cache_config) == []


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_a_cache_of_another_version_is_refused(
    cache_config: CacheConfig, format_name: CacheFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(cache_config, format=format_name)
    module = arrow_shard if format_name is CacheFormat.arrow else cache_pt
    (clip,) = fill(config, range(1))
    monkeypatch.setattr(module, "VERSION", b"9" if format_name is CacheFormat.arrow else 9)
    with pytest.raises(DamagedCacheError, match=r"version 2, this easyvideor1 reads 9"):
        open_cache(config).get(clip.clip.key)


def test_verify_finds_an_index_that_differs_from_its_shard(cache_config: CacheConfig) -> None:
    fill(cache_config, range(2))
    fill(cache_config, range(2, 5))
    first, second = open_cache(cache_config).paths()
    shutil.copy(second.with_suffix(".index"), first.with_suffix(".index"))
    assert problems(cache_config) == ["its index differs from what it holds"]


def test_verify_finds_a_key_that_is_not_that_of_the_settings(any_config: CacheConfig) -> None:
    stored = stored_clip(0)
    other = replace(stored, settings=stored.settings | {"content": "fast:1"})
    write(any_config, [other])
    assert problems(any_config) == ["the key is not that of the recorded settings"]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_verify_finds_a_damaged_payload(
    cache_config: CacheConfig, format_name: CacheFormat, codec: Codec
) -> None:
    config = replace(cache_config, format=format_name, codec=codec)
    stored = stored_clip(0, smooth=True)
    write(config, [stored])
    payload = open_cache(config).read_encoded(stored.clip.key).frames.payload.tobytes()
    (path,) = open_cache(config).paths()
    start = path.read_bytes().index(payload)
    flip_byte(path, start + len(payload) // 2)
    assert len(problems(config)) == 1


def test_verify_goes_on_after_a_file_that_cannot_be_read(any_config: CacheConfig) -> None:
    config = replace(any_config, shard_bytes=1)
    fill(config, range(3))
    first, *_ = open_cache(config).paths()
    os.truncate(first, 0)
    found = list(verify(open_cache(config)))
    assert [name for name, problem in found if problem] == [str(first)]
    assert len(found) == 3


def test_a_pt_file_under_another_name_is_damaged(cache_config: CacheConfig) -> None:
    config = replace(cache_config, format=CacheFormat.pt)
    fill(config, range(1))
    (path,) = open_cache(config).paths()
    path.rename(path.with_name(path.stem[:2] + "0" * 38 + ".pt"))
    (problem,) = problems(config)
    assert "it holds the clip" in problem


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_a_clip_that_does_not_fit_on_the_disk_leaves_nothing(
    cache_config: CacheConfig, format_name: CacheFormat
) -> None:
    program = (
        "import resource, sys; from pathlib import Path;"
        "from easyvideor1.preprocess.cache import open_cache;"
        "from easyvideor1.preprocess.config import CacheConfig, CacheFormat;"
        "from tests.stored_clips import drafts_of, stored_clip;"
        "import torch;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        f"config = CacheConfig(dir={cache_config.dir!r}, format=CacheFormat.{format_name.value});"
        "writer = open_cache(config).writer(drafts_of(config.dir));"
        "writer.__enter__();"
        "\ntry: writer.add(stored_clip(0, num_frames=8)); writer.seal()"
        "\nexcept (OSError, RuntimeError) as error: writer.discard(); sys.exit(7)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 7, result.stderr
    assert files_below(Path(cache_config.dir)) == []


def test_readers_writers_and_removals_at_once_lose_nothing(cache_config: CacheConfig) -> None:
    """Writers add, a removal takes every odd clip, readers ask for all of them meanwhile."""
    config = replace(cache_config, shard_bytes=SHARD_BYTES)
    clips = [stored_clip(n) for n in range(40)]
    even = {clip.clip.key for clip in clips[::2]}
    done = threading.Event()

    def read() -> int:
        cache, num_read = open_cache(config), 0
        while not done.is_set():
            for clip in clips:
                try:
                    found = cache.get(clip.clip.key)
                except KeyError:
                    continue
                assert np.array_equal(found.frames, clip.clip.frames)
                num_read += 1
        return num_read

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writers = [pool.submit(write, config, clips[start::2]) for start in range(2)]
        for writer in writers:
            writer.result()
        cache = open_cache(config)
        for path in cache.paths():
            cache.shrink(path, even, drafts_of(config.dir))
        done.set()
        assert all(reader.result() for reader in readers)
    assert_holds(open_cache(config), clips[::2])
    assert problems(config) == []
