"""Alarms about answers, each by a case that raises it alone."""

import random
from typing import Any

import pytest

from easyvideor1.evaluate.alarms import alarms, shares
from easyvideor1.evaluate.config import AlarmConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import PredictionStatus, ProblemType
from tests.evaluate.test_metrics import outcomes, prediction, sample

COUNT = 200


def asked(
    answer_of: Any, text_of: Any, kind: ProblemType = ProblemType.multiple_choice, **fields: Any
):
    names = [f"q{index}" for index in range(COUNT)]
    samples = [sample(name, answer_of(i), kind) for i, name in enumerate(names)]
    predictions = [prediction(name, text_of(i), **fields) for i, name in enumerate(names)]
    return outcomes(samples, predictions)


def letter(index: int) -> str:
    return "ABCD"[random.Random(index).randrange(4)]


def raised(found: list) -> list[str]:
    return [alarm.name for alarm in alarms(found, AlarmConfig())]


def test_guesses_that_lie_as_the_right_letters_do_raise_nothing():
    assert raised(asked(letter, lambda i: f"<answer>{letter(i + COUNT)}</answer>")) == []


def test_one_letter_for_all_choices_is_told():
    found = asked(letter, lambda i: "<answer>B</answer>")
    assert raised(found) == ["letter_skew"]
    share_of_b = sum(letter(i) == "B" for i in range(COUNT)) / COUNT
    assert shares(found, 50)["letter_skew"] == pytest.approx(1 - share_of_b), "by hand"


def test_answers_cut_off_and_answers_that_repeat_are_told():
    found = asked(
        letter, lambda i: f"<answer>{letter(i)}</answer>", status=PredictionStatus.truncated
    )
    assert raised(found) == ["truncated"]
    loop = "the man opens the door " * 9
    found = asked(letter, lambda i: (loop if i < 5 else "") + f"<answer>{letter(i)}</answer>")
    assert raised(found) == ["repetitive"]
    assert shares(found, 50)["repetitive"] == 5 / COUNT


def test_what_cannot_be_read_and_what_did_not_come_is_told():
    found = asked(letter, lambda i: f"<answer>{letter(i)}</answer>" if i >= 20 else "hm")
    assert raised(found) == ["no_answer"]
    names = [f"q{index}" for index in range(COUNT)]
    samples = [sample(name, letter(i)) for i, name in enumerate(names)]
    came = [prediction(name, f"<answer>{letter(i)}</answer>") for i, name in enumerate(names[:190])]
    failed = [prediction(name, status=PredictionStatus.load_failed) for name in names[190:]]
    found = outcomes(samples, [*came, *failed])
    assert raised(found) == ["not_answered"]
    assert shares(found, 50)["not_answered"] == pytest.approx(10 / COUNT)


def test_one_text_for_all_questions_is_told_where_they_are_no_choices():
    found = asked(lambda i: float(i), lambda i: "<answer>7</answer>", ProblemType.numerical)
    assert raised(found) == ["same_answer"]
    found = asked(lambda i: float(i), lambda i: f"<answer>{i}</answer>", ProblemType.numerical)
    assert raised(found) == []


def test_few_answers_say_nothing_and_limits_are_shares():
    few = asked(letter, lambda i: "<answer>B</answer>")[:49]
    assert alarms(few, AlarmConfig()) == []
    with pytest.raises(UserError, match=r"alarms\.letter_skew is a share, 0 to 1, got 15"):
        AlarmConfig(letter_skew=15)
