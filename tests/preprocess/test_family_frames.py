"""Frames of real files, pixel for pixel those of each family's processor and of qwen-vl-utils.

The libraries are given the path and decode, sample and resize by themselves, with torchcodec.
"""

import itertools
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from qwen_vl_utils.vision_process import fetch_image
from transformers import Qwen2VLImageProcessor

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import CacheConfig, CacheFormat, Codec, DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.keys import clip_settings, key_of
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget
from tests.media import REAL_CLIPS, image, moving_colours, real_clip, video, write_video
from tests.qwen_processors import (
    FAMILIES,
    QWEN2,
    QWEN3,
    fetch_video,
    torchcodec_reader,
    video_element,
    video_processor,
)
from tests.stored_clips import drafts_of

pytestmark = pytest.mark.usefixtures("torchcodec")

TORCHCODEC = DecodeConfig(decoder=Decoder.torchcodec)
EVERY_FAMILY = pytest.mark.parametrize("rules", FAMILIES.values(), ids=FAMILIES.keys())

BUDGETS = {
    "two a second": FrameBudget(fps=2.0, max_pixels=65_536),
    "dense": FrameBudget(fps=100.0, max_frames=16, max_pixels=30_000),
    "six": FrameBudget(min_frames=6, max_frames=6, max_pixels=262_144),
    "seven": FrameBudget(min_frames=7, max_frames=7, max_pixels=50_000),
    "one in three seconds": FrameBudget(fps=0.3, min_frames=2, max_pixels=786_432),
    "enlarged": FrameBudget(fps=1.0, max_frames=8, min_pixels=150_000, max_pixels=200_000),
    "total": FrameBudget(fps=3.0, max_frames=20, max_pixels=786_432, total_pixels=700_000),
    "toy": FrameBudget(min_frames=4, max_frames=4, min_pixels=4_096, max_pixels=4_096),
}

GENERATED: dict[str, dict[str, Any]] = {
    "portrait, 29.97 fps": {"num_frames": 75, "height": 160, "width": 90, "fps": 30000 / 1001},
    "60 fps": {
        "num_frames": 90,
        "height": 97,
        "width": 131,
        "fps": 60.0,
        "pixel_format": "yuv444p",
    },
    "panorama": {"num_frames": 12, "height": 64, "width": 1_600, "fps": 5.0},
    "tower": {"num_frames": 12, "height": 640, "width": 32, "fps": 5.0},
    "tiny": {"num_frames": 40, "height": 16, "width": 16},
    "two frames": {"num_frames": 2},
    "five frames, 23.976 fps": {"num_frames": 5, "fps": 24000 / 1001},
}

CASES = [
    ("bigbuckbunny.mp4", "total"),
    *(("bikes.mp4", budget) for budget in ("dense", "six", "one in three seconds", "toy")),
    *(("carphone_pristine.mp4", budget) for budget in ("two a second", "seven", "enlarged")),
    *(("carphone_distorted.mp4", budget) for budget in ("dense", "six", "seven", "total")),
    *itertools.product(GENERATED, ("two a second", "dense", "enlarged", "total")),
]
"""40 pairs of a source and a budget."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Generator[None]:
    """Threads of small resizes that wait for each other take longer than one, on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("generated")
    made = {name: write_video(folder / f"{name}.mp4", **GENERATED[name]) for name in GENERATED}
    return {name: real_clip(name) for name in REAL_CLIPS} | made


def by_the_processor(
    path: str, budget: FrameBudget, rules: FamilyRules, num_frames: int
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Patches, grid and metadata that the family's processor makes of a file."""
    answer = video_processor(rules, budget, num_frames)(
        [path],
        do_sample_frames=True,
        do_rescale=False,
        do_normalize=False,
        return_metadata=True,
        return_tensors="pt",
    )
    return answer["pixel_values_videos"], answer["video_grid_thw"], answer["video_metadata"][0]


def patches_of(clip: Clip, rules: FamilyRules) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of frames that are resized already."""
    answer = video_processor(rules, FrameBudget())(
        [torch.tensor(clip.frames)],
        do_sample_frames=False,
        do_resize=False,
        do_rescale=False,
        do_normalize=False,
        return_tensors="pt",
    )
    return answer["pixel_values_videos"], answer["video_grid_thw"]


@EVERY_FAMILY
@pytest.mark.parametrize(("source", "budget_name"), CASES)
def test_frames_are_those_of_the_familys_processor(
    source: str, budget_name: str, rules: FamilyRules, paths: dict[str, str]
) -> None:
    budget = BUDGETS[budget_name]
    if rules is QWEN2:
        budget = replace(budget, total_pixels=None)  # which its processor does not know
    clip = decode(video(paths[source]), budget, rules, TORCHCODEC)
    assert_from_the_processor(clip, paths[source], budget, rules)


def assert_from_the_processor(
    clip: Clip, path: str, budget: FrameBudget, rules: FamilyRules
) -> None:
    """Indices, times, size and pixels are those that the family's processor comes to."""
    patches, grid, metadata = by_the_processor(path, budget, rules, len(clip.frames))
    indices = metadata.frames_indices.tolist()
    assert list(clip.metadata.frame_indices) == indices
    assert clip.metadata.timestamps_s == pytest.approx(
        [index / metadata.fps for index in indices], rel=1e-12
    )
    our_patches, our_grid = patches_of(clip, rules)
    assert torch.equal(our_grid, grid)
    assert torch.equal(our_patches, patches)


def assert_from_qwen_vl_utils(clip: Clip, element: dict[str, Any], rules: FamilyRules) -> None:
    """Indices, times, rate, size and pixels are those that `fetch_video` comes to."""
    with torchcodec_reader(num_threads=1):
        frames, metadata, sample_fps = fetch_video(element, rules)
    indices = metadata["frames_indices"]
    assert list(clip.metadata.frame_indices) == indices
    assert clip.metadata.timestamps_s == pytest.approx(
        [index / metadata["fps"] for index in indices], rel=1e-12
    )
    assert clip.metadata.sample_fps == pytest.approx(sample_fps, rel=1e-12)
    assert frames.dtype is torch.float32
    assert np.array_equal(clip.frames, frames.numpy())


SPANS = {"whole": (None, None), "middle": (1.0, 3.3), "from": (2.5, None), "until": (None, 1.26)}
"""Start and end in seconds."""
UTILS_CASES = [
    *((source, budget, "whole") for source, budget in CASES),
    ("bigbuckbunny.mp4", "two a second", "until"),
    ("bikes.mp4", "two a second", "middle"),
    ("bikes.mp4", "dense", "from"),
    ("carphone_pristine.mp4", "dense", "until"),
]


@pytest.mark.parametrize("rules", [QWEN2, QWEN3], ids=["factor 28", "factor 32"])
@pytest.mark.parametrize(("source", "budget_name", "span"), UTILS_CASES)
def test_frames_are_those_of_qwen_vl_utils(
    source: str, budget_name: str, span: str, rules: FamilyRules, paths: dict[str, str]
) -> None:
    budget = replace(BUDGETS[budget_name], convention=Convention.qwen_vl_utils)
    start_s, end_s = SPANS[span]
    clip = decode(video(paths[source], start_s, end_s), budget, rules, TORCHCODEC)
    element = video_element(paths[source], budget, start_s, end_s)
    assert_from_qwen_vl_utils(clip, element, rules)


IMAGE_SIZES = [
    (8, 8),
    (1, 150),
    (27, 33),
    (64, 64),
    (211, 333),
    (333, 211),
    (96, 1_900),
    (1_900, 96),
    (480, 640),
    (600, 599),
    (720, 1_280),
]
"""Height and width."""

IMAGE_BUDGETS = {
    "small": FrameBudget(min_pixels=4_096, max_pixels=40_000),
    "as it is": FrameBudget(min_pixels=1, max_pixels=16_777_216),
    "enlarged": FrameBudget(min_pixels=300_000, max_pixels=400_000),
    "defaults": FrameBudget(min_pixels=4_096, max_pixels=1_048_576),
}
IMAGE_CASES = list(itertools.product(IMAGE_SIZES, IMAGE_BUDGETS))


def picture(size: tuple[int, int], folder: Path) -> Image.Image:
    """Smooth colours under noise: its edges overshoot in a bicubic filter."""
    rng = np.random.default_rng(size)
    pixels = moving_colours(1, *size)[0].astype(int) + rng.integers(-60, 60, (*size, 3))
    drawn = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    drawn.save(folder / "picture.png", compress_level=1)
    return drawn


@pytest.mark.parametrize("rules", [QWEN2, QWEN3], ids=["factor 28", "factor 32"])
@pytest.mark.parametrize(("size", "budget_name"), IMAGE_CASES, ids=str)
def test_images_are_those_of_the_image_processor(
    size: tuple[int, int], budget_name: str, rules: FamilyRules, tmp_path: Path
) -> None:
    budget = IMAGE_BUDGETS[budget_name]
    drawn = picture(size, tmp_path)
    processor = Qwen2VLImageProcessor(
        patch_size=rules.patch_size,
        min_pixels=budget.min_pixels,
        max_pixels=budget.max_pixels,
        do_rescale=False,
        do_normalize=False,
    )
    theirs = processor(drawn, return_tensors="pt")
    clip = decode(image(tmp_path / "picture.png"), budget, rules, TORCHCODEC)
    ours = processor(torch.tensor(clip.frames[0]), do_resize=False, return_tensors="pt")
    assert torch.equal(ours["image_grid_thw"], theirs["image_grid_thw"])
    assert torch.equal(ours["pixel_values"], theirs["pixel_values"])


@pytest.mark.parametrize("rules", [QWEN2, QWEN3], ids=["factor 28", "factor 32"])
@pytest.mark.parametrize(("size", "budget_name"), IMAGE_CASES, ids=str)
def test_images_are_those_of_fetch_image(
    size: tuple[int, int], budget_name: str, rules: FamilyRules, tmp_path: Path
) -> None:
    budget = replace(IMAGE_BUDGETS[budget_name], convention=Convention.qwen_vl_utils)
    element: dict[str, Any] = {
        "image": picture(size, tmp_path),
        "min_pixels": budget.min_pixels,
        "max_pixels": budget.max_pixels,
    }
    theirs = fetch_image(element, image_patch_size=rules.patch_size)
    clip = decode(image(tmp_path / "picture.png"), budget, rules, TORCHCODEC)
    assert np.array_equal(clip.frames[0].transpose(1, 2, 0), np.asarray(theirs))


CACHED = {
    "raw in arrow": CacheConfig(format=CacheFormat.arrow, codec=Codec.raw),
    "zstd in pt": CacheConfig(format=CacheFormat.pt, codec=Codec.zstd),
}


@pytest.mark.parametrize("config", CACHED.values(), ids=CACHED.keys())
@pytest.mark.parametrize("convention", Convention)
@EVERY_FAMILY
def test_cached_frames_are_those_decoded_on_the_fly_and_those_of_the_library(
    rules: FamilyRules, convention: Convention, config: CacheConfig, tmp_path: Path
) -> None:
    path = real_clip("carphone_distorted.mp4")
    media, budget = video(path), replace(BUDGETS["two a second"], convention=convention)
    config = replace(config, dir=str(tmp_path / "cache"))
    decoded = decode(media, budget, rules, TORCHCODEC)
    settings = clip_settings(media, budget, rules, TORCHCODEC, config)
    key = key_of(settings)
    with open_cache(config).writer(drafts_of(config.dir)) as writer:
        stored = StoredClip(clip=replace(decoded, key=key), settings=settings, source=path)
        writer.add(stored)
    cached = open_cache(config).get(key)
    assert np.array_equal(cached.frames, decoded.frames)
    assert cached.metadata == decoded.metadata
    if convention is Convention.qwen_vl_utils:
        assert_from_qwen_vl_utils(cached, video_element(path, budget), rules)
    else:
        assert_from_the_processor(cached, path, budget, rules)
