import random

import numpy as np
import pytest

from easyvideor1.rewards import GoldError, extract, render_gold, reward
from easyvideor1.rewards.tasks.regression import mean_relative_accuracy
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer) -> Sample:
    return Sample(id="q1", problem="How far?", answer=answer, problem_type=ProblemType.regression)


def accuracy(text: str, gold: Answer) -> float:
    return reward(question(gold), f"<answer>{text}</answer>").parts["accuracy"]


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("100", 100, 1.0),
        ("95", "100", 1.0),
        ("70", "100", 0.5),
        ("4", "5", 0.6),
        ("6", "5", 0.6),
        ("12", "10", 0.6),
        ("11", "20", 0.1),
        ("50", "100", 0.1),
        ("49", "100", 0.0),
        ("200", "100", 0.0),
        ("-95", "-100", 1.0),
        ("95", "-100", 0.0),
        ("0", "0", 1.0),
        ("-0.0", "0", 1.0),
        ("0.001", "0", 0.0),
        ("0", "5", 0.0),
        ("about 95 metres", 100, 1.0),
        ("ninety-five", 100, 1.0),
        ("95 cm", "100 cm", 1.0),
        ("95%", 1, 1.0),
        ("95%", 100, 1.0),
        ("0.95", "100%", 1.0),
        ("95%", "100%", 1.0),
        ("0.95%", "100%", 0.0),
        ("1e300", 1e-300, 0.0),
    ],
)
def test_the_reward_is_the_mean_relative_accuracy(text: str, gold: Answer, expected: float):
    assert accuracy(text, gold) == expected


def vsi_bench(pred: float, target: float) -> float:
    """As in VSI-Bench's code (lmms_eval/tasks/vsibench/utils.py), for targets above 0."""
    thresholds = np.linspace(0.5, 0.95, int((0.95 - 0.5) / 0.05 + 2))
    return (abs(pred - target) / target <= 1 - thresholds).mean()


def test_every_score_is_the_one_that_numpy_gives():
    rng = random.Random(0)
    pairs = [(p, g) for g in range(1, 41) for p in range(0, 2 * g + 2)]
    for _ in range(2000):
        gold = rng.choice([rng.randint(1, 1000) / 10, rng.uniform(1e-3, 1e6)])
        pairs.append((gold * rng.choice([rng.uniform(0, 2), rng.randint(0, 40) / 20]), gold))
    for value, gold in pairs:
        assert mean_relative_accuracy(value, gold) == vsi_bench(value, gold), (value, gold)
        assert mean_relative_accuracy(-value, -gold) == vsi_bench(value, gold), (value, gold)


def test_a_text_without_a_number_is_no_answer():
    extracted = extract("<answer>far</answer>", question(5))
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


@pytest.mark.parametrize("gold", [5, 0, -2.5, "12.5 m", "1,234", "50%", "three"])
def test_the_gold_answer_scores_one_in_every_form(gold: Answer):
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize("gold", ["many", "", "3 to 5", True, [5]])
def test_a_gold_answer_that_is_no_number_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected one number"):
        render_gold(question(gold))
