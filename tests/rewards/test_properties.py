"""Whatever the text: no exception, a reward from 0 to 1, always the same. Gold answers score 1."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyvideor1.rewards import render_gold, reward
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus


def sample(problem_type: str, answer, options: tuple[str, ...] = ()) -> Sample:
    return Sample(
        id="q1", problem="?", answer=answer, problem_type=ProblemType(problem_type), options=options
    )


SAMPLES = [
    sample("multiple_choice", "B", ("Red", "Blue", "the green one", "a")),
    sample("multiple_choice", "C"),
    sample("boolean", True),
    sample("numerical", 5),
    sample("numerical", "12.5%"),
    sample("temporal_grounding", [2, 6]),
    sample("temporal_grounding", [[2, 6], [8, 9.5]]),
    sample("open_ended", "A man rides a bike. 骑着"),
    sample("regression", 2.5),
    sample("ocr", "Exit 12, 出口"),
    sample("spatial_grounding", [0, 1, 5, 9]),
    sample("spatial_grounding", [[0, 1, 5, 9], [2, 2, 5.5, 5]]),
    sample("tracking", {"boxes": {"1": [0, 1, 5, 9], "2": [0, 1, 5, 9]}}),
    sample("spatial_temporal_grounding", {"time": [1, 2], "boxes": {"1": [0, 1, 5, 9]}}),
    sample("math", r"\frac{5}{2}"),
]

FRAGMENTS = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", "< answer", "<", "/", ">", r"\boxed{", "}",
     r"\text{", r"\frac{1}{2}", "{", "[", "]", "(", ")", "**", "*", "_", "`", "$", "A", "B", "I",
     "a", "Red", "Blue", "B.", "(B)", "answer is ", "the ", "option ", "not ", "n't ", "yes", "no",
     "true", "是", "不", "答案是", "选", "1", "2", "5", ",", ".", "-", "−", "–", "½", "²", "e", "E",
     "1e999", "%", "percent", "million", "k", "M", "万", "=", "or ", "and ",
     '"time"', ":", "from ", "to ",
     "between ", "start", "end", "s", "min", "h", "秒", "分", "00:01", "\n", " ", "\t", "\x00",
     "\ud800", "yyyyy", "ﷺ", "İ", "ß", "'", '"', "NaN", "null", "9" * 30, "one", "two ", "hundred",
     "second", "half", "minus ", "\\", "~", "，", '"boxes"', '"1": ', "[0, 1, 5, 9]", "<box>",
     "(0,1),(5,9)", "</box>", '{"bbox_2d": [', "'", "x^2", r"\sqrt", "×10³", "²", "^", "**",
     "\u202e", "\u05d0", "\u200f", "1e400", "-", "Exit", "出口", "\u0301" * 3, "dozen", "%"]
)  # fmt: skip
HOSTILE = st.one_of(st.text(max_size=80), st.lists(FRAGMENTS, max_size=40).map("".join))
TEXTS = st.one_of(HOSTILE, HOSTILE.map("<answer>{}</answer>".format))


@pytest.mark.parametrize("question", SAMPLES, ids=lambda s: f"{s.problem_type.value}-{s.answer}")
@settings(max_examples=250, deadline=None, derandomize=True)
@given(text=TEXTS)
def test_any_text_has_a_reward(question: Sample, text: str):
    result = reward(question, text)
    assert 0.0 <= result.value <= 1.0
    assert all(0.0 <= part <= 1.0 for part in result.parts.values())
    assert result.status in (ScoreStatus.ok, ScoreStatus.no_answer)
    assert (result.status is ScoreStatus.ok) == (result.extracted is not None)
    json.dumps(result.extracted, allow_nan=False)
    assert reward(question, text) == result


def assert_gold_scores_one(question: Sample) -> None:
    assert reward(question, render_gold(question)).value == 1.0
    assert reward(question, f"<think>I see.</think>\n{render_gold(question)}\n").value == 1.0


@settings(deadline=None, derandomize=True)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=26), st.data())
def test_every_letter_scores_one_as_gold(options: list[str], data: st.DataObject):
    index = data.draw(st.integers(0, len(options) - 1))
    assert_gold_scores_one(sample("multiple_choice", chr(65 + index), tuple(options)))


@settings(deadline=None, derandomize=True)
@given(st.one_of(st.integers(-(10**18), 10**18), st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_scores_one_as_gold(number: float):
    assert_gold_scores_one(sample("numerical", number))
    assert_gold_scores_one(sample("numerical", str(number)))
    assert_gold_scores_one(sample("regression", number))


@settings(deadline=None, derandomize=True)
@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_every_interval_scores_one_as_gold(start: float, length: float):
    assert_gold_scores_one(sample("temporal_grounding", [start, start + length]))


BOXES = st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), st.floats(1, 1e4), st.floats(1, 1e4))
SECONDS = st.one_of(st.integers(0, 10_000), st.integers(0, 10**7).map(lambda ms: ms / 1000))
TRACKS = st.dictionaries(SECONDS.map(float).map(str), BOXES, min_size=1, max_size=20)
SPACES = st.sampled_from(["original_pixels", "resized_pixels", "relative_1000", "relative_1"])


def as_box(sides: tuple[float, ...]) -> list[float]:
    x, y, width, height = sides
    return [x, y, x + width, y + height]


@settings(deadline=None, derandomize=True)
@given(st.lists(BOXES, min_size=1, max_size=5), TRACKS, SPACES, SPACES)
def test_every_box_and_track_scores_one_as_gold_in_every_space(boxes, track, space, gold_space):
    extra = {
        "space": space, "gold_space": gold_space, "width": 1920, "height": 1080,
        "resized_width": 644, "resized_height": 364,
    }  # fmt: skip
    track = {second: as_box(box) for second, box in track.items()}
    golds = [
        ("spatial_grounding", [as_box(box) for box in boxes]),
        ("tracking", track),
        ("spatial_temporal_grounding", {"time": [0, 1], "boxes": track}),
    ]
    for problem_type, gold in golds:
        assert_gold_scores_one(replace(sample(problem_type, gold), extra=extra))


@settings(deadline=None, derandomize=True)
@given(st.text(min_size=1, max_size=60).filter(lambda text: text.strip() and "<" not in text))
def test_every_text_scores_one_as_gold(text: str):
    assert_gold_scores_one(sample("open_ended", text))
    assert_gold_scores_one(sample("ocr", text))


@pytest.mark.timeout(60)  # a pattern in quadratic time would take far longer
@pytest.mark.parametrize(
    "unit",
    ["<", "<answer>", "</answer>", "<think>", "< ", "answer is ", "answer to ", r"\boxed{", "**",
     "{[", "[1,", "1 ", "1,", "12:", "from 1 to ", "start 1 ", "A. ", "A", "\n", " ", "不是", "ﷺ",
     "['", "{'a':", '{"boxes":{"1":', "[0,1,5,9],", "(0,1),(5,9)", "<box>", "x1=1, y1=", "it is ",
     "1/", "1.234.", "half a ", "two ", "$1$ ", "\\frac{", "```", "{\"answer\":", "9", "1'000"],
)  # fmt: skip
def test_a_long_hostile_text_is_scored(unit: str):
    text = unit * (60_000 // len(unit))
    for question in SAMPLES:
        assert 0.0 <= reward(question, text).value <= 1.0
        assert 0.0 <= reward(question, f"<answer>{text}</answer>").value <= 1.0
