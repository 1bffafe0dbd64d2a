"""The clip store: the same clips from the cache and on the fly."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import CacheConfig, CacheMode, DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError, MissingClipError
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.records import ProblemType, Sample
from tests.media import real_clip, video
from tests.stored_clips import drafts_of

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


@pytest.fixture
def store(cache_config: CacheConfig, rules: FamilyRules) -> ClipStore:
    return ClipStore(cache_config, BUDGETS, rules, DecodeConfig(decoder=Decoder.pyav))


def live(store: ClipStore, validation: bool = False) -> ClipStore:
    config = replace(store.cache_config, mode=CacheMode.live)
    return ClipStore(config, store.budgets, store.rules, store.decode_config, validation)


def put_in_cache(store: ClipStore, sample: Sample) -> None:
    with open_cache(store.cache_config).writer(drafts_of(store.cache_config.dir)) as writer:
        for media in sample.media:
            clip = decode(media, store.budget(media), store.rules, store.decode_config)
            writer.add(
                StoredClip(
                    clip=replace(clip, key=store.key(media)),
                    settings=store.settings(media),
                    source=media.path,
                )
            )


def equal(one: list[Clip], other: list[Clip]) -> bool:
    return all(
        np.array_equal(a.frames, b.frames) and a.metadata == b.metadata and a.key == b.key
        for a, b in zip(one, other, strict=True)
    )


def test_cached_and_live_clips_are_equal(store: ClipStore) -> None:
    put_in_cache(store, SAMPLE)
    clips = store.load(SAMPLE)
    assert equal(clips, live(store).load(SAMPLE))
    assert [clip.key for clip in clips] == [store.key(media) for media in SAMPLE.media]


def test_live_decodes_every_time_and_cached_never(store: ClipStore, counts: Path) -> None:
    live(store).load(SAMPLE)
    live(store).load(SAMPLE)
    assert decode_counter.total(counts) == 4
    put_in_cache(store, SAMPLE)
    before = decode_counter.total(counts)
    store.load(SAMPLE)
    assert decode_counter.total(counts) == before


def test_live_does_not_touch_the_cache(store: ClipStore) -> None:
    live(store).load(SAMPLE)
    assert not Path(store.cache_config.dir).exists()


def test_a_missing_clip_names_the_sample_its_file_and_the_command(store: ClipStore) -> None:
    with pytest.raises(MissingClipError) as caught:
        store.load(SAMPLE)
    text = str(caught.value)
    assert text.startswith("sample s1: ")
    assert real_clip("bikes.mp4") in text
    assert "run evr-preprocess with the same model, data, budget" in text
    assert f"cache.dir={store.cache_config.dir}" in text
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    assert store.missing([SAMPLE, sample_of()]) == [SAMPLE]


def test_a_missing_file_is_named_in_both_modes(store: ClipStore) -> None:
    for any_store in (store, live(store)):
        with pytest.raises(DecodeError, match=r"absent\.mp4: No such file"):
            any_store.load(sample_of(video("/absent.mp4")))


def test_validation_has_its_own_budget(store: ClipStore) -> None:
    assert [len(clip.frames) for clip in live(store).load(SAMPLE)] == [4, 4]
    assert [len(clip.frames) for clip in live(store, validation=True).load(SAMPLE)] == [6, 6]


def test_a_text_sample_has_no_clips(store: ClipStore) -> None:
    assert store.load(sample_of()) == []


def test_a_store_travels_with_its_settings(store: ClipStore) -> None:
    put_in_cache(store, SAMPLE)
    store.load(SAMPLE)
    there = pickle.loads(pickle.dumps(store))
    assert equal(there.load(SAMPLE), store.load(SAMPLE))
