"""The further problem types of the toybox: gold answers against the pixels of their clips."""

import re
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from easyvideor1.preprocess import toybox
from easyvideor1.preprocess.config import ToyboxConfig
from easyvideor1.preprocess.toybox_clips import SOURCE_FPS
from easyvideor1.preprocess.toybox_types import LETTER_HEIGHT
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import ProblemType, Sample

CONFIG = ToyboxConfig(
    train_clips=1, train_events=1, validation_clips=1, validation_events=1, every_type_clips=6
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("toybox")
    toybox.build(CONFIG, folder)
    return list(read_samples(folder / "every_type.jsonl"))


def frames_of(sample: Sample) -> np.ndarray:
    with av.open(sample.media[0].path) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def of_category(samples: list[Sample], category: str) -> list[Sample]:
    found = [sample for sample in samples if sample.category == category]
    assert len(found) == CONFIG.every_type_clips
    return found


def box_in(frame: np.ndarray) -> list[int] | None:
    """[left, top, right, bottom] of what is brighter than the ground."""
    rows, columns = np.nonzero(frame.max(axis=-1) > 120)
    if not len(rows):
        return None
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def answer_of(sample: Sample) -> dict:
    assert isinstance(sample.answer, dict)
    return sample.answer


def test_all_fifteen_types_are_asked(samples: list[Sample]) -> None:
    assert {sample.problem_type for sample in samples} == set(ProblemType)


@pytest.mark.parametrize("category", ["when_and_where", "track"])
def test_a_walk_has_its_box_at_each_full_second(samples: list[Sample], category: str) -> None:
    for sample in of_category(samples, category):
        seen = {
            str(second): box
            for second, frame in enumerate(frames_of(sample)[::SOURCE_FPS])
            if (box := box_in(frame)) is not None
        }
        assert answer_of(sample)["boxes"].keys() == seen.keys()
        for second, box in answer_of(sample)["boxes"].items():
            assert np.abs(np.array(box) - seen[second]).max() <= 1, (sample.id, second)


def test_a_walk_is_shown_for_the_time_of_the_answer(samples: list[Sample]) -> None:
    for sample in of_category(samples, "when_and_where"):
        shown = [i for i, frame in enumerate(frames_of(sample)) if box_in(frame) is not None]
        assert answer_of(sample)["time"] == [shown[0] / SOURCE_FPS, (shown[-1] + 1) / SOURCE_FPS]


def test_the_box_is_that_of_the_second_in_the_question(samples: list[Sample]) -> None:
    for sample in of_category(samples, "where"):
        second = re.search(r"second (\d)", sample.problem)
        assert second is not None
        seen = box_in(frames_of(sample)[int(second[1]) * SOURCE_FPS])
        assert np.abs(np.array(sample.answer) - np.array(seen)).max() <= 1


def test_the_speed_is_the_way_over_the_time(samples: list[Sample]) -> None:
    for sample in of_category(samples, "speed"):
        lefts = [(i, b[0]) for i, f in enumerate(frames_of(sample)) if (b := box_in(f)) is not None]
        (first, start), (last, end) = lefts[0], lefts[-1]
        assert (end - start) / (last - first) * SOURCE_FPS == pytest.approx(sample.answer, abs=1.5)


def test_the_sign_shows_its_word(samples: list[Sample]) -> None:
    font = ImageFont.load_default(LETTER_HEIGHT)
    for sample in of_category(samples, "read"):
        page = Image.new("L", (64, 64))
        ImageDraw.Draw(page).text((32, 32), str(sample.answer), 255, font, anchor="mm")
        expected = np.asarray(page) > 150
        seen = frames_of(sample)[0].max(axis=-1) > 150
        assert (expected & seen).sum() / (expected | seen).sum() > 0.9


def test_formula_and_function_use_the_number_of_squares(samples: list[Sample]) -> None:
    formulas, functions = of_category(samples, "formula"), of_category(samples, "function")
    for formula, function in zip(formulas, functions, strict=True):
        quarters = frames_of(formula)[0].max(axis=-1).reshape(2, 32, 2, 32) > 120
        count = int(quarters.any(axis=(1, 3)).sum())
        numerator = re.fullmatch(r"\\frac\{(\d+)\}\{2\}", str(formula.answer))
        assert numerator is not None and int(numerator[1]) / 2 == count / 2 + count**2
        assert answer_of(function)["tests"][1] == f"assert times(1) == {count}"
        assert answer_of(function)["solution"].endswith(f"k * {count}")


def test_the_drawing_covers_the_squares(samples: list[Sample]) -> None:
    for sample in of_category(samples, "draw"):
        drawn = np.zeros((64, 64), bool)
        for x, y, width, height in re.findall(
            r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', str(sample.answer)
        ):
            drawn[int(y) : int(y) + int(height), int(x) : int(x) + int(width)] = True
        seen = frames_of(sample)[0].max(axis=-1) > 120
        assert (drawn & seen).sum() / (drawn | seen).sum() > 0.95


def test_the_page_and_the_preferred_response_tell_the_number(samples: list[Sample]) -> None:
    words = {"one": 1, "two": 2, "three": 3, "four": 4}
    pages, choices = of_category(samples, "page"), of_category(samples, "prefer")
    for page, choice in zip(pages, choices, strict=True):
        count = str(page.answer).count("<li>")
        responses = dict(re.findall(r"(Response \d): There are (\w+) ", choice.problem))
        assert [n for n, w in responses.items() if words[w] == count] == [choice.answer]


def test_the_other_files_do_not_depend_on_the_further_clips(tmp_path: Path) -> None:
    for number, folder in ((0, tmp_path / "none"), (2, tmp_path / "two")):
        settings = ToyboxConfig(
            train_clips=2,
            train_events=1,
            validation_clips=1,
            validation_events=1,
            every_type_clips=number,
        )
        toybox.build(settings, folder)
    for name in ("train.jsonl", "validation.jsonl", "clips/train_00001.mp4"):
        assert (tmp_path / "none" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
