"""Toybox clips and questions for the problem types beyond the five that the demo trains on.

A square that walks (boxes by second, speed), a word on a sign (OCR), and squares at known places
(maths, code, drawing, page, preference). Gold answers follow from what is drawn. Called by
`toybox.build`, which writes them to `every_type.jsonl`; imports no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from easyvideor1.preprocess.toybox_clips import (
    COLOURS,
    COUNTS,
    EVENT_S,
    SCENE_S,
    SOURCE_FPS,
    WORDS,
    Frames,
    Question,
    balanced,
    ground,
)
from easyvideor1.schema.records import ProblemType

SPEEDS = (4, 6, 8)
"""Pixels per second of a walking square; each leaves it within the frame."""
SIGNS = ("STOP", "EXIT", "OPEN", "LEFT", "TAXI", "PARK")
LETTER_HEIGHT = 18
"""Of the text on a sign, in pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """One square that walks to the right, and is there from `start_s` to the end of `end_s`."""

    colour: str
    speed: int
    start_s: int
    end_s: int
    top: int
    side: int

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """[EVENT_S * SOURCE_FPS, size, size, 3]."""
        frames = ground(rng, EVENT_S * SOURCE_FPS, size)
        for index in range(self.start_s * SOURCE_FPS, (self.end_s + 1) * SOURCE_FPS):
            left, top, right, bottom = self.box(index / SOURCE_FPS)
            frames[index, top:bottom, left:right] = COLOURS[self.colour]
        return frames

    def box(self, second: float) -> list[int]:
        """[left, top, right, bottom] in pixels at a time."""
        left = round(self.speed * second)
        return [left, self.top, left + self.side, self.top + self.side]

    def questions(self) -> Iterator[Question]:
        """Where it is, when and where, along which way, how fast."""
        seconds = range(self.start_s, self.end_s + 1)
        boxes: dict[str, object] = {str(second): self.box(second) for second in seconds}
        yield Question(
            name="where",
            problem_type=ProblemType.spatial_grounding,
            problem=f"Where is the square at second {self.start_s}? Give its box in pixels.",
            answer=self.box(self.start_s),
        )
        yield Question(
            name="when_and_where",
            problem_type=ProblemType.spatial_temporal_grounding,
            problem="When is the square shown, and where is it at each full second, in pixels?",
            answer={"time": [self.start_s, self.end_s + 1], "boxes": boxes},
        )
        yield Question(
            name="track",
            problem_type=ProblemType.tracking,
            problem="Follow the square: give its box in pixels at each full second it is shown.",
            answer={"boxes": boxes},
        )
        yield Question(
            name="speed",
            problem_type=ProblemType.regression,
            problem="How many pixels does the square move per second?",
            answer=self.speed,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """A word in white letters."""

    word: str

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """[SCENE_S * SOURCE_FPS, size, size, 3]."""
        from PIL import Image, ImageDraw, ImageFont

        frames = ground(rng, SCENE_S * SOURCE_FPS, size)
        page = Image.new("L", (size, size))
        font = ImageFont.load_default(LETTER_HEIGHT)
        ImageDraw.Draw(page).text((size / 2, size / 2), self.word, 255, font, anchor="mm")
        ink = np.asarray(page, np.uint16)[None, :, :, None]
        return np.maximum(frames, ink).astype(np.uint8)

    def questions(self) -> Iterator[Question]:
        """What it says."""
        yield Question(
            name="read",
            problem_type=ProblemType.ocr,
            problem="What does the sign say?",
            answer=self.word,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Still:
    """Squares of one colour, each in the top left of a quarter; `places` number the quarters."""

    colour: str
    places: tuple[int, ...]
    size: int
    """Of a frame, in pixels."""

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """[SCENE_S * SOURCE_FPS, size, size, 3]."""
        frames = ground(rng, SCENE_S * SOURCE_FPS, size)
        for left, top, right, bottom in self.boxes():
            frames[:, top:bottom, left:right] = COLOURS[self.colour]
        return frames

    def boxes(self) -> list[list[int]]:
        """[left, top, right, bottom] of each square, in pixels."""
        half, side = self.size // 2, 3 * self.size // 8
        corners = [(half * (place % 2), half * (place // 2)) for place in self.places]
        return [[left, top, left + side, top + side] for left, top in corners]

    def questions(self) -> Iterator[Question]:
        """A formula, a function, a drawing, a page and a choice of two about the squares."""
        count = len(self.places)
        yield Question(
            name="formula",
            problem_type=ProblemType.math,
            problem="Let $n$ be the number of squares. What is $\\frac{n}{2} + n^2$?",
            answer=f"\\frac{{{2 * count * count + count}}}{{2}}",
        )
        yield Question(
            name="function",
            problem_type=ProblemType.code,
            problem="Write a Python function times(k) that returns k times the number of squares.",
            answer={
                "language": "python",
                "entry": "times",
                "tests": [f"assert times({k}) == {k * count}" for k in (0, 1, 7)],
                "solution": f"def times(k):\n    return k * {count}",
            },
        )
        yield Question(
            name="draw",
            problem_type=ProblemType.svg_code,
            problem=f"Draw the squares as an SVG of {self.size} by {self.size} pixels.",
            answer=self._svg(),
        )
        yield Question(
            name="page",
            problem_type=ProblemType.html_code,
            problem="Write an HTML list with the colour of each square as one item.",
            answer=f"<ul>{f'<li>{self.colour}</li>' * count}</ul>",
        )
        yield self._preference(count)

    def _svg(self) -> str:
        rectangles = "".join(
            f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" '
            f'fill="{self.colour}"/>'
            for left, top, right, bottom in self.boxes()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.size}" height="{self.size}">'
            f"{rectangles}</svg>"
        )

    def _preference(self, count: int) -> Question:
        right = f"There are {WORDS[count].lower()} {self.colour} squares."
        other = COUNTS[count % len(COUNTS)]
        wrong = f"There are {WORDS[other].lower()} {self.colour} squares."
        # Which of the two comes first follows from the clip, so that neither is the rule.
        first = sum(self.places) % 2 == 0
        one, two = (right, wrong) if first else (wrong, right)
        return Question(
            name="prefer",
            problem_type=ProblemType.preference,
            problem=f"Which response describes the video?\nResponse 1: {one}\nResponse 2: {two}",
            answer="Response 1" if first else "Response 2",
        )


def walks(rng: np.random.Generator, count: int, size: int) -> Iterator[Walk]:
    """`count` walks with balanced colours and speeds."""
    side = size // 4
    colours = balanced(rng, tuple(COLOURS), count)
    speeds = balanced(rng, SPEEDS, count)
    for colour, speed in zip(colours, speeds, strict=True):
        start_s = int(rng.integers(0, EVENT_S - 1))
        yield Walk(
            colour=colour,
            speed=speed,
            start_s=start_s,
            end_s=int(rng.integers(start_s + 1, EVENT_S)),
            top=int(rng.integers(0, size - side)),
            side=side,
        )


def signs(rng: np.random.Generator, count: int) -> Iterator[Sign]:
    """`count` signs with balanced words."""
    for word in balanced(rng, SIGNS, count):
        yield Sign(word=word)


def stills(rng: np.random.Generator, count: int, size: int) -> Iterator[Still]:
    """`count` stills with balanced colours and numbers."""
    colours = balanced(rng, tuple(COLOURS), count)
    for colour, number in zip(colours, balanced(rng, COUNTS, count), strict=True):
        places = sorted(rng.choice(4, number, replace=False).tolist())
        yield Still(colour=colour, places=tuple(places), size=size)
