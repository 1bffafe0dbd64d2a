"""Answers of all problem types with the accuracy that is right, each for a kind of answer."""

import json
from pathlib import Path

import pytest

from easyvideor1.rewards import reward, score_many
from easyvideor1.schema.formats import Context, parse
from easyvideor1.schema.records import ProblemType, Sample

FILE = Path(__file__).parent / "reward_cases.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
FIELDS = ("problem_type", "answer", "options")


def sample_of(case: dict) -> Sample:
    row = {name: case[name] for name in FIELDS if name in case}
    return parse({"problem": "?", **row}, 1, Context(path=FILE, format="easyvideor1"))


def test_the_cases_are_of_all_types():
    # `regression` and `numerical` share a gold form; every type has a line of its own.
    assert {case["problem_type"] for case in CASES} == {kind.value for kind in ProblemType}
    assert len(CASES) == 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['problem_type']}: {case['why']}")
def test_an_answer_has_the_accuracy_that_is_right(case: dict):
    result = reward(sample_of(case), case["response"])
    assert result.parts["accuracy"] == pytest.approx(case["accuracy"], abs=case["tolerance"])


def test_all_of_them_are_scored_as_one_batch():
    scores = score_many([(sample_of(case), case["response"]) for case in CASES])
    assert [score.parts["accuracy"] for score in scores] == [
        pytest.approx(case["accuracy"], abs=case["tolerance"]) for case in CASES
    ]
