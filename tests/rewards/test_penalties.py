"""Penalties, against their formulas worked out by hand, and weights by task."""

import pytest

from easyvideor1.rewards import RewardConfig, reward, score_many
from easyvideor1.rewards.config import OverlongConfig, RepetitionConfig, TaskConfig
from easyvideor1.rewards.penalties import overlong, repetition
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

SAMPLE = Sample(id="q1", problem="?", answer=5, problem_type=ProblemType.numerical)
RIGHT = "<answer>5</answer>"


@pytest.mark.parametrize(
    ("num_tokens", "penalty"),
    # DAPO's own setting: L_max = 20,480 and L_cache = 4,096.
    [(0, 0), (16_384, 0), (16_385, -1 / 4096), (18_432, -0.5), (20_480, -1), (99_999, -1)],
)
def test_the_overlong_penalty_is_that_of_dapo(num_tokens: int, penalty: float):
    config = OverlongConfig(max_tokens=20_480, buffer_tokens=4_096)
    assert overlong(num_tokens, config) == pytest.approx(penalty)
    assert overlong(num_tokens, OverlongConfig(max_tokens=20_480)) == pytest.approx(penalty)
    half = OverlongConfig(max_tokens=20_480, buffer_tokens=4_096, weight=0.5)
    assert overlong(num_tokens, half) == pytest.approx(penalty / 2)


def test_the_buffer_is_a_fifth_of_the_longest_answer_unless_it_is_set():
    lengths = {1: 1, 3: 1, 8: 2, 32: 6, 48: 10, 4_096: 819, 20_480: 4_096}
    assert {n: OverlongConfig(max_tokens=n).buffer for n in lengths} == lengths
    assert OverlongConfig(max_tokens=32, buffer_tokens=32).buffer == 32


@pytest.mark.parametrize(
    ("text", "ngram", "share"),
    [
        ("a b c d", 3, 0),
        ("a b c a b c", 3, 1 / 4),  # abc bca cab abc: three different of four
        ("a a a a a", 3, 2 / 3),
        ("A a\nA  a", 2, 2 / 3),  # aa aa aa
        ("a b", 3, 0),
        ("", 3, 0),
        ("a b a b", 1, 1 / 2),
        ("猫猫猫猫", 3, 1 / 2),  # by character
        ("猫在跑", 3, 0),
    ],
)
def test_the_repetition_penalty_is_the_share_of_repeated_ngrams(
    text: str, ngram: int, share: float
):
    config = RepetitionConfig(weight=0.5, ngram=ngram)
    assert repetition(text, config) == pytest.approx(-0.5 * share)


def test_penalties_are_parts_of_their_own_and_may_make_a_reward_negative():
    config = RewardConfig(
        overlong=OverlongConfig(max_tokens=100, buffer_tokens=100),
        repetition=RepetitionConfig(weight=1.0, ngram=1),
    )
    result = reward(SAMPLE, f"a a a a {RIGHT}", config, num_tokens=50)
    assert result.parts == {
        "accuracy": 1.0, "format": 1.0, "overlong": -0.5, "repetition": pytest.approx(-3 / 5),
    }  # fmt: skip
    assert result.value == pytest.approx(1 - 0.5 - 0.6)
    assert reward(SAMPLE, "a a a a", config, num_tokens=500).value == pytest.approx(-1.75)


def test_without_penalties_there_are_no_such_parts():
    assert reward(SAMPLE, RIGHT, num_tokens=10**6).parts == {"accuracy": 1.0, "format": 1.0}


def test_the_overlong_penalty_needs_the_number_of_tokens():
    config = RewardConfig(overlong=OverlongConfig(max_tokens=100, buffer_tokens=50))
    with pytest.raises(UserError, match="come without their number of tokens; pass num_tokens"):
        reward(SAMPLE, RIGHT, config)
    for counts in (None, [None], [5, None]):
        items = [(SAMPLE, RIGHT)] * (len(counts) if counts else 1)
        with pytest.raises(UserError, match="pass num_tokens"):
            score_many(items, config, num_tokens=counts)
    with pytest.raises(ValueError, match="1 answers, but 2 numbers"):
        score_many([(SAMPLE, RIGHT)], config, num_tokens=[1, 2])


def test_a_batch_gets_the_penalties_that_one_answer_gets():
    config = RewardConfig(
        overlong=OverlongConfig(max_tokens=100, buffer_tokens=50),
        repetition=RepetitionConfig(weight=0.3),
    )
    texts = ["a b c a b c " + RIGHT, "<answer>six six six six</answer>", ""]
    scores = score_many([(SAMPLE, text) for text in texts], config, num_tokens=[60, 80, 200])
    singles = [reward(SAMPLE, t, config, n) for t, n in zip(texts, (60, 80, 200), strict=True)]
    assert scores == singles


def test_a_task_may_have_weights_of_its_own():
    config = RewardConfig(tasks={"numerical": TaskConfig(format_weight=0.5)})
    assert reward(SAMPLE, "5", config).value == 0.5
    yes = Sample(id="q2", problem="?", answer=True, problem_type=ProblemType.boolean)
    assert reward(yes, "yes", config).value == pytest.approx(0.9)
    assert config.weights("numerical") == (0.5, 0.5)
    assert RewardConfig(tasks={"ocr": TaskConfig(accuracy_weight=0.75)}).weights("ocr") == (
        0.75,
        0.25,
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RewardConfig(tasks={"riddle": TaskConfig()}), "reward.tasks.riddle: no such"),
        (lambda: RewardConfig(tasks={"ocr": TaskConfig(format_weight=1.5)}), "tasks.ocr.accuracy"),
        (lambda: RewardConfig(tasks={"ocr": TaskConfig(format_weight=0.5, accuracy_weight=0.6)}),
         "sum to 1, got 0.6 and 0.5"),
        (lambda: OverlongConfig(max_tokens=10, buffer_tokens=11), r"from 1 to max_tokens \(10\)"),
        (lambda: OverlongConfig(weight=-1), "overlong.weight must be at least 0"),
        (lambda: RepetitionConfig(ngram=0), "repetition.ngram must be at least 1"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(make, message: str):
    with pytest.raises(UserError, match=message):
        make()
