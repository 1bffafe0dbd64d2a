"""What all toybox clips share: colours, lengths, ground, encoding, and the shape of a question.

Called by `toybox` and `toybox_types`; imports no torch.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from easyvideor1.schema.records import Answer, Media, ProblemType, Sample, Trajectory

Frames = np.ndarray
"""uint8 [T, H, W, 3]"""

COLOURS = {
    "red": (210, 45, 45),
    "green": (50, 185, 70),
    "blue": (60, 90, 225),
    "yellow": (225, 205, 60),
}
COUNTS = (1, 2, 3, 4)
WORDS = {1: "One", 2: "Two", 3: "Three", 4: "Four"}
SOURCE_FPS = 8
SCENE_S = 2
EVENT_S = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question about a clip."""

    name: str
    problem_type: ProblemType
    problem: str
    answer: Answer
    reasoning: str = ""
    """What an offline trajectory says before its answer."""
    options: tuple[str, ...] = ()

    def sample(self, prefix: str, media: tuple[Media, ...], offline: bool = False) -> Sample:
        """The sample `<prefix>/<name>`, with an offline trajectory where `offline` says so."""
        answer = json.dumps(self.answer) if isinstance(self.answer, dict) else self.answer
        shown = {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else answer
        text = f"{self.reasoning} <answer>{shown}</answer>"
        return Sample(
            id=f"{prefix}/{self.name}",
            problem=self.problem,
            answer=self.answer,
            problem_type=self.problem_type,
            media=media,
            options=self.options,
            offline=(Trajectory(text=text, source="toybox"),) if offline else (),
            source="toybox",
            category=self.name,
        )


def balanced(rng: np.random.Generator, values: tuple, count: int) -> list:
    """`count` values in random order, each as often as any other, to within one."""
    repeated = [values[index % len(values)] for index in range(count)]
    return [repeated[index] for index in rng.permutation(count)]


def ground(rng: np.random.Generator, num_frames: int, size: int) -> Frames:
    """A dark grey of its own per clip, with a little grain that stays the same in all frames."""
    shade = rng.integers(20, 60)
    grain = rng.integers(0, 8, (size, size, 1))
    return np.broadcast_to(shade + grain, (num_frames, size, size, 3)).astype(np.uint8)


def write_clip(path: Path, frames: Frames, fps: int = SOURCE_FPS) -> None:
    """Encode [T, H, W, 3] uint8 as H.264; H and W must be even."""
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "12", "preset": "veryfast"}
        for array in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")))
        container.mux(stream.encode())
