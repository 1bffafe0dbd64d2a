"""The engine: every clip decoded once, failures set aside, nothing done twice."""

import shutil
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from easyvideor1.preprocess import decode_counter, engine
from easyvideor1.preprocess.cache import open_cache, verify
from easyvideor1.preprocess.config import CacheConfig, DecodeConfig, Decoder, RayConfig
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.engine import cache_all, cache_samples
from easyvideor1.preprocess.quarantine import quarantine_path
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema import jsonl
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.records import Media, ProblemType, Sample
from tests.media import image, real_clip, video, write_video

BUDGETS = Budgets(
    video=FrameBudget(max_frames=4, max_pixels=40_000),
    validation_video=FrameBudget(max_frames=6, max_pixels=40_000),
)


@pytest.fixture(scope="module", autouse=True)
def our_ray() -> Generator[None]:
    """One Ray for all tests of this file; the engine uses it because it is there."""
    with ray_session(RayConfig(), num_cpus=2):
        yield


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    return tmp_path / "counts"


@pytest.fixture
def store(cache_config: CacheConfig, rules: FamilyRules) -> ClipStore:
    return ClipStore(cache_config, BUDGETS, rules, DecodeConfig(decoder=Decoder.pyav))


def with_validation(store: ClipStore) -> ClipStore:
    return ClipStore(store.cache_config, store.budgets, store.rules, store.decode_config, True)


def samples_of(*media: Media) -> list[Sample]:
    return [
        Sample(
            id=f"s{i}", problem="?", answer="A", problem_type=ProblemType.open_ended, media=(one,)
        )
        for i, one in enumerate(media)
    ]


def test_a_run_decodes_every_clip_once_and_the_next_run_nothing(
    store: ClipStore, counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copyfile(real_clip("bikes.mp4"), tmp_path / "copy.mp4")
    still = tmp_path / "still.png"
    Image.new("RGB", (64, 64), "green").save(still)
    bikes = video(real_clip("bikes.mp4"))
    media = [bikes, bikes, video(copy), video(real_clip("bikes.mp4"), 1.0, 2.0), image(still)]
    text = Sample(id="text", problem="?", answer=1, problem_type=ProblemType.numerical)
    samples = [*samples_of(*media), text]
    parts = [(samples, store), (samples[:1], with_validation(store))]

    report = cache_all(parts, progress=False)
    assert (report.samples, report.decoded, report.reused, report.failed) == (7, 4, 0, 0)
    assert decode_counter.total(counts) == 4
    for one in media:
        cached = store.cache.get(store.key(one))
        here = decode(one, store.budget(one), store.rules, store.decode_config)
        assert np.array_equal(cached.frames, here.frames)
        assert cached.metadata == here.metadata
    assert all(not problem for _, problem in verify(open_cache(store.cache_config)))

    def no_ray(*_, **__):
        raise AssertionError("nothing to decode, yet Ray was asked for")

    before = decode_counter.total(counts)
    monkeypatch.setattr(engine, "ray_session", no_ray)
    again = cache_all(parts, progress=False)
    assert (again.decoded, again.reused, again.failed) == (0, 4, 0)
    assert decode_counter.total(counts) == before
    assert "0 decoded, 4 reused" in str(again)


def test_what_cannot_be_decoded_is_set_aside_with_its_reason(
    store: ClipStore, counts: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 1000)
    good = write_video(tmp_path / "good.mp4")
    samples = samples_of(video(broken), video(good), video(broken), video("/absent.mp4"))

    report = cache_samples(samples, store=store, progress=False)
    assert (report.decoded, report.failed) == (1, 2)
    assert report.failed_sample_ids == {"s0", "s2", "s3"}
    rows = {row["path"]: row for row in jsonl.read(quarantine_path(store.cache_config))}
    assert set(rows) == {str(broken), "/absent.mp4"}
    assert rows["/absent.mp4"]["reason"] == "No such file or directory"
    assert rows[str(broken)]["sample_ids"] == ["s0", "s2"]
    assert rows[str(broken)]["key"] == store.key(video(broken))

    again = cache_samples(samples, store=store, progress=False)
    assert (again.decoded, again.reused, again.failed) == (0, 1, 2)
    assert decode_counter.total(counts) == 2
    assert len(jsonl.read(quarantine_path(store.cache_config))) == 2

    write_video(broken, seed=1)
    mended = cache_samples(samples, store=store, progress=False)
    assert (mended.decoded, mended.reused, mended.failed) == (1, 1, 1)


def test_the_quarantine_is_tried_again_on_request(
    store: ClipStore, counts: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 1000)
    samples = samples_of(video(broken))
    retrying = replace(store.decode_config, retry_quarantined=True)
    second = ClipStore(store.cache_config, store.budgets, store.rules, retrying)
    cache_samples(samples, store=store, progress=False)
    assert cache_samples(samples, store=second, progress=False).failed == 1
    assert decode_counter.total(counts) == 2
