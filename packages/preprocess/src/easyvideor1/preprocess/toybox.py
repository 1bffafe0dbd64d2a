"""Generated short clips with known answers, small enough to learn from on a laptop.

A clip shows one to four squares of one colour that stay or vanish half-way; a second kind shows
one square for a span of seconds. Each split has its own random stream, and gold answers are
balanced to within one per type. The hard splits ask for all that a scene shows in one number, which
is hardly ever guessed. Called through `data.ensure_data`; imports no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from tqdm import tqdm

from easyvideor1.preprocess import toybox_types
from easyvideor1.preprocess.config import ToyboxConfig
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
    write_clip,
)
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample

Split = Literal["train", "validation"]

# Of the events' seconds: every span that leaves at least one second empty.
SPANS = tuple((s, e) for s in range(EVENT_S) for e in range(s + 1, EVENT_S + 1) if e - s < EVENT_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What a clip shows, hence the answer to every question about it."""

    colour: str
    count: int
    stays: bool
    """Whether the squares are still there in the second half."""

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """[SCENE_S * SOURCE_FPS, size, size, 3]: each square in a quarter of its own."""
        half = size // 2
        side = 3 * size // 8
        frames = ground(rng, SCENE_S * SOURCE_FPS, size)
        seen = frames if self.stays else frames[: len(frames) // 2]
        for quarter in rng.choice(4, self.count, replace=False):
            top, left = rng.integers(0, half - side, 2) + half * np.array(divmod(quarter, 2))
            seen[:, top : top + side, left : left + side] = COLOURS[self.colour]
        return frames


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One square that is there from `start_s` to `end_s` of `EVENT_S` seconds."""

    colour: str
    start_s: int
    end_s: int

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """[EVENT_S * SOURCE_FPS, size, size, 3]."""
        side = size // 2
        frames = ground(rng, EVENT_S * SOURCE_FPS, size)
        top, left = rng.integers(0, size - side, 2)
        span = slice(self.start_s * SOURCE_FPS, self.end_s * SOURCE_FPS)
        frames[span, top : top + side, left : left + side] = COLOURS[self.colour]
        return frames


class Shown(Protocol):
    """What a clip shows."""

    def render(self, rng: np.random.Generator, size: int) -> Frames:
        """uint8 [T, size, size, 3]"""
        ...


def build(config: ToyboxConfig, folder: Path) -> None:
    """Write `clips/*.mp4` and the questions about them to `folder`.

    They are `train.jsonl` and `validation.jsonl`, `hard_train.jsonl` and `hard_validation.jsonl`
    about the scenes of the same clips, `hard_form.jsonl` and `every_type.jsonl`.
    """
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    for split in ("validation", "train"):
        _write_split(config, split, folder)
    form = list(_scenes(np.random.default_rng([config.seed, 3]), config.hard_form_clips))
    media = _write_clips(config, "form", 3, form, folder)
    write_samples(folder / "hard_form.jsonl", list(_hard_samples("form", form, media)))
    write_samples(folder / "every_type.jsonl", list(_every_type(config, folder)))


def _write_clips(
    config: ToyboxConfig, name: str, stream: int, clips: Sequence[Shown], folder: Path
) -> list[Media]:
    """Encode `clips/<name>_<index>.mp4`, each from the random stream of its own."""
    written: list[Media] = []
    for index, clip in enumerate(tqdm(clips, desc=f"toybox {name}", unit="clip")):
        path = f"clips/{name}_{index:05d}.mp4"
        rng = np.random.default_rng([config.seed, stream, index])
        write_clip(folder / path, clip.render(rng, config.size))
        written.append(Media(kind=MediaKind.video, path=path))
    return written


def _every_type(config: ToyboxConfig, folder: Path) -> Iterator[Sample]:
    """All questions about `config.every_type_clips` clips of each kind."""
    rng = np.random.default_rng([config.seed, 2])
    number = config.every_type_clips
    clips = [
        *_scenes(rng, number),
        *_events(rng, number),
        *toybox_types.walks(rng, number, config.size),
        *toybox_types.signs(rng, number),
        *toybox_types.stills(rng, number, config.size),
    ]
    media = _write_clips(config, "every_type", 2, clips, folder)
    for index, (clip, medium) in enumerate(zip(clips, media, strict=True)):
        is_basic = isinstance(clip, Scene | Event)
        for question in _questions(clip, 0) if is_basic else clip.questions():
            yield question.sample(f"toybox/every_type/{index:05d}", (medium,))


def _write_split(config: ToyboxConfig, split: Split, folder: Path) -> None:
    train = split == "train"
    rng = np.random.default_rng([config.seed, int(train)])
    scenes = list(_scenes(rng, config.train_clips if train else config.validation_clips))
    events = list(_events(rng, config.train_events if train else config.validation_events))
    media = _write_clips(config, split, int(train), [*scenes, *events], folder)

    samples: list[Sample] = []
    for index, (clip, medium) in enumerate(zip([*scenes, *events], media, strict=True)):
        for question in _questions(clip, index):
            rare = question.name in ("colour", "stay")
            share = config.offline_share_rare if rare else config.offline_share
            offline = train and rng.random() < share
            samples.append(question.sample(f"toybox/{split}/{index:05d}", (medium,), offline))
    write_samples(folder / f"{split}.jsonl", samples)
    hard = _hard_samples(split, scenes, media[: len(scenes)], offline=train)
    write_samples(folder / f"hard_{split}.jsonl", list(hard))


def _hard_samples(
    name: str, scenes: Sequence[Scene], media: Sequence[Media], *, offline: bool = True
) -> Iterator[Sample]:
    for index, (scene, medium) in enumerate(zip(scenes, media, strict=True)):
        yield _hard_question(scene).sample(f"toybox/hard_{name}/{index:05d}", (medium,), offline)


def _hard_question(scene: Scene) -> Question:
    """One of 32 numbers, balanced as far as the three digits are."""
    colour = list(COLOURS).index(scene.colour) + 1
    return Question(
        name="code",
        problem_type=ProblemType.numerical,
        problem="Which three digits tell colour (1-4), number and end (1 still there, 0 gone)?",
        answer=100 * colour + 10 * scene.count + int(scene.stays),
        reasoning="By colour, number and end.",
    )


def _questions(clip: Scene | Event, index: int) -> Iterator[Question]:
    if isinstance(clip, Event):
        yield Question(
            name="when",
            problem_type=ProblemType.temporal_grounding,
            problem="When is the square shown?",
            answer={"time": [clip.start_s, clip.end_s]},
            reasoning="By the first and last time.",
        )
        return
    yield Question(
        name="colour",
        problem_type=ProblemType.multiple_choice,
        problem="Which colour are the squares?",
        options=tuple(COLOURS),
        answer="ABCD"[list(COLOURS).index(clip.colour)],
        reasoning="By colour.",
    )
    yield Question(
        name="count",
        problem_type=ProblemType.numerical,
        problem="How many squares are shown?",
        answer=clip.count,
        reasoning="By counting.",
    )
    yield Question(
        name="stay",
        problem_type=ProblemType.boolean,
        problem="Are the squares still there at the end?",
        answer=clip.stays,
        reasoning="By the last frames.",
    )
    if index % 8 == 0:
        yield Question(
            name="describe",
            problem_type=ProblemType.open_ended,
            problem="Describe the video in one short sentence.",
            answer=_describe(clip),
            reasoning="By colour, number and end.",
        )


def _describe(scene: Scene) -> str:
    noun, verb = ("square", "stays") if scene.count == 1 else ("squares", "stay")
    end = verb if scene.stays else ("vanishes" if scene.count == 1 else "vanish")
    return f"{WORDS[scene.count]} {scene.colour} {noun} {end}."


def _scenes(rng: np.random.Generator, count: int) -> Iterator[Scene]:
    colours = balanced(rng, tuple(COLOURS), count)
    counts = balanced(rng, COUNTS, count)
    stays = balanced(rng, (True, False), count)
    for colour, number, staying in zip(colours, counts, stays, strict=True):
        yield Scene(colour=colour, count=number, stays=staying)


def _events(rng: np.random.Generator, count: int) -> Iterator[Event]:
    colours = balanced(rng, tuple(COLOURS), count)
    spans = balanced(rng, SPANS, count)
    for colour, (start_s, end_s) in zip(colours, spans, strict=True):
        yield Event(colour=colour, start_s=start_s, end_s=end_s)
