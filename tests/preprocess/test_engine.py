"""The engine: every clip decoded once, failures set aside, nothing done twice."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from easyvideor1.preprocess import decode_counter, engine
from easyvideor1.preprocess.cache import open_cache, verify
from easyvideor1.preprocess.config import CacheConfig, CacheMode, DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.engine import cache_all, cache_samples, ensure_cached, needed_keys
from easyvideor1.preprocess.errors import MissingClipsError
from easyvideor1.preprocess.quarantine import quarantine_path
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema import jsonl
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Media, ProblemType, Sample
from tests.media import image, real_clip, video, write_video

pytestmark = pytest.mark.usefixtures("our_ray")

BUDGETS = Budgets(
    video=FrameBudget(max_frames=4, max_pixels=40_000),
    validation_video=FrameBudget(max_frames=6, max_pixels=40_000),
)


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


def in_mode(store: ClipStore, mode: CacheMode, budgets: Budgets = BUDGETS) -> ClipStore:
    config = replace(store.cache_config, mode=mode)
    return ClipStore(config, budgets, store.rules, store.decode_config)


def test_each_mode_does_what_it_says_before_data_are_used(
    store: ClipStore, counts: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video" * 1000)
    clips = [video(write_video(tmp_path / f"{i}.mp4", seed=i)) for i in range(5)]
    samples = samples_of(*clips, video(broken), video("/absent.mp4"))
    strict = in_mode(store, CacheMode.require)

    assert ensure_cached([(samples, in_mode(store, CacheMode.live))], progress=False) is None
    with pytest.raises(MissingClipsError) as caught:
        ensure_cached([(samples, strict)], progress=False)
    text = str(caught.value)
    folder = store.cache_config.dir
    assert text.startswith(f"6 clips of 6 samples are not in the cache {folder}, among them ")
    assert f"{clips[0].path}, {clips[1].path}, {clips[2].path} of sample s0: " in text
    assert "no run has filled it. Run evr-preprocess" in text
    assert decode_counter.total(counts) == 0 and not Path(folder).exists()

    report = ensure_cached([(samples, store)], progress=False)
    assert report is not None and (report.decoded, report.failed) == (5, 2)
    assert decode_counter.total(counts) == 6
    # What cannot be decoded is known by now, so nothing is missing.
    report = ensure_cached([(samples, strict)], progress=False)
    assert report is not None
    assert (report.decoded, report.reused, report.failed) == (0, 5, 2)
    assert report.failed_sample_ids == {"s5", "s6"}

    smaller = replace(BUDGETS, video=replace(BUDGETS.video, max_pixels=9_216, max_frames=5))
    with pytest.raises(MissingClipsError) as caught:
        ensure_cached([(samples, in_mode(store, CacheMode.require, smaller))], progress=False)
    assert (
        "it holds the same media with budget.max_frames=4 (this run: 5), "
        "budget.max_pixels=40000 (this run: 9216). Run"
    ) in str(caught.value)
    assert decode_counter.total(counts) == 6

    others = samples_of(video(write_video(tmp_path / "other.mp4", seed=9)))
    with pytest.raises(MissingClipsError, match="with these very settings, from other media"):
        ensure_cached([(others, strict)], progress=False)


def test_needed_keys_are_those_of_all_media_that_can_be_read(
    store: ClipStore, counts: Path, tmp_path: Path
) -> None:
    clip = video(write_video(tmp_path / "clip.mp4"))
    span = replace(clip, start_s=0.5)
    samples = samples_of(clip, clip, span, video("/absent.mp4"))
    validation = with_validation(store)
    keys = needed_keys([(samples, store), (samples[:1], validation)], progress=False)
    assert keys == {store.key(clip), store.key(span), validation.key(clip)}
    assert decode_counter.total(counts) == 0


def test_damaged_sources_that_give_frames_are_counted(store: ClipStore, tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.ts", num_frames=48)
    torn = tmp_path / "torn.ts"
    content = Path(whole).read_bytes()
    torn.write_bytes(content[: 2 * len(content) // 3])
    report = cache_samples(samples_of(video(whole), video(torn)), store=store, progress=False)
    assert (report.decoded, report.repaired, report.failed) == (2, 1, 0)
    assert "0 failed, 1 from unusual or damaged sources in" in str(report)
    assert store.cache.get(store.key(video(torn))).metadata.repairs


def test_a_run_notes_its_settings_and_leaves_no_trace_of_itself(
    store: ClipStore, tmp_path: Path
) -> None:
    clips = [video(write_video(tmp_path / f"{i}.mp4", seed=i)) for i in range(3)]
    cache_samples(samples_of(*clips), store=store, progress=False)
    folder = Path(store.cache_config.dir)
    (recorded,) = (folder / "settings").iterdir()
    settings = json.loads(recorded.read_text())
    assert settings["budget"] == BUDGETS.video.as_dict()
    assert settings["rules"] == store.rules.as_dict()
    assert not settings.keys() & {"content", "span_s", "frames_fps"}
    assert not list((folder / "runs").iterdir()) and not list((folder / "claims").iterdir())


FULL_DISK = """
mount -t tmpfs -o size=8m tmpfs {cache} || exit 99
{python} -m easyvideor1.preprocess.cli data=files data.train=[{data}] cache={format} \
    cache.dir={cache} cache.shard_bytes=2500000 decode.workers=2 decode.decoder=pyav \
    budget.video.fps=12 budget.video.max_pixels=40000 model.path={model} model.build=null
echo "ended with $?"
{python} -m easyvideor1.preprocess.cli job=verify cache={format} cache.dir={cache}
find {cache}/runs {cache}/claims -mindepth 1
"""


def can_mount() -> bool:
    try:
        command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("cache_format", ["arrow", "pt"])
def test_a_full_disk_ends_the_run_with_what_there_is_and_loses_nothing_sealed(
    cache_format: str, tiny_model_path: str, tmp_path: Path
) -> None:
    if not can_mount():
        pytest.skip("no small disk can be mounted here (unshare --map-root-user --mount)")
    cache, data = tmp_path / "cache", tmp_path / "train.jsonl"
    cache.mkdir()
    clips = [video(write_video(tmp_path / f"{i}.mp4", seed=i)) for i in range(16)]
    write_samples(data, samples_of(*clips))
    script = FULL_DISK.format(
        cache=cache, python=sys.executable, data=data, format=cache_format, model=tiny_model_path
    )
    # A disk of its own for this process tree: 16 clips of 24 frames are 14 MB.
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert "ended with 2\n" in done.stdout, done.stderr
    paragraph = [line for line in done.stderr.splitlines() if "no room" in line]
    assert len(paragraph) == 1 and paragraph[0].startswith("evr-preprocess: no room for frames in ")
    found = re.search(r"this run added (\d+) clips with 0\.(\d+) GB", paragraph[0])
    assert found and int(found[1]) >= 2 and int(found[2]) >= 1
    for way_out in ("job=plan", "cache.codec=zstd", "jpeg", "h264", "cache.dir"):
        assert way_out in paragraph[0]
    assert "Traceback" not in done.stderr
    *_, intact = done.stdout.strip().splitlines()
    verified = re.fullmatch(rf"(\d+) clips in {cache} are intact", intact)
    assert verified and int(verified[1]) >= int(found[1]), done.stdout
