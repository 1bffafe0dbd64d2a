"""Keys: equal exactly when the frames are equal."""

import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from easyvideor1.preprocess import keys
from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheMode,
    Codec,
    DecodeConfig,
    Decoder,
    Device,
    Fingerprint,
)
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.keys import clip_settings, content_fingerprint, key_of
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget, Snap
from easyvideor1.schema.records import Media, MediaKind
from tests.media import frame_list, image, real_clip, video

BUDGET = FrameBudget()
DECODE_FIELDS = {field.name for field in fields(DecodeConfig)}


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return Path(shutil.copyfile(real_clip("bikes.mp4"), tmp_path / "clip.mp4"))


def key(media: Media, rules: FamilyRules, budget: FrameBudget = BUDGET, **options: Any) -> str:
    """The key under defaults; `options` are fields of DecodeConfig or CacheConfig."""
    decode = {"decoder": Decoder.pyav} | {k: v for k, v in options.items() if k in DECODE_FIELDS}
    cache = {k: v for k, v in options.items() if k not in DECODE_FIELDS}
    settings = clip_settings(media, budget, rules, DecodeConfig(**decode), CacheConfig(**cache))
    return key_of(settings)


@pytest.mark.parametrize("fingerprint", Fingerprint)
def test_a_key_does_not_depend_on_name_or_time(
    clip: Path, rules: FamilyRules, fingerprint: Fingerprint
) -> None:
    before = key(video(clip), rules, fingerprint=fingerprint)
    copy = shutil.copyfile(clip, clip.with_name("a copy, später.mp4"))
    os.utime(clip, (1, 1))
    assert key(video(copy), rules, fingerprint=fingerprint) == before
    assert key(video(clip), rules, fingerprint=fingerprint) == before


def test_a_key_depends_on_everything_the_frames_depend_on(clip: Path, rules: FamilyRules) -> None:
    variants = [
        key(video(clip), rules),
        key(video(real_clip("bigbuckbunny.mp4")), rules),
        key(video(clip, 1.0), rules),
        key(video(clip, 1.0, 3.0), rules),
        key(video(clip, None, 3.0), rules),
        key(video(clip), rules, replace(BUDGET, fps=1.0)),
        key(video(clip), rules, replace(BUDGET, max_frames=64)),
        key(video(clip), rules, replace(BUDGET, max_pixels=65_536)),
        key(video(clip), rules, replace(BUDGET, total_pixels=10**6)),
        key(video(clip), replace(rules, patch_size=14)),
        key(video(clip), replace(rules, name="qwen2_vl")),
        key(video(clip), rules, replace(BUDGET, convention=Convention.qwen_vl_utils)),
        key(video(clip), rules, replace(BUDGET, snap=Snap.keyframe)),
        key(video(clip), rules, fingerprint=Fingerprint.full),
        key(video(clip), rules, codec=Codec.jpeg),
        key(video(clip), rules, codec=Codec.jpeg, jpeg_quality=80),
        key(video(clip), rules, codec=Codec.h264),
        key(video(clip), rules, codec=Codec.h264, h264_crf=23),
    ]
    assert len(set(variants)) == len(variants)


def test_a_codec_is_in_the_key_only_where_it_changes_frames(clip: Path, rules: FamilyRules) -> None:
    plain = key(video(clip), rules)
    assert key(video(clip), rules, codec=Codec.zstd) == plain
    assert key(video(clip), rules, jpeg_quality=80, h264_crf=30) == plain
    assert key(video(clip), rules, codec=Codec.jpeg, h264_crf=30) == key(
        video(clip), rules, codec=Codec.jpeg
    )
    # Frames that are decoded live never went through it.
    assert key(video(clip), rules, codec=Codec.jpeg, mode=CacheMode.live) == plain
    settings = clip_settings(
        video(clip), BUDGET, rules, DecodeConfig(), CacheConfig(codec=Codec.h264, h264_crf=20)
    )
    assert settings["codec"] == "h264:20"


def test_limits_and_workers_are_not_in_the_key(clip: Path, rules: FamilyRules) -> None:
    plain = key(video(clip), rules)
    assert key(video(clip), rules, workers=3, deadline_s=1.0, memory_gb=1.0) == plain
    assert key(video(clip), rules, dir="elsewhere", shard_bytes=1, mode=CacheMode.require) == plain


@pytest.mark.usefixtures("torchcodec")
def test_a_key_names_the_device_of_a_video_and_not_of_an_image(
    clip: Path, rules: FamilyRules, tmp_path: Path
) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "image.png")
    still = image(tmp_path / "image.png")
    for media, differs in ((video(clip), True), (still, False)):
        on_cpu = key(media, rules, decoder=Decoder.torchcodec)
        on_gpu = key(media, rules, decoder=Decoder.torchcodec, device=Device.cuda)
        assert (on_cpu != on_gpu) is differs


@pytest.mark.usefixtures("torchcodec")
def test_a_key_depends_on_the_decoder_that_runs(clip: Path, rules: FamilyRules) -> None:
    by_torchcodec = key(video(clip), rules, decoder=Decoder.torchcodec)
    assert by_torchcodec != key(video(clip), rules, decoder=Decoder.pyav)
    assert by_torchcodec == key(video(clip), rules, decoder=Decoder.auto)


@pytest.mark.parametrize("name", ["DECODE_VERSION", "SAMPLER_VERSION"])
def test_a_key_depends_on_our_own_versions(
    clip: Path, rules: FamilyRules, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(video(clip), rules)
    monkeypatch.setattr(keys, name, 99)
    assert key(video(clip), rules) != before


def test_an_image_depends_only_on_pixel_limits_and_convention(
    rules: FamilyRules, tmp_path: Path
) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "image.png")
    media = image(tmp_path / "image.png")
    assert key(media, rules) == key(media, rules, replace(BUDGET, fps=9.0, max_frames=9))
    variants = [
        key(media, rules),
        key(media, rules, replace(BUDGET, max_pixels=65_536)),
        key(media, rules, replace(BUDGET, min_pixels=65_536)),
        key(media, rules, replace(BUDGET, convention=Convention.qwen_vl_utils)),
    ]
    assert len(set(variants)) == len(variants)


def test_a_frame_list_depends_on_every_frame_and_its_rate(
    rules: FamilyRules, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        Image.new("RGB", (64, 64), (i, 0, 0)).save(path)
    variants = [
        key(frame_list(paths, 2.0), rules),
        key(frame_list(paths[::-1], 2.0), rules),
        key(frame_list(paths[:2], 2.0), rules),
        key(frame_list(paths, 3.0), rules),
    ]
    assert len(set(variants)) == len(variants)


@pytest.mark.parametrize("where", [0, 70_000, 5_000_000, 9_999_999])
def test_the_full_fingerprint_sees_every_byte(tmp_path: Path, where: int) -> None:
    path = tmp_path / "clip.bin"
    path.write_bytes(bytes(10_000_000))
    before = content_fingerprint(str(path), Fingerprint.full)
    with path.open("r+b") as file:
        file.seek(where)
        file.write(b"x")
    assert content_fingerprint(str(path), Fingerprint.full) != before


@pytest.mark.parametrize(
    ("where", "length"), [(0, 1), (65_535, 1), (9_999_999, 1), (3_000_000, 200_000)]
)
def test_the_fast_fingerprint_sees_both_ends_and_any_long_change(
    tmp_path: Path, where: int, length: int
) -> None:
    path = tmp_path / "clip.bin"
    path.write_bytes(bytes(10_000_000))
    before = content_fingerprint(str(path))
    with path.open("r+b") as file:
        file.seek(where)
        file.write(b"x" * length)
    assert content_fingerprint(str(path)) != before


def test_the_fast_fingerprint_reads_little_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = keys._fast_ranges(10**12)
    assert sum(length for _, length in ranges) < 400_000
    assert all(start >= 0 and start + length <= 10**12 for start, length in ranges)


def test_appended_bytes_change_the_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "clip.bin"
    path.write_bytes(b"abc")
    before = content_fingerprint(str(path))
    path.write_bytes(b"abc\0")
    assert content_fingerprint(str(path)) != before


def test_what_has_no_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    expected = {
        "absent.mp4": "No such file or directory",
        "empty.mp4": "the file is empty",
        "": "not a file",
    }
    for name, reason in expected.items():
        with pytest.raises(DecodeError, match=reason):
            content_fingerprint(str(tmp_path / name))


def test_media_kind_is_part_of_the_key(rules: FamilyRules, tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "image.gif")
    as_image = image(tmp_path / "image.gif")
    as_video = replace(as_image, kind=MediaKind.video)
    assert key(as_image, rules) != key(as_video, rules)
