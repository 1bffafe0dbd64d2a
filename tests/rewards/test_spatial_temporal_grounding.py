import json

import pytest

from easyvideor1.rewards import GoldError, RewardConfig, extract, instruction, render_gold, reward
from easyvideor1.rewards.config import GroundingConfig, GroundingMean
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def tube(start: float, end: float, *seconds: float, width: float = 10) -> dict:
    boxes = {str(second): [0, 0, width, 10] for second in seconds}
    return {"time": [start, end], "boxes": boxes}


GOLD = tube(0, 3, 0, 1, 2, 3)


def question(answer: Answer = None, **extra: object) -> Sample:
    return Sample(
        id="q1",
        problem="Who rides?",
        answer=GOLD if answer is None else answer,
        problem_type=ProblemType.spatial_temporal_grounding,
        extra=extra,
    )


def accuracy(sample: Sample, answer: dict | str, mean: str = "union") -> float:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    config = RewardConfig(grounding=GroundingConfig(mean=GroundingMean(mean)))
    return reward(sample, f"<answer>{text}</answer>", config).parts["accuracy"]


@pytest.mark.parametrize(
    ("answer", "union", "gold", "common_keys"),
    [
        (GOLD, 1, 1, 1),
        (tube(0, 3, 1), 0.5 + 0.5 / 4, 0.5 + 0.5 / 4, 1),
        (tube(0, 3, 0, 1, 2, 3, 4, 5), 0.5 + 0.5 * 4 / 6, 1, 1),
        (tube(0, 3, 0, 1, 2, 3, width=5), 0.75, 0.75, 0.75),
        (tube(0, 3), 0.5, 0.5, 0.5),
        (tube(3, 6, 0, 1, 2, 3), 0.5, 0.5, 0.5),
        (tube(1, 2, 7), 0.5 / 3, 0.5 / 3, 0.5 / 3),
    ],
)
def test_the_reward_is_half_time_and_half_boxes(answer, union, gold, common_keys):
    assert accuracy(question(), answer) == pytest.approx(union)
    assert accuracy(question(), answer, "gold") == pytest.approx(gold)
    assert accuracy(question(), answer, "common_keys") == pytest.approx(common_keys)


def test_boxes_outside_the_stated_time_count_as_answered():
    gold = tube(0, 1, 0, 1)
    assert accuracy(question(gold), tube(0, 1, 0, 1, 2, 3)) == pytest.approx(0.75)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "he rides",
        '{"time": [0, 3]}',
        '{"boxes": {"0": [0, 0, 10, 10]}}',
        '{"time": [3, 0], "boxes": {"0": [0, 0, 10, 10]}}',
        '{"time": [0, 3], "boxes": {"0": [10, 0, 0, 10]}}',
        '{"time": [0, 3], "boxes": {"0": [0, 0, 10, 10], "0:00": [0, 0, 5, 5]}}',
        '{"time": [0, 3], "boxes": "none"}',
        '{"time": "soon", "boxes": {}}',
        '[{"time": [0, 3], "boxes": {}}]',
        '{"time": [0, 3], "boxes": {}} {"time": [0, 2], "boxes": {}}',
    ],
)
def test_a_text_without_both_is_no_answer(text: str):
    extracted = extract(f"<answer>{text}</answer>", question())
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


@pytest.mark.parametrize(
    "text",
    [
        "{'time': ('0:00', '0:03'), 'boxes': {0: [0, 0, 10, 10], '1 s': [0, 0, 10, 10],},}",
        '```json\n{"time": [0, 3], "boxes": {"0.0": [0, 0, 10, 10], "00:01": [0, 0, 10, 10]}}\n```',
    ],
)
def test_an_answer_is_read_in_many_forms(text: str):
    assert extract(f"<answer>{text}</answer>", question()).value == {
        "time": [0, 3],
        "boxes": {"0": [0, 0, 10, 10], "1": [0, 0, 10, 10]},
    }


def test_several_intervals_are_compared_as_unions():
    gold = {**tube(0, 1, 0, 1), "time": [[0, 2], [4, 6]]}
    assert accuracy(question(gold), {**tube(0, 1, 0, 1), "time": [0, 2]}) == pytest.approx(0.75)
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


def test_gold_boxes_are_compared_in_the_space_of_the_answer():
    sample = question(width=100, height=50, space="relative_1", gold_space="original_pixels")
    boxes = {str(second): [0, 0, 0.1, 0.2] for second in range(4)}
    assert accuracy(sample, {"time": [0, 3], "boxes": boxes}) == 1
    assert reward(sample, render_gold(sample)).value == 1.0
    assert "scaled to 0-1 for each second" in instruction(sample)


@pytest.mark.parametrize(
    "gold",
    [
        GOLD,
        json.dumps(GOLD),
        {"time": ["0:17", "0:18.5"], "boxes": {"18": [440, 135, 493, 246]}},
    ],
)
def test_the_gold_answer_may_have_any_form(gold: Answer):
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize(
    "gold",
    [
        [0, 3], {"time": [0, 3]}, tube(0, 3), tube(3, 3, 1), tube(0, 3, 1, width=0), "dog", 5,
        {"time": [3, 0], "boxes": {"0": [0, 0, 1, 1]}},
    ],
)  # fmt: skip
def test_a_gold_answer_without_both_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected time and boxes"):
        render_gold(question(gold))
