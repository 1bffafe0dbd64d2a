"""The questions of a conformance run: random clips and pictures, and altered copies of one clip.

Soft random patterns that change from frame to frame: they survive H.264, and no frame, order or
clip can pass for another.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from easyvideor1.preprocess.toybox_clips import write_clip
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample

SIZE = 128
"""Height and width of all media, in pixels; budgets change it to what the model's patches fit."""
NUM_FRAMES = 16
CASES = ("text", "image", "video", "two videos", "image and video")
ALTERED = ("reversed", "blank", "other")
"""What is done to the clip of `video`; each must change what the model says."""
ALTERED_CASE = "video"


def write_samples(folder: Path) -> dict[str, Sample]:
    """Write the media to `folder`; one sample per case and per altered copy, by name."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    first, second = (patterns(seed, NUM_FRAMES) for seed in (1, 2))
    clips = {
        "first": first,
        "second": second,
        "reversed": first[::-1],
        "blank": np.full_like(first, 127),
        "other": patterns(3, NUM_FRAMES),
    }
    for name, frames in clips.items():
        write_clip(folder / f"{name}.mp4", frames)
    Image.fromarray(patterns(4, 1)[0]).save(folder / "picture.png")
    video = Media(kind=MediaKind.video, path=str(folder / "first.mp4"))
    other = Media(kind=MediaKind.video, path=str(folder / "second.mp4"))
    image = Media(kind=MediaKind.image, path=str(folder / "picture.png"))
    media = {
        "text": (),
        "image": (image,),
        "video": (video,),
        "two videos": (video, other),
        "image and video": (image, video),
    }
    samples = {name: question(name, media[name]) for name in CASES}
    for name in ALTERED:
        altered = Media(kind=MediaKind.video, path=str(folder / f"{name}.mp4"))
        samples[name] = replace(samples[ALTERED_CASE], id=name, media=(altered,))
    return samples


def question(name: str, media: tuple[Media, ...]) -> Sample:
    """The same words whatever the media."""
    return Sample(
        id=name,
        problem="Which colour is brightest at the end?",
        answer="A",
        problem_type=ProblemType.multiple_choice,
        options=("red", "green", "blue"),
        media=media,
    )


def patterns(seed: int, num_frames: int) -> np.ndarray:
    """uint8 [T, SIZE, SIZE, 3]: an 8 x 8 grid of colours per frame, enlarged smoothly."""
    from PIL import Image

    grids = np.random.default_rng(seed).integers(0, 256, (num_frames, 8, 8, 3), dtype=np.uint8)
    large = (Image.fromarray(grid).resize((SIZE, SIZE), Image.Resampling.BICUBIC) for grid in grids)
    return np.stack([np.asarray(image) for image in large])
