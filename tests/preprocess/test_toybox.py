"""The gold answers of the toybox, read back from the pixels of its clips."""

from collections import Counter
from pathlib import Path

import av
import numpy as np
import pytest

from easyvideor1.preprocess import toybox
from easyvideor1.preprocess.config import ToyboxConfig
from easyvideor1.preprocess.toybox_clips import SOURCE_FPS
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import ProblemType, Sample

CONFIG = ToyboxConfig(train_clips=24, train_events=5, validation_clips=18, validation_events=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toybox")
    toybox.build(CONFIG, folder)
    return folder


@pytest.fixture(scope="module")
def validation(folder: Path) -> list[Sample]:
    return list(read_samples(folder / "validation.jsonl"))


def frames_of(sample: Sample) -> np.ndarray:
    with av.open(sample.media[0].path) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def bright(frames: np.ndarray) -> np.ndarray:
    """[T, H, W]: True on squares; the ground is a dark grey below 90 on all channels."""
    return frames.max(axis=-1) > 120


def count_islands(mask: np.ndarray) -> int:
    """Connected regions of at least 30 pixels, by flood fill."""
    todo, islands = {tuple(p) for p in np.argwhere(mask)}, 0
    while todo:
        stack, size = [todo.pop()], 1
        while stack:
            row, column = stack.pop()
            for near in (
                (row + 1, column),
                (row - 1, column),
                (row, column + 1),
                (row, column - 1),
            ):
                if near in todo:
                    todo.remove(near)
                    stack.append(near)
                    size += 1
        islands += size >= 30
    return islands


def of_category(samples: list[Sample], category: str) -> list[Sample]:
    return [sample for sample in samples if sample.category == category]


def colour_in(frames: np.ndarray) -> str:
    """Of the squares in the first frame."""
    red, green, blue = frames[0][bright(frames[:1])[0]].mean(axis=0)
    if blue > max(red, green):
        return "blue"
    if min(red, green) > 150:
        return "yellow"
    return "red" if red > green else "green"


def test_the_colour_is_the_one_in_the_pixels(validation: list[Sample]) -> None:
    for sample in of_category(validation, "colour"):
        seen = colour_in(frames_of(sample))
        assert sample.options["ABCD".index(str(sample.answer))] == seen


def test_a_hard_answer_is_colour_count_and_end_in_three_digits(folder: Path) -> None:
    samples = list(read_samples(folder / "hard_validation.jsonl"))
    assert len(samples) == CONFIG.validation_clips
    for sample in samples:
        frames = frames_of(sample)
        colour = ("red", "green", "blue", "yellow").index(colour_in(frames)) + 1
        count, stays = count_islands(bright(frames)[0]), bool(bright(frames)[-1].any())
        assert sample.answer == int(f"{colour}{count}{int(stays)}")


def test_every_hard_training_sample_has_an_offline_answer_and_no_clip_of_validation(
    folder: Path, validation: list[Sample]
) -> None:
    held_out = {frames_of(sample).tobytes() for sample in validation}
    for name, number in (("train", CONFIG.train_clips), ("form", CONFIG.hard_form_clips)):
        samples = list(read_samples(folder / f"hard_{name}.jsonl"))
        assert len(samples) == number
        for sample in samples:
            assert f"<answer>{sample.answer}</answer>" in sample.offline[0].text
            assert frames_of(sample).tobytes() not in held_out


def test_the_count_is_the_number_of_separate_squares(validation: list[Sample]) -> None:
    for sample in of_category(validation, "count"):
        assert count_islands(bright(frames_of(sample))[0]) == sample.answer


def test_squares_stay_or_vanish_as_the_answer_says(validation: list[Sample]) -> None:
    for sample in of_category(validation, "stay"):
        assert bool(bright(frames_of(sample))[-1].any()) is sample.answer


def test_the_event_spans_the_seconds_of_the_answer(validation: list[Sample]) -> None:
    for sample in of_category(validation, "when"):
        shown = np.flatnonzero(bright(frames_of(sample)).any(axis=(1, 2)))
        span = [shown[0] / SOURCE_FPS, (shown[-1] + 1) / SOURCE_FPS]
        assert isinstance(sample.answer, dict)
        assert sample.answer["time"] == span


@pytest.mark.parametrize("category", ["colour", "count", "stay"])
def test_gold_answers_are_balanced_to_within_one(validation: list[Sample], category: str) -> None:
    counts = Counter(str(sample.answer) for sample in of_category(validation, category))
    assert sum(counts.values()) == CONFIG.validation_clips
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_training_clip_is_a_validation_clip(folder: Path, validation: list[Sample]) -> None:
    train = list(read_samples(folder / "train.jsonl"))
    seen = {frames_of(sample).tobytes() for sample in train}
    assert not any(frames_of(sample).tobytes() in seen for sample in validation)


def test_a_part_of_the_training_samples_has_an_offline_trajectory(folder: Path) -> None:
    train = list(read_samples(folder / "train.jsonl"))

    def share(*categories: str) -> float:
        chosen = [sample for sample in train if sample.category in categories]
        return sum(bool(sample.offline) for sample in chosen) / len(chosen)

    assert 0.25 < share("count", "when", "describe") < 0.75
    assert share("colour", "stay") < 0.25
    assert all(sample.offline[0].text.endswith("</answer>") for sample in train if sample.offline)
    assert {sample.problem_type for sample in train} == {
        ProblemType.multiple_choice,
        ProblemType.numerical,
        ProblemType.boolean,
        ProblemType.temporal_grounding,
        ProblemType.open_ended,
    }


def test_the_same_seed_gives_the_same_clips(folder: Path, tmp_path: Path) -> None:
    toybox.build(CONFIG, tmp_path)
    for name in ("train.jsonl", "hard_form.jsonl", "clips/train_00003.mp4"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
