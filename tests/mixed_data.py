"""A small data set with every kind of prompt: text, image, video, and both in one sample."""

from pathlib import Path

import numpy as np
from PIL import Image

from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample
from tests.media import write_video

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 210)}
SIDE = 64
"""Of images and frames, in pixels."""


def write_mixed(folder: Path, *, groups: int) -> Path:
    """`train.jsonl` with `groups` samples of each of the four kinds, in turn; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = [sample for index in range(groups) for sample in _four(folder, index)]
    write_samples(folder / "train.jsonl", samples)
    return folder / "train.jsonl"


def _four(folder: Path, index: int) -> list[Sample]:
    name = list(COLOURS)[index % len(COLOURS)]
    picture = Media(kind=MediaKind.image, path=_write_picture(folder, index, COLOURS[name]))
    path = write_video(
        folder / f"video_{index}.mp4", num_frames=24, height=SIDE, width=SIDE, seed=index
    )
    clip = Media(kind=MediaKind.video, path=Path(path).name)
    ask_colour = {
        "problem_type": ProblemType.multiple_choice,
        "options": tuple(COLOURS),
        "answer": "ABC"[list(COLOURS).index(name)],
    }
    return [
        Sample(
            id=f"text/{index}",
            problem=f"What is {index} + 2?",
            answer=index + 2,
            problem_type=ProblemType.numerical,
        ),
        Sample(
            id=f"image/{index}",
            problem="<image> Which colour is the picture?",
            media=(picture,),
            **ask_colour,
        ),
        Sample(
            id=f"video/{index}",
            problem="<video> Does the picture change?",
            answer=True,
            problem_type=ProblemType.boolean,
            media=(clip,),
        ),
        Sample(
            id=f"mixed/{index}",
            problem="<video> was first, <image> came then. Which colour is the picture?",
            media=(clip, picture),
            **ask_colour,
        ),
    ]


def _write_picture(folder: Path, index: int, colour: tuple[int, int, int]) -> str:
    pixels = np.broadcast_to(np.array(colour, np.uint8), (SIDE, SIDE, 3))
    Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"picture_{index}.png")
    return f"picture_{index}.png"
