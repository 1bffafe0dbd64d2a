"""The clip store: the same clips from the cache and on the fly, and who decodes when."""

import os
import pickle
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import CacheConfig, CacheMode, Codec, DecodeConfig, Decoder
from easyvideor1.preprocess.errors import DamagedCacheError, DecodeError, MissingClipError
from easyvideor1.preprocess.quarantine import Failure, Quarantine
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore, LoadCounts
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.records import ProblemType, Sample
from tests.media import real_clip, video, write_numbered
from tests.stored_clips import put_in_cache

BUDGETS = Budgets(
    video=FrameBudget(max_frames=4, max_pixels=40_000),
    validation_video=FrameBudget(max_frames=6, max_pixels=40_000),
)


def sample_of(*media) -> Sample:
    return Sample(
        id="s1", problem="?", answer="A", problem_type=ProblemType.open_ended, media=media
    )


SAMPLE = sample_of(video(real_clip("bikes.mp4")), video(real_clip("carphone_pristine.mp4"), 1.0))


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    return tmp_path / "counts"


DECODE = DecodeConfig(decoder=Decoder.pyav, workers=2)


@pytest.fixture
def store(cache_config: CacheConfig, rules: FamilyRules) -> Generator[ClipStore]:
    """Prefers the cache, which is the default."""
    store = ClipStore(cache_config, BUDGETS, rules, DECODE)
    yield store
    store.close()


@pytest.fixture(scope="module")
def live(rules: FamilyRules) -> Generator[ClipStore]:
    """Shared, because its decoder processes take a while to start."""
    store = ClipStore(CacheConfig(dir="/absent", mode=CacheMode.live), BUDGETS, rules, DECODE)
    yield store
    store.close()


def like(store: ClipStore, budgets: Budgets | None = None, **cache: Any) -> ClipStore:
    """The same store with other settings of the cache, or other budgets."""
    config = replace(store.cache_config, **cache)
    return ClipStore(config, budgets or store.budgets, store.rules, store.decode_config)


def equal(one: list[Clip], other: list[Clip]) -> bool:
    return all(
        np.array_equal(a.frames, b.frames) and a.metadata == b.metadata and a.key == b.key
        for a, b in zip(one, other, strict=True)
    )


def test_clips_are_equal_from_the_cache_and_decoded_when_asked_for(
    store: ClipStore, live: ClipStore
) -> None:
    missed = store.load(SAMPLE)
    put_in_cache(store, SAMPLE)
    cached = store.load(SAMPLE)
    assert equal(cached, missed)
    assert equal(cached, live.load(SAMPLE))
    assert [clip.key for clip in cached] == [store.key(media) for media in SAMPLE.media]


def test_hits_and_misses_are_counted_and_misses_are_told(
    store: ClipStore, counts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert store.hit_rate is None
    store.load(SAMPLE)
    assert (store.hits, store.misses, store.hit_rate) == (0, 2, 0.0)
    put_in_cache(store, SAMPLE)
    before = decode_counter.total(counts)
    store.load(SAMPLE)
    store.load(SAMPLE)
    assert (store.hits, store.misses, store.hit_rate) == (4, 2, 4 / 6)
    assert decode_counter.total(counts) == before, "a hit decodes nothing"
    assert store.counts - LoadCounts(hits=3, misses=2) == LoadCounts(hits=1)
    told = [record.message for record in caplog.records if "not in the cache" in record.message]
    assert len(told) == 1, "the first miss is told, the second is counted"
    assert told[0].startswith("1 of 1 clips") and real_clip("bikes.mp4") in told[0]


def test_live_decodes_every_time_and_does_not_touch_the_cache(
    cache_config: CacheConfig, store: ClipStore, counts: Path
) -> None:
    store = like(store, mode=CacheMode.live)
    store.load(SAMPLE)
    store.load(SAMPLE)
    assert decode_counter.total(counts) == 4
    assert (store.hits, store.misses) == (0, 4)
    assert not Path(cache_config.dir).exists()
    store.close()


def test_a_miss_is_decoded_in_a_process_that_a_deadline_can_end(
    store: ClipStore, counts: Path
) -> None:
    store.load(SAMPLE)
    processes = {path.stem.rpartition("-")[2] for path in counts.glob("*.count")}
    assert processes and str(os.getpid()) not in processes
    hurried = replace(DECODE, deadline_s=0.001)
    second = ClipStore(store.cache_config, store.budgets, store.rules, hurried)
    with pytest.raises(DecodeError, match=r"took longer than decode\.deadline_s=0\.001"):
        second.load(SAMPLE)
    second.close()


def test_many_threads_share_a_store_and_may_end_before_it(live: ClipStore) -> None:
    expected = live.load(SAMPLE)
    for _ in range(2):  # the threads of the first pool are gone when the second one asks
        with ThreadPoolExecutor(6) as pool:
            loaded = list(pool.map(live.load, [SAMPLE] * 6))
        assert all(equal(clips, expected) for clips in loaded)


def test_require_refuses_a_missing_clip_and_says_what_differs(
    store: ClipStore, counts: Path
) -> None:
    strict = like(store, mode=CacheMode.require)
    with pytest.raises(MissingClipError) as caught:
        strict.load(SAMPLE)
    text = str(caught.value)
    assert text.startswith(f"sample s1: the frames of {real_clip('bikes.mp4')} are not in the ")
    assert f"cache {store.cache_config.dir}: no run has filled it" in text
    assert "Run evr-preprocess with the same model, data, budget" in text
    assert f"cache.dir={store.cache_config.dir}" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    assert decode_counter.total(counts) == 0

    put_in_cache(store, SAMPLE)
    assert equal(strict.load(SAMPLE), store.load(SAMPLE))
    larger = replace(BUDGETS, video=replace(BUDGETS.video, max_pixels=65_536))
    with pytest.raises(MissingClipError, match="it holds the same media with ") as caught:
        like(strict, larger).load(SAMPLE)
    assert "with budget.max_pixels=40000 (this run: 65536). Run" in str(caught.value)


def change_a_pixel(store: ClipStore, clip: Clip) -> None:
    """In the file that holds the clip raw, where nothing but a checksum tells."""
    start = clip.frames.tobytes()[:512]
    for path in store.cache.paths():
        place = path.read_bytes().find(start)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place + 100)
                file.write(bytes([start[100] ^ 0xFF]))
            return
    raise AssertionError("no file holds the clip")


def test_a_damaged_clip_is_decoded_anew_or_refused_by_name(
    store: ClipStore, live: ClipStore, caplog: pytest.LogCaptureFixture
) -> None:
    clips = live.load(SAMPLE)
    put_in_cache(store, SAMPLE)
    change_a_pixel(store, clips[1])
    assert not equal(like(store).load(SAMPLE), clips)  # unless it is looked for

    checking = like(store, check_reads=True)
    assert equal(checking.load(SAMPLE), clips)
    assert checking.counts == LoadCounts(hits=1, misses=1)
    assert "sample s1 is decoded anew" in caplog.text and "checksum" in caplog.text
    checking.close()

    strict = like(store, check_reads=True, mode=CacheMode.require)
    with pytest.raises(DamagedCacheError, match=r"^sample s1: .*the frames differ from their"):
        strict.load(SAMPLE)


def test_damaged_metadata_are_no_metadata(store: ClipStore) -> None:
    put_in_cache(store, SAMPLE)
    for path in store.cache.paths():
        data = path.read_bytes()
        with path.open("r+b") as file:
            file.seek(data.index(b"decoder_version"))
            file.write(b"decoder_vession")
    strict = like(store, mode=CacheMode.require)
    with pytest.raises(DamagedCacheError, match=r"^sample s1: clip \d of .* 'decoder_vession'"):
        strict.load(SAMPLE)


def test_a_file_that_lost_its_end_is_passed_over_or_refused_by_name(
    store: ClipStore, live: ClipStore
) -> None:
    put_in_cache(store, SAMPLE)
    for path in store.cache.paths():
        os.truncate(path, path.stat().st_size // 3)
    torn = like(store)
    assert [shape.shape for shape in torn.shapes(SAMPLE)] == [
        shape.shape for shape in live.shapes(SAMPLE)
    ]
    assert equal(torn.load(SAMPLE), live.load(SAMPLE))
    torn.close()
    with pytest.raises((DamagedCacheError, MissingClipError), match="s1"):
        like(store, mode=CacheMode.require).load(SAMPLE)


def test_a_medium_in_quarantine_is_not_tried_again(store: ClipStore, counts: Path) -> None:
    media = SAMPLE.media[0]
    known = Failure(
        path=media.path, reason="no video stream", sample_ids=("s1",), key=store.key(media)
    )
    Quarantine(store.cache_config).add([known])
    for mode in (CacheMode.prefer, CacheMode.require):
        with pytest.raises(DecodeError, match=r"bikes\.mp4: no video stream"):
            like(store, mode=mode).load(SAMPLE)
    assert decode_counter.total(counts) == 0


def test_missing_names_the_samples_that_are_not_wholly_cached(store: ClipStore) -> None:
    assert store.missing([SAMPLE, sample_of()]) == [SAMPLE]
    put_in_cache(store, sample_of(SAMPLE.media[0]))
    assert store.missing([SAMPLE]) == [SAMPLE]
    put_in_cache(store, SAMPLE)
    assert store.missing([SAMPLE]) == []


def test_a_miss_under_a_lossy_codec_gives_what_the_cache_would_give(store: ClipStore) -> None:
    lossy = like(store, codec=Codec.jpeg, jpeg_quality=50)
    missed = lossy.load(SAMPLE)
    put_in_cache(lossy, SAMPLE)
    assert equal(lossy.load(SAMPLE), missed)
    assert (lossy.hits, lossy.misses) == (2, 2)
    exact = store.load(SAMPLE)
    assert not np.array_equal(missed[0].frames, exact[0].frames)
    assert missed[0].key != exact[0].key
    # Live frames go through no codec, and their key says so.
    assert like(lossy, mode=CacheMode.live).key(SAMPLE.media[0]) == exact[0].key
    lossy.close()


def test_a_missing_file_is_named_in_every_mode(store: ClipStore) -> None:
    for mode in CacheMode:
        with pytest.raises(DecodeError, match=r"absent\.mp4: No such file"):
            like(store, mode=mode).load(sample_of(video("/absent.mp4")))


def test_validation_has_its_own_budget(live: ClipStore) -> None:
    validation = ClipStore(live.cache_config, live.budgets, live.rules, DECODE, validation=True)
    assert [len(clip.frames) for clip in live.load(SAMPLE)] == [4, 4]
    assert [len(clip.frames) for clip in validation.load(SAMPLE)] == [6, 6]
    validation.close()


def test_a_text_sample_has_no_clips(store: ClipStore) -> None:
    assert store.load(sample_of()) == []
    assert store.hit_rate is None


def test_a_store_travels_with_its_settings_and_without_its_counts(store: ClipStore) -> None:
    put_in_cache(store, SAMPLE)
    store.load(SAMPLE)
    there = pickle.loads(pickle.dumps(store))
    assert there.hits == 0
    assert equal(there.load(SAMPLE), store.load(SAMPLE))


def test_shapes_are_told_by_headers_and_by_the_cache_and_nothing_is_decoded(
    store: ClipStore, counts: Path
) -> None:
    announced = store.shapes(SAMPLE)
    assert decode_counter.total(counts) == 0
    put_in_cache(store, SAMPLE)
    before = decode_counter.total(counts)
    stored = store.shapes(SAMPLE)
    assert decode_counter.total(counts) == before and store.hit_rate is None
    clips = store.load(SAMPLE)
    for shapes in (announced, stored, like(store, mode=CacheMode.live).shapes(SAMPLE)):
        assert [shape.kind for shape in shapes] == [clip.kind for clip in clips]
        assert [shape.shape for shape in shapes] == [clip.shape for clip in clips]
        for shape, clip in zip(shapes, clips, strict=True):
            assert shape.timestamps_s == pytest.approx(clip.timestamps_s, abs=1e-3)
            assert shape.sample_fps == pytest.approx(clip.sample_fps, rel=1e-3)


def test_the_cache_knows_better_than_a_header(store: ClipStore, tmp_path: Path) -> None:
    short = cut_off(tmp_path / "short.avi", count=60, keep=0.3)
    sample = sample_of(video(short))
    (announced,) = store.shapes(sample)
    put_in_cache(store, sample)
    (stored,) = store.shapes(sample)
    (clip,) = store.load(sample)
    assert stored.timestamps_s == clip.timestamps_s
    assert announced.timestamps_s[-1] > stored.timestamps_s[-1]
    assert store.announced(sample) == [announced]


def test_shapes_are_refused_as_clips_are(store: ClipStore, tmp_path: Path) -> None:
    with pytest.raises(MissingClipError, match="no run has filled it"):
        like(store, mode=CacheMode.require).shapes(SAMPLE)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 1000)
    with pytest.raises(DecodeError, match=r"broken\.mp4"):
        store.shapes(sample_of(video(broken)))
    with pytest.raises(DecodeError, match="holds no frame"):
        store.shapes(sample_of(video(real_clip("bikes.mp4"), 500.0)))


def cut_off(path: Path, *, count: int, keep: float) -> Path:
    """A video whose header announces `count` frames and which ends before."""
    write_numbered(path, "-c:v", "mjpeg", "-q:v", "5", count=count)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    return path
