"""A short run of the fuzzer; `python -m tests.rewards.fuzz` is the long one."""

import pytest

from easyvideor1.schema.records import ProblemType
from tests.rewards import fuzz

COUNT = 5_000


@pytest.mark.timeout(600)  # far less alone; other tests may run beside it
def test_hostile_answers_of_all_types_have_a_score_in_time():
    report = fuzz.run(COUNT, seed=7)
    print(report)
    assert report.faults == []
    assert (report.count, report.exceptions) == (COUNT, 0)
    assert set(report.by_type) == set(ProblemType)
    for kind, figures in report.by_type.items():
        assert figures.count > 0, kind
        assert figures.longest_s <= figures.deadline_s, kind


def test_the_fuzzer_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch):
    def broken(sample, text, config):
        raise ZeroDivisionError("found")

    monkeypatch.setattr("easyvideor1.rewards.batch.extract", broken)
    report = fuzz.run(50, seed=7, only=ProblemType.boolean)
    assert report.exceptions == 50
    assert "answer 0 (boolean): error: ZeroDivisionError: found" in report.faults
