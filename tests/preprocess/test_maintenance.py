"""Jobs over a cache: stats, verify, gc, export. On real caches of real clips and of many shards."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from easyvideor1.preprocess import maintenance
from easyvideor1.preprocess.cache import open_cache, verify
from easyvideor1.preprocess.cache_settings import explain_missing
from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheFormat,
    Codec,
    DataConfig,
    DecodeConfig,
    Decoder,
    ExportConfig,
    GcConfig,
    ModelConfig,
    PreprocessConfig,
)
from easyvideor1.preprocess.decode import decode, media_name
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.lease import RunLease
from easyvideor1.preprocess.parts import open_parts
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import ProblemType, Sample
from tests.media import video, write_video
from tests.stored_clips import stored_clip

BUDGETS = Budgets(video=FrameBudget(fps=2.0, max_frames=8, max_pixels=64 * 64))
SMALLER = Budgets(video=FrameBudget(fps=2.0, max_frames=4, max_pixels=64 * 64))


@pytest.fixture
def config(tmp_path: Path, tiny_model_path: str) -> PreprocessConfig:
    """Four videos, none of them cached yet."""
    paths = [write_video(tmp_path / f"media/{n}.mp4", seed=n) for n in range(4)]
    samples = [
        Sample(
            id=f"s{number}",
            problem="?",
            answer="yes",
            problem_type=ProblemType.open_ended,
            media=(video(path),),
        )
        for number, path in enumerate(paths)
    ]
    write_samples(tmp_path / "train.jsonl", samples)
    return PreprocessConfig(
        model=ModelConfig(path=tiny_model_path),
        data=DataConfig(name="files", train=[str(tmp_path / "train.jsonl")]),
        cache=CacheConfig(dir=str(tmp_path / "cache")),
        decode=DecodeConfig(decoder=Decoder.pyav),
        budget=BUDGETS,
    )


def cache_data(config: PreprocessConfig) -> list[str]:
    """What job=cache does, in this process; the keys of the clips."""
    clips = []
    for samples, store in open_parts(config):
        for media in (media for sample in samples for media in sample.media):
            clip = decode(media, store.budget(media), store.rules, store.decode_config)
            clips.append(
                StoredClip(
                    clip=replace(clip, key=store.key(media)),
                    settings=store.settings(media),
                    source=media_name(media),
                )
            )
    return write(config.cache, clips)


def write(config: CacheConfig, clips: Sequence[StoredClip]) -> list[str]:
    with RunLease(Path(config.dir)) as lease, open_cache(config).writer(lease.drafts) as writer:
        for clip in clips:
            writer.add(clip)
    return [clip.clip.key for clip in clips]


def keys_in(config: CacheConfig) -> set[str]:
    return set(open_cache(config).keys())


def problems(config: CacheConfig) -> list[str]:
    return [problem for _, problem in verify(open_cache(config)) if problem]


def content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "samples" not in path.parts)
    return {str(path): path.read_bytes() for path in paths}


def used(path: Path, days_ago: float) -> None:
    """Make a file of a cache, with its index, look unused for so long."""
    then_s = time.time() - 86_400 * days_ago
    for file in path.parent.glob(f"{path.stem}.*"):
        os.utime(file, (then_s, then_s))


# stats


def test_stats_add_up_by_codec_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = CacheConfig(dir=str(tmp_path / "cache"))
    clip_bytes = 4 * 3 * 64 * 96
    write(cache, [stored_clip(0), stored_clip(1)])
    write(replace(cache, codec=Codec.zstd), [stored_clip(2)])
    jpeg = [stored_clip(3, smooth=True), stored_clip(4, num_frames=8, smooth=True)]
    write(replace(cache, codec=Codec.jpeg), jpeg)
    stored = [open_cache(cache).read_encoded(clip.clip.key).frames for clip in jpeg]
    maintenance.stats(PreprocessConfig(cache=cache))

    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["cache"] == f"{cache.dir} (arrow)"
    assert lines["clips"] == "5 of 5 media, 5 videos"
    assert lines["frames"] == f"24, {6 * clip_bytes / 1e6:.1f} MB of pixels"
    assert lines["on"].endswith("in 3 files")
    assert lines["raw"] == f"2 clips, {2 * clip_bytes / 1e6:.1f} MB, 1.000 of raw"
    psnr = [frames.psnr_db for frames in stored if frames.psnr_db is not None]
    size = sum(frames.payload.size for frames in stored)
    assert lines["jpeg"] == (
        f"2 clips, {size / 1e6:.1f} MB, {size / (3 * clip_bytes):.3f} of raw, "
        f"PSNR {np.mean(psnr):.1f} dB, at least {np.min(psnr):.1f} dB"
    )
    assert lines["settings"].endswith("budget.max_frames=8")
    assert lines["quarantined"] == "0"


def test_settings_are_told_apart_by_what_only_some_of_them_have(
    config: PreprocessConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    cache_data(config)
    config.cache.codec = Codec.jpeg
    cache_data(config)
    maintenance.stats(config)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("settings")]
    assert sorted(line.rsplit(": ", 1)[1] for line in said) == ["codec=jpeg:95", "no codec"]


def test_stats_read_no_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = CacheConfig(dir=str(tmp_path / "cache"), shard_bytes=1)
    write(cache, [stored_clip(n) for n in range(3)])
    maintenance.stats(PreprocessConfig(cache=cache))
    before = capsys.readouterr().out
    for shard in open_cache(cache).paths():
        size = shard.stat().st_size
        shard.write_bytes(b"")
        os.truncate(shard, size)
    maintenance.stats(PreprocessConfig(cache=cache))
    assert capsys.readouterr().out == before


@pytest.mark.parametrize(
    "job", [maintenance.stats, maintenance.verify, maintenance.gc, maintenance.export]
)
def test_a_cache_that_is_not_there_is_a_mistake(job, tmp_path: Path) -> None:
    config = PreprocessConfig(cache=CacheConfig(dir=str(tmp_path / "absent")))
    with pytest.raises(UserError, match=r"there is no cache in \S+absent; set cache\.dir"):
        job(config)
    assert not (tmp_path / "absent").exists()
    write(config.cache, [stored_clip(0)])
    config.cache.format = CacheFormat.pt
    with pytest.raises(UserError, match=r"no clips in format pt.*set cache\.format=arrow"):
        job(config)


def test_a_cache_in_which_nothing_was_sealed_yet_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").mkdir()
    config = PreprocessConfig(cache=CacheConfig(dir=str(tmp_path / "cache")))
    for job in (maintenance.stats, maintenance.verify, maintenance.gc, maintenance.export):
        job(config)
    said = capsys.readouterr().out
    assert "clips        0 of 0 media\n" in said
    assert "0 clips in" in said


# verify


def test_verify_counts_damaged_clips_and_second_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = PreprocessConfig(cache=CacheConfig(dir=str(tmp_path / "cache")))
    clips = [stored_clip(n) for n in range(3)]
    write(config.cache, clips)
    maintenance.verify(config)
    assert capsys.readouterr().out == f"3 clips in {config.cache.dir} are intact\n"

    write(config.cache, clips[:2])
    with pytest.raises(UserError, match=r"2 of 3 clips in \S+ are stored twice; job=gc"):
        maintenance.verify(config)
    assert capsys.readouterr().out.count("as well") == 2

    shard = max(open_cache(config.cache).paths(), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    data[data.index(clips[2].clip.frames.tobytes())] ^= 1
    shard.write_bytes(data)
    with pytest.raises(UserError, match=r"1 of 3 clips in \S+ are damaged.*2 of 3.*twice"):
        maintenance.verify(config)


# gc


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_gc_removes_what_the_data_do_not_need(
    config: PreprocessConfig, format_name: CacheFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    config.cache.format = format_name
    needed = cache_data(config)
    other = cache_data(replace(config, budget=SMALLER))
    config.gc = GcConfig(unused=True)
    before = content(Path(config.cache.dir))

    maintenance.gc(config)
    assert content(Path(config.cache.dir)) == before
    said = capsys.readouterr().out
    assert "goes         4 clips" in said
    assert "stays        4 clips" in said
    assert "budget.max_frames=4" in said
    assert "nothing was removed; gc.delete=true does it" in said
    assert keys_in(config.cache) == {*needed, *other}

    config.gc.delete = True
    maintenance.gc(config)
    assert keys_in(config.cache) == set(needed)
    assert problems(config.cache) == []
    assert sum(len(file) for file in content(Path(config.cache.dir)).values()) < 0.8 * sum(
        len(file) for file in before.values()
    )


def test_gc_writes_a_shard_anew_for_the_clips_that_stay(config: PreprocessConfig) -> None:
    needed = cache_data(config)
    cache = open_cache(config.cache)
    mixed = [cache.read(key) for key in needed] + [stored_clip(n) for n in range(9)]
    shutil.rmtree(Path(config.cache.dir) / "shards")
    write(config.cache, mixed)
    (shard,) = open_cache(config.cache).paths()
    before = {key: open_cache(config.cache).get(key).frames.copy() for key in needed}

    config.gc = GcConfig(unused=True, delete=True)
    maintenance.gc(config)
    (rewritten,) = open_cache(config.cache).paths()
    assert rewritten != shard
    assert rewritten.with_suffix(".index").exists()
    assert keys_in(config.cache) == set(needed)
    for key, frames in before.items():
        assert np.array_equal(open_cache(config.cache).get(key).frames, frames)
    maintenance.gc(config)
    assert open_cache(config.cache).paths() == [rewritten]


def test_a_quota_takes_the_longest_unused_clips_and_none_that_are_needed(
    config: PreprocessConfig,
) -> None:
    needed = set(cache_data(config))
    (oldest,) = open_cache(config.cache).paths()
    used(oldest, days_ago=100)
    shards: dict[int, set[str]] = {}
    for days_ago in (1, 3, 2, 5):
        before = set(open_cache(config.cache).paths())
        shards[days_ago] = set(write(config.cache, [stored_clip(10 * days_ago)]))
        (path,) = set(open_cache(config.cache).paths()) - before
        used(path, days_ago)
    # A clip's shard and index; the two longest unused of the four spare ones have to go.
    shard_bytes = path.stat().st_size + path.with_suffix(".index").stat().st_size
    quota = open_cache(config.cache).num_bytes() - 1.5 * shard_bytes
    config.gc = GcConfig(quota_gb=quota / 1e9, delete=True)
    maintenance.gc(config)
    assert keys_in(config.cache) == needed | shards[1] | shards[2]
    assert open_cache(config.cache).num_bytes() <= quota


def test_a_quota_below_what_is_needed_says_so(
    config: PreprocessConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = cache_data(config)
    write(config.cache, [stored_clip(0)])
    config.gc = GcConfig(quota_gb=0.0, delete=True)
    maintenance.gc(config)
    assert keys_in(config.cache) == set(needed)
    assert "what these data need does not fit into gc.quota_gb=0.0" in capsys.readouterr().out


def test_reading_a_clip_saves_it_from_the_quota(config: PreprocessConfig) -> None:
    keys = [*write(config.cache, [stored_clip(0)]), *write(config.cache, [stored_clip(1)])]
    cache_data(config)
    for path in open_cache(config.cache).paths():
        used(path, days_ago=10)
    open_cache(config.cache).get(keys[0])
    maintenance.verify(config)  # reads all, and counts as no use
    quota = open_cache(config.cache).num_bytes() - 1000
    config.gc = GcConfig(quota_gb=quota / 1e9, delete=True)
    maintenance.gc(config)
    assert keys[0] in keys_in(config.cache)
    assert keys[1] not in keys_in(config.cache)


def test_clips_of_media_that_are_away_stay(config: PreprocessConfig, tmp_path: Path) -> None:
    needed = set(cache_data(config))
    stale = set(cache_data(replace(config, budget=SMALLER)))
    (tmp_path / "media").rename(tmp_path / "unmounted")
    config.gc = GcConfig(unused=True, delete=True)
    maintenance.gc(config)
    assert keys_in(config.cache) == needed | stale
    (tmp_path / "unmounted").rename(tmp_path / "media")
    maintenance.gc(config)
    assert keys_in(config.cache) == needed


def test_gc_leaves_one_of_two_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = PreprocessConfig(cache=CacheConfig(dir=str(tmp_path / "cache")))
    clips = [stored_clip(n) for n in range(5)]
    write(config.cache, clips[:4])
    write(config.cache, [clips[1], clips[4], clips[4], clips[2]])
    config.gc = GcConfig(delete=True)
    maintenance.gc(config)
    assert "goes         3 clips" in capsys.readouterr().out
    assert keys_in(config.cache) == {clip.clip.key for clip in clips}
    maintenance.verify(config)


def test_gc_refuses_while_another_run_writes(tmp_path: Path) -> None:
    config = PreprocessConfig(
        cache=CacheConfig(dir=str(tmp_path / "cache")), gc=GcConfig(delete=True)
    )
    write(config.cache, [stored_clip(0)])
    with (
        RunLease(Path(config.cache.dir)),
        pytest.raises(UserError, match=rf"process {os.getpid()} .* writes into .*; run job=gc"),
    ):
        maintenance.gc(config)
    maintenance.gc(config)


def test_gc_removes_what_killed_processes_left(tmp_path: Path) -> None:
    config = PreprocessConfig(
        cache=CacheConfig(dir=str(tmp_path / "cache")), gc=GcConfig(delete=True)
    )
    write(config.cache, [stored_clip(0)])
    folder = Path(config.cache.dir)
    program = (
        "import os, signal; from pathlib import Path;"
        "from easyvideor1.preprocess.cache import open_cache;"
        "from easyvideor1.preprocess.config import CacheConfig;"
        "from easyvideor1.preprocess.lease import RunLease;"
        "from tests.stored_clips import stored_clip;"
        f"lease = RunLease(Path({config.cache.dir!r})).__enter__();"
        f"open_cache(CacheConfig(dir={config.cache.dir!r})).writer(lease.drafts).add(stored_clip(1));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert content(folder / "runs")

    old, young = folder / "samples/.old.x1", folder / "samples/.young.x2"
    for draft in (old, young, folder / "samples/finished"):
        draft.mkdir(parents=True)
        (draft / "samples.arrow").write_bytes(b"half")
    for path in (old / "samples.arrow", old, young):
        os.utime(path, (time.time() - 90_000,) * 2)

    maintenance.gc(config)
    assert not content(folder / "runs")
    assert not old.exists()
    assert young.exists()
    assert (folder / "samples/finished").exists()
    assert keys_in(config.cache) == {stored_clip(0).clip.key}


SLOW_IMPORTS = [
    "easyvideor1.preprocess.engine",
    "easyvideor1.preprocess.families.tiny",
    "easyvideor1.preprocess.maintenance",
    "transformers.models.auto.video_processing_auto",
    "transformers.models.qwen3_vl.video_processing_qwen3_vl",
]
"""Of a process that runs gc: done once, by the server that processes are forked from."""


def kill_in_gc(config: PreprocessConfig, delay_s: float | None, server) -> tuple[bool, float]:
    """Run gc in a process that is killed some time after its first change to the cache.

    Returns whether it was killed before its end, and the seconds from its first change to then.
    """
    process = server.Process(target=maintenance.gc, args=(config,))
    process.start()
    shards = Path(config.cache.dir) / "shards"
    before = shards.stat().st_mtime_ns
    while process.is_alive() and shards.stat().st_mtime_ns == before:
        time.sleep(0.0005)
    began_s = time.monotonic()
    process.join(delay_s)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL, time.monotonic() - began_s


def survives_kills(config: PreprocessConfig, rounds: int, seed: int) -> int:
    """Kill gc again and again on fresh caches; how many kills hit."""
    needed = set(cache_data(config))
    kept = [open_cache(config.cache).read(key) for key in needed]
    spare = [stored_clip(n, num_frames=1) for n in range(24)]
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(SLOW_IMPORTS)
    config.gc = GcConfig(unused=True, delete=True)
    rng = random.Random(seed)
    kills, longest_s = 0, None
    for _ in range(rounds + 1):
        shutil.rmtree(Path(config.cache.dir) / "shards")
        for number in range(12):  # a needed clip between two spare ones, thrice each
            write(config.cache, [spare[2 * number], kept[number % 4], spare[2 * number + 1]])
        # The first one runs to its end: so long there is something to interrupt.
        delay_s = None if longest_s is None else rng.uniform(0, longest_s)
        was_killed, lasted_s = kill_in_gc(config, delay_s, server)
        longest_s = longest_s or lasted_s
        kills += was_killed
        assert needed <= keys_in(config.cache)
        assert [p for p in problems(config.cache) if "as well" not in p] == []
        for clip in kept:
            frames = open_cache(config.cache).get(clip.clip.key).frames
            assert np.array_equal(frames, clip.clip.frames)
        maintenance.gc(config)
        assert keys_in(config.cache) == needed
        assert problems(config.cache) == []
        assert not content(Path(config.cache.dir) / "runs")
    return kills


def test_a_gc_that_is_killed_loses_no_clip_that_is_needed(config: PreprocessConfig) -> None:
    survives_kills(config, rounds=3, seed=0)


@pytest.mark.slow
def test_a_gc_that_is_killed_at_many_moments_loses_no_clip_that_is_needed(
    config: PreprocessConfig,
) -> None:
    assert survives_kills(config, rounds=25, seed=1) >= 10


# export


def exported(config: PreprocessConfig, **changes) -> CacheConfig:
    """Export; the config of the target."""
    config.export = ExportConfig(**changes)
    maintenance.export(config)
    return replace(
        config.cache,
        dir=config.export.dir or config.cache.dir,
        format=config.export.format,
        codec=config.export.codec,
    )


def assert_same_clips(one: CacheConfig, other: CacheConfig) -> None:
    assert keys_in(one) == keys_in(other)
    for key in keys_in(one):
        here, there = open_cache(one).read(key), open_cache(other).read(key)
        assert np.array_equal(here.clip.frames, there.clip.frames)
        assert here.clip.metadata == there.clip.metadata
        assert (here.settings, here.source) == (there.settings, there.source)
        assert (
            open_cache(one).read_encoded(key).frames.digest
            == open_cache(other).read_encoded(key).frames.digest
        )
    assert problems(other) == []


def test_clips_go_from_arrow_to_pt_and_back(config: PreprocessConfig, tmp_path: Path) -> None:
    key, *_ = cache_data(config)
    as_pt = exported(config)
    assert as_pt.dir == config.cache.dir
    assert_same_clips(config.cache, as_pt)
    (path,) = Path(as_pt.dir).rglob(f"{key}.pt")
    frames = torch.load(path, weights_only=True, mmap=True)["frames"]
    assert np.array_equal(frames.numpy(), open_cache(config.cache).get(key).frames)

    back = exported(
        replace(config, cache=as_pt), dir=str(tmp_path / "back"), format=CacheFormat.arrow
    )
    assert_same_clips(config.cache, back)


@pytest.mark.parametrize("format_name", list(CacheFormat))
def test_raw_clips_become_zstd_and_raw_again(
    config: PreprocessConfig, tmp_path: Path, format_name: CacheFormat
) -> None:
    keys = cache_data(config)
    packed = exported(config, dir=str(tmp_path / "z"), format=format_name, codec=Codec.zstd)
    assert_same_clips(config.cache, packed)
    assert open_cache(packed).read_encoded(keys[0]).frames.codec is Codec.zstd
    assert open_cache(packed).num_bytes() < open_cache(config.cache).num_bytes()
    unpacked = exported(
        replace(config, cache=packed), dir=str(tmp_path / "r"), format=CacheFormat.arrow
    )
    assert_same_clips(config.cache, unpacked)
    assert open_cache(unpacked).read_encoded(keys[0]).frames.codec is Codec.raw


@pytest.mark.parametrize("codec", [Codec.jpeg, Codec.h264])
def test_lossy_clips_are_copied_as_they_are(
    config: PreprocessConfig, tmp_path: Path, codec: Codec
) -> None:
    config.cache.codec = codec
    keys = cache_data(config)
    target = exported(config, dir=str(tmp_path / "copy"), codec=Codec.zstd)
    for key in keys:
        here = open_cache(config.cache).read_encoded(key).frames
        there = open_cache(target).read_encoded(key).frames
        assert np.array_equal(here.payload, there.payload)
        assert replace(here, payload=there.payload) == there
    assert_same_clips(config.cache, target)


def test_an_export_that_is_killed_is_taken_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = CacheConfig(dir=str(tmp_path / "cache"), shard_bytes=500_000)
    write(cache, [stored_clip(n) for n in range(120)])
    config = PreprocessConfig(cache=cache, export=ExportConfig(dir=str(tmp_path / "target")))
    target = replace(cache, dir=str(tmp_path / "target"), format=CacheFormat.pt)
    server = multiprocessing.get_context("forkserver")
    process = server.Process(target=maintenance.export, args=(config,))
    process.start()
    while process.is_alive() and len(open_cache(target).paths()) < 10:
        time.sleep(0.001)
    process.kill()
    process.join()
    num_there = len(open_cache(target).keys())
    assert 10 <= num_there < 120
    assert problems(target) == []

    maintenance.export(config)
    assert f"{120 - num_there} clips" in capsys.readouterr().out
    assert_same_clips(cache, target)
    assert not content(tmp_path / "target/runs")
    maintenance.export(config)
    assert "0 clips" in (said := capsys.readouterr().out)
    assert "120 were there" in said


def test_damaged_clips_are_left_out_and_counted(tmp_path: Path) -> None:
    cache = CacheConfig(dir=str(tmp_path / "cache"))
    clips = [stored_clip(n) for n in range(3)]
    write(cache, clips)
    (shard,) = open_cache(cache).paths()
    data = bytearray(shard.read_bytes())
    data[data.index(clips[1].clip.frames.tobytes())] ^= 1
    shard.write_bytes(data)
    config = PreprocessConfig(
        cache=cache, export=ExportConfig(dir=str(tmp_path / "target"), codec=Codec.zstd)
    )
    with pytest.raises(UserError, match=r"1 of 3 clips in \S+ are damaged and were left out"):
        maintenance.export(config)
    target = replace(cache, dir=str(tmp_path / "target"), format=CacheFormat.pt)
    assert keys_in(target) == {clips[0].clip.key, clips[2].clip.key}


def test_an_export_into_itself_is_refused(tmp_path: Path) -> None:
    cache = CacheConfig(dir=str(tmp_path / "cache"), format=CacheFormat.pt)
    write(cache, [stored_clip(0)])
    config = PreprocessConfig(cache=cache, export=ExportConfig(codec=Codec.zstd))
    with pytest.raises(UserError, match=r"give another export\.dir or export\.format"):
        maintenance.export(config)


def test_an_exported_cache_can_say_what_it_was_filled_with(
    config: PreprocessConfig, tmp_path: Path
) -> None:
    cache_data(config)
    target = exported(config, dir=str(tmp_path / "copy"))
    ((samples, store),) = open_parts(replace(config, budget=SMALLER))
    asked = [store.settings(media) for sample in samples for media in sample.media]
    said = explain_missing(open_cache(target), Path(target.dir), asked)
    assert said == "it holds the same media with budget.max_frames=8 (this run: 4)"
