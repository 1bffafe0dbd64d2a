import pytest

from easyvideor1.rewards import GoldError, RewardConfig, extract, instruction, render_gold, reward
from easyvideor1.rewards.config import GroundingConfig, GroundingMean
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

GOLD = {"boxes": {"0": [0, 0, 10, 10], "1": [0, 0, 10, 10]}}


def question(answer: Answer = None, **extra: object) -> Sample:
    return Sample(
        id="q1",
        problem="Track the dog.",
        answer=GOLD if answer is None else answer,
        problem_type=ProblemType.tracking,
        extra=extra,
    )


def accuracy(sample: Sample, text: str, mean: GroundingMean = GroundingMean.union) -> float:
    config = RewardConfig(grounding=GroundingConfig(mean=mean))
    return reward(sample, f"<answer>{text}</answer>", config).parts["accuracy"]


@pytest.mark.parametrize(
    ("text", "union", "gold", "common_keys"),
    [
        ('{"boxes": {"0": [0, 0, 10, 10], "1": [0, 0, 10, 10]}}', 1, 1, 1),
        ('{"boxes": {"0": [0, 0, 10, 10]}}', 0.5, 0.5, 1),
        ('{"0": [0, 0, 10, 10]}', 0.5, 0.5, 1),
        ('[{"time": 0, "bbox_2d": [0, 0, 10, 10]}]', 0.5, 0.5, 1),
        ('{"boxes": {"0": [0, 0, 10, 10], "1": [0, 0, 10, 5]}}', 0.75, 0.75, 0.75),
        ('{"boxes": {"0": [0, 0, 10, 10], "00:02": [0, 0, 10, 10]}}', 1 / 3, 0.5, 1),
        ('{"boxes": {"5": [0, 0, 10, 10]}}', 0, 0, 0),
        ("{'boxes': {0: (0, 0, 10, 10), 1.0: (0, 0, 10, 10)}}", 1, 1, 1),
    ],
)
def test_the_reward_is_the_mean_iou(text: str, union: float, gold: float, common_keys: float):
    assert accuracy(question(), text) == pytest.approx(union)
    assert accuracy(question(), text, GroundingMean.gold) == pytest.approx(gold)
    assert accuracy(question(), text, GroundingMean.common_keys) == pytest.approx(common_keys)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the dog",
        "[0, 0, 10, 10]",
        '{"boxes": {}}',
        '{"boxes": {"0": [10, 0, 0, 10]}}',
        '{"boxes": {"0": [0, 0, 10, 10], "0.0": [0, 0, 5, 5]}}',
        '{"boxes": {"0": [0, 0, 10, 10], "0": [0, 0, 5, 5]}}',
        '{"boxes": {"0": [0, 0, 10]}}',
        '{"boxes": {"0": [0, 0, 10, 10]}} or {"boxes": {"1": [0, 0, 10, 10]}}',
        '{"boxes": {"0": [0, 0, 10, 10], "1": [0, 0',
    ],
)
def test_a_text_without_one_sound_track_is_no_answer(text: str):
    extracted = extract(f"<answer>{text}</answer>", question())
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


def test_a_long_track_is_read_to_its_end():
    gold = {"boxes": {str(second): [second, 0, second + 10, 10] for second in range(2000)}}
    sample = question(gold)
    assert len(render_gold(sample)) > 50_000
    assert reward(sample, render_gold(sample)).value == 1.0
    assert reward(sample, str(gold)).parts == {"accuracy": 1.0, "format": 0.0}


def test_keys_are_seconds_to_the_millisecond():
    gold = {"boxes": {"17.017017017": [0, 0, 10, 10]}}
    assert accuracy(question(gold), '{"boxes": {"17.017": [0, 0, 10, 10]}}') == 1
    assert accuracy(question(gold), '{"boxes": {"17": [0, 0, 10, 10]}}') == 0


def test_gold_boxes_are_compared_in_the_space_of_the_answer():
    sample = question(width=100, height=50, space="relative_1000")
    assert accuracy(sample, '{"boxes": {"0": [0, 0, 100, 200], "1": [0, 0, 100, 200]}}') == 1
    assert reward(sample, render_gold(sample)).value == 1.0
    assert "scaled to 0-1000" in instruction(sample)
    with pytest.raises(GoldError, match=r"extra\.height"):
        render_gold(question(width=100, space="relative_1000"))


@pytest.mark.parametrize("gold", [GOLD, GOLD["boxes"], str(GOLD), {**GOLD, "time": [0, 1]}])
def test_the_gold_answer_may_have_any_form(gold: Answer):
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize(
    "gold", [[0, 0, 1, 1], {"boxes": {}}, {"boxes": {"0": [0, 0, 0, 1]}}, "dog", 5, {"a": 1}, []]
)
def test_a_gold_answer_that_is_no_track_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected boxes by second"):
        render_gold(question(gold))
