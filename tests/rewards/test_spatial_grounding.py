import pytest

from easyvideor1.rewards import GoldError, RewardConfig, extract, instruction, render_gold, reward
from easyvideor1.rewards.config import CoordinateSpace, GroundingConfig
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

SIZES = {"width": 640, "height": 480, "resized_width": 320, "resized_height": 252}


def question(answer: Answer = None, **extra: object) -> Sample:
    return Sample(
        id="q1",
        problem="Where is the dog?",
        answer=[0, 0, 100, 100] if answer is None else answer,
        problem_type=ProblemType.spatial_grounding,
        extra=extra,
    )


def in_spaces(space: str, gold_space: str = "original_pixels") -> RewardConfig:
    grounding = GroundingConfig(
        space=CoordinateSpace(space), gold_space=CoordinateSpace(gold_space)
    )
    return RewardConfig(grounding=grounding)


def accuracy(sample: Sample, text: str, config: RewardConfig | None = None) -> float:
    return reward(sample, f"<answer>{text}</answer>", config or RewardConfig()).parts["accuracy"]


def test_the_reward_is_the_iou():
    assert accuracy(question(), '{"boxes": [50, 50, 150, 150]}') == pytest.approx(1 / 7)
    assert accuracy(question(), "(0,0),(100,50)") == 0.5
    assert accuracy(question(), "no dog") == 0


def test_an_inverted_box_says_so():
    score = reward(question(), '<answer>{"boxes": [100, 0, 0, 100]}</answer>')
    assert score.status is ScoreStatus.no_answer
    assert "the box 100, 0, 0, 100 is inverted" in score.detail
    assert score.parts == {"accuracy": 0.0, "format": 0.5}


def test_several_boxes_are_matched():
    gold = question([[0, 0, 10, 10], [20, 0, 30, 10]])
    assert accuracy(gold, "[[20, 0, 30, 10], [0, 0, 10, 10]]") == 1
    assert accuracy(gold, "[0, 0, 10, 10]") == 0.5
    assert accuracy(gold, "[[0, 0, 10, 10], [20, 0, 30, 10], [50, 0, 60, 10]]") == 2 / 3
    assert accuracy(question(), "[[0, 0, 100, 100], [0, 0, 100, 100]]") == 0.5


def test_the_extracted_boxes_are_json_of_numbers():
    assert extract("<answer>(1,2),(3.5,4)</answer>", question()).value == [1, 2, 3.5, 4]
    several = extract("<answer>[[1,2,3,4],[5,6,7,8]]</answer>", question()).value
    assert several == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ("original_pixels", "[64, 48, 320, 240]"),
        ("resized_pixels", "[32, 25.2, 160, 126]"),
        ("relative_1000", "[100, 100, 500, 500]"),
        ("relative_1", "[0.1, 0.1, 0.5, 0.5]"),
    ],
)
@pytest.mark.parametrize(
    ("gold_space", "gold"),
    [
        ("original_pixels", [64, 48, 320, 240]),
        ("resized_pixels", [32, 25.2, 160, 126]),
        ("relative_1000", [100, 100, 500, 500]),
        ("relative_1", [0.1, 0.1, 0.5, 0.5]),
    ],
)
def test_boxes_are_compared_across_spaces(space: str, text: str, gold_space: str, gold: list):
    config = in_spaces(space, gold_space)
    sample = question(gold, **SIZES)
    assert accuracy(sample, text, config) == pytest.approx(1)
    assert reward(sample, render_gold(sample, config), config).value == 1.0
    # The same box by the sample's own words for the spaces.
    own = question(gold, **SIZES, space=space, gold_space=gold_space)
    assert accuracy(own, text) == pytest.approx(1)
    assert reward(own, render_gold(own)).value == 1.0


def test_nothing_is_guessed_about_the_space():
    config = in_spaces("relative_1000", "original_pixels")
    sample = question([64, 48, 320, 240], **SIZES)
    assert accuracy(sample, "[64, 48, 320, 240]", config) < 0.5
    assert accuracy(sample, "[0.1, 0.1, 0.5, 0.5]", config) == 0


@pytest.mark.parametrize(
    ("space", "extra", "named"),
    [
        ("relative_1000", {}, "extra.width"),
        ("relative_1000", {"width": 640}, "extra.height"),
        ("relative_1", {"width": 640, "height": 0}, "extra.height"),
        ("relative_1", {"width": "640", "height": 480}, "extra.width"),
        ("relative_1", {"width": True, "height": 480}, "extra.width"),
        ("resized_pixels", {"width": 640, "height": 480}, "extra.resized_width"),
    ],
)
def test_a_size_that_a_conversion_needs_is_named(space: str, extra: dict, named: str):
    sample = question(**extra)
    with pytest.raises(GoldError, match=rf"q1: .*{named} to be the size in pixels"):
        reward(sample, "<answer>[1, 2, 3, 4]</answer>", in_spaces(space))
    with pytest.raises(GoldError, match=named):
        render_gold(sample, in_spaces(space))


def test_no_size_is_needed_where_nothing_is_converted():
    for space in CoordinateSpace:
        config = in_spaces(space.value, space.value)
        assert accuracy(question([0.1, 0.2, 0.3, 0.4]), "[0.1, 0.2, 0.3, 0.4]", config) == 1
    relative = in_spaces("relative_1000", "relative_1")
    assert accuracy(question([0.1, 0.2, 0.3, 0.4]), "[100, 200, 300, 400]", relative) > 0.999


def test_an_unknown_space_of_a_sample_is_an_error():
    with pytest.raises(GoldError, match=r"extra\.space to be one of original_pixels, .*'pixels'"):
        reward(question(space="pixels"), "<answer>[1, 2, 3, 4]</answer>")
    with pytest.raises(GoldError, match=r"extra\.gold_space to be one of .*not \['relative_1'\]"):
        reward(question(gold_space=["relative_1"]), "<answer>[1, 2, 3, 4]</answer>")


def test_the_instruction_names_space_and_shape():
    assert "in pixels of the original as" in instruction(question())
    assert "scaled to 0-1000 as" in instruction(question(), in_spaces("relative_1000"))
    assert "scaled to 0-1 as" in instruction(question(space="relative_1"))
    assert '<answer>{"boxes": [x1, y1, x2, y2]}</answer>' in instruction(question())
    several = question([[0, 0, 10, 10], [20, 0, 30, 10]])
    assert '<answer>{"boxes": [[x1, y1, x2, y2], ...]}</answer>' in instruction(several)


@pytest.mark.parametrize(
    "gold",
    [
        [0, 0, 100, 100],
        [0.5, 0.25, 100, 100],
        {"boxes": [0, 0, 100, 100]},
        {"bbox_2d": [0, 0, 100, 100], "label": "dog"},
        '{"boxes": [0, 0, 100, 100]}',
        "(0,0),(100,100)",
        [[0, 0, 100, 100], [1, 1, 50, 50]],
    ],
)
def test_the_gold_answer_may_have_any_form(gold: Answer):
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize(
    "gold", [[1, 2, 3], [5, 0, 1, 9], [0, 0, 0, 9], "dog", 5, True, {}, [], [[0, 0, 1, 1], [1]]]
)
def test_a_gold_answer_that_is_no_box_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected a box \[x1, y1, x2, y2\]"):
        render_gold(question(gold))
