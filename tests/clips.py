"""Clips of random pixels and samples about them, for tests of what a model is fed."""

from dataclasses import replace
from typing import Any

import numpy as np

from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample


def _pixels(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    pixels.flags.writeable = False
    return pixels


def video(
    num_frames: int,
    *,
    height: int = 64,
    width: int = 96,
    fps: float = 29.97,
    first_frame: int = 0,
    seed: int = 0,
) -> Clip:
    """Every 15th frame of a 600-frame video, read-only as from the cache."""
    indices = tuple(first_frame + 15 * i for i in range(num_frames))
    return Clip(
        kind=MediaKind.video,
        frames=_pixels(seed, (num_frames, 3, height, width)),
        key=f"video-{num_frames}-{height}x{width}-{fps}-{first_frame}-{seed}",
        metadata=ClipMetadata(
            source_fps=fps,
            frame_indices=indices,
            timestamps_s=tuple(index / fps for index in indices),
            sample_fps=fps / 15,
            total_frames=600,
            duration_s=600 / fps,
            width=width,
            height=height,
            decoder="pyav",
            decoder_version="18",
        ),
    )


def image(*, height: int = 64, width: int = 64, seed: int = 0) -> Clip:
    return Clip(
        kind=MediaKind.image,
        frames=_pixels(seed, (1, 3, height, width)),
        key=f"image-{height}x{width}-{seed}",
        metadata=ClipMetadata(
            source_fps=1.0,
            frame_indices=(0,),
            timestamps_s=(0.0,),
            sample_fps=1.0,
            total_frames=1,
            duration_s=0.0,
            width=width,
            height=height,
            decoder="pillow",
            decoder_version="11",
        ),
    )


def sample_about(clips: list[Clip], problem: str = "Which colour?", **fields: Any) -> Sample:
    sample = Sample(
        id="sample-17",
        problem=problem,
        answer="A",
        problem_type=ProblemType.multiple_choice,
        options=("red", "blue"),
        media=tuple(Media(kind=clip.kind, path=f"{clip.key}.bin") for clip in clips),
    )
    return replace(sample, **fields)


CASES: dict[str, list[Clip]] = {
    "text": [],
    "image": [image(seed=1)],
    "video": [video(8, seed=2)],
    "two videos": [video(4, seed=3), video(6, height=64, width=64, fps=25.0, seed=4)],
    "image and video": [image(seed=5), video(4, seed=6)],
    "video and two images": [video(4, seed=7), image(seed=8), image(height=96, seed=9)],
    "odd number of frames": [video(5, seed=10)],
    "one frame": [video(1, seed=11)],
    "span from the tenth second": [video(4, first_frame=300, seed=12)],
}
