import os
import signal
import threading
import time

import pytest

from easyvideor1.rewards import RewardConfig, count_statuses, reward, score_many, workers
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus

QUICK = Sample(
    id="quick",
    problem="?",
    answer="B",
    problem_type=ProblemType.multiple_choice,
    options=("Red", "Blue"),
)
WORDS = [f"word{index % 97}" for index in range(5000)]


def essay(num_words: int) -> tuple[Sample, str]:
    """A sample and an answer that take num_words² steps to compare; 500 words are not quick."""
    gold = " ".join(WORDS[:num_words])
    sample = Sample(id="essay", problem="?", answer=gold, problem_type=ProblemType.open_ended)
    return sample, "<answer>" + " ".join(reversed(WORDS[:num_words])) + "</answer>"


def test_a_batch_scores_as_one_by_one_and_in_order():
    items = [(QUICK, "<answer>B</answer>"), essay(600), (QUICK, "A"), essay(500), (QUICK, "?")]
    assert score_many(items) == [reward(sample, text) for sample, text in items]
    assert score_many([]) == []


def test_quick_answers_start_no_process(monkeypatch: pytest.MonkeyPatch):
    def refuse(workers: int):
        raise AssertionError("a pool was asked for")

    monkeypatch.setattr(workers, "pool", refuse)
    scores = score_many([(QUICK, "<answer>B</answer>")] * 1000)
    assert count_statuses(scores) == dict.fromkeys(ScoreStatus, 0) | {"ok": 1000}


def test_an_answer_past_its_deadline_is_a_timeout_and_the_rest_is_scored():
    items = [essay(5000), (QUICK, "<answer>B</answer>"), essay(600)]
    slow, quick, small = score_many(items, RewardConfig(deadline_s=0.5))
    assert slow.status is ScoreStatus.timeout
    assert slow.value == 0.0
    assert slow.parts == {"accuracy": 0.0, "format": 0.0}
    assert "within 0.5 s" in slow.detail
    assert (quick.status, small.status) == (ScoreStatus.ok, ScoreStatus.ok)


def test_a_worker_that_dies_is_an_error_and_is_replaced():
    config = RewardConfig(deadline_s=60, workers=1)
    score_many([essay(600)], config)  # starts the pool

    def kill() -> None:
        time.sleep(0.5)
        for pid in workers.pool(1)._pool_manager.worker_manager.workers:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    (lost,) = score_many([essay(5000)], config)
    killer.join()
    assert (lost.status, lost.value) == (ScoreStatus.error, 0.0)
    assert "died" in lost.detail
    assert score_many([essay(600)], config)[0].status is ScoreStatus.ok


def test_a_scorer_that_raises_is_an_error_with_its_reason():
    broken = Sample(id="q9", problem="?", answer="Z", problem_type=ProblemType.multiple_choice,
                    options=("Red", "Blue"))  # fmt: skip
    unknown = Sample(id="q8", problem="?", answer="x", problem_type=ProblemType.svg_code)
    scores = score_many([(broken, "A"), (unknown, "x"), (QUICK, "<answer>B</answer>")])
    assert count_statuses(scores) == dict.fromkeys(ScoreStatus, 0) | {"ok": 1, "error": 2}
    assert "GoldError: sample q9: answer" in scores[0].detail
    assert "no reward for problem_type" in scores[1].detail
