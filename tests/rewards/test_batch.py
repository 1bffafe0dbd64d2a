import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from easyvideor1.rewards import (
    RewardConfig,
    ScorerUnavailableError,
    batch,
    check_scoring,
    count_statuses,
    fork_server,
    registry,
    reward,
    score_many,
    workers,
)
from easyvideor1.rewards.config import OpenEndedConfig, OpenEndedMetric
from easyvideor1.rewards.tasks.open_ended import OpenEnded
from easyvideor1.schema.errors import UserError
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


def test_answers_that_share_a_worker_are_scored_one_by_one_when_one_of_them_hangs(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(OpenEnded, "batch_size", 4)
    items = [essay(520 + index) for index in range(6)]
    assert score_many(items) == [reward(*item) for item in items]
    items[1] = essay(5000)
    scores = score_many(items, RewardConfig(deadline_s=0.5))
    assert [score.status for score in scores] == [
        ScoreStatus.timeout if index == 1 else ScoreStatus.ok for index in range(6)
    ]


def test_what_tasks_import_does_not_count_against_a_deadline():
    """In a process of its own, whose first slow answer starts the workers."""
    done = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["ok", "timeout", "ok", "multiprocessing's", "server:", "None"]
    wait_for(lambda: not is_alive(done.stderr), 30)


HANG = """
import os
from pathlib import Path

REWARD_TYPE = "sequential"

def main(reward_input):
    Path(reward_input["response"]).write_text(str(os.getpid()))
    10 ** 10**10  # lets no other thread run, for hours
"""


def test_workers_end_with_the_process_that_was_killed(tmp_path: Path):
    (tmp_path / "hang.py").write_text(HANG)
    pid_file = tmp_path / "pid"
    command = [sys.executable, __file__, str(tmp_path / "hang.py"), str(pid_file)]
    user = subprocess.Popen(command)
    wait_for(lambda: pid_file.exists() and pid_file.read_text() != "", 120)
    worker = pid_file.read_text()
    assert is_alive(worker)
    user.kill()
    user.wait()
    wait_for(lambda: not is_alive(worker), 30)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_alive(pid: str) -> bool:
    return Path(f"/proc/{int(pid)}").exists()


def first_scores() -> None:
    """Score under a deadline that is shorter than the imports; say what is left running."""
    from multiprocessing import forkserver

    config = RewardConfig(deadline_s=0.4, workers=1)
    for num_words in (501, 5000, 501):
        print(score_many([essay(num_words)], config)[0].status.value)
    # An engine of the same process fills that one.
    print("multiprocessing's server:", forkserver._forkserver._forkserver_pid)
    print(fork_server._SERVER._forkserver_pid, file=sys.stderr)


def test_a_task_may_refuse_to_score_here(monkeypatch: pytest.MonkeyPatch):
    def refuse(self, config: RewardConfig) -> None:
        raise UserError("no sandbox here")

    monkeypatch.setattr(OpenEnded, "check", refuse)
    monkeypatch.setattr(batch, "_checked", set())
    assert score_many([(QUICK, "B")])[0].parts["accuracy"] == 1.0
    with pytest.raises(UserError, match="no sandbox here"):
        score_many([(QUICK, "B"), essay(10)])
    check_scoring([ProblemType.boolean])
    with pytest.raises(UserError, match="no sandbox here"):
        check_scoring([ProblemType.boolean, ProblemType.open_ended])


def test_settings_of_a_judge_are_checked_before_anything_is_scored():
    judged = RewardConfig(open_ended=OpenEndedConfig(metric=OpenEndedMetric.judge))
    with pytest.raises(UserError, match=r"reward\.judge\.base_url is not set"):
        check_scoring([ProblemType.open_ended], judged)
    check_scoring([ProblemType.boolean], judged)
    with pytest.raises(UserError, match="there is no file"):
        check_scoring([ProblemType.boolean], RewardConfig(function="no.py:main"))


def test_what_is_not_there_while_scoring_is_a_status(monkeypatch: pytest.MonkeyPatch):
    def fail(self, *_) -> float:
        raise ScorerUnavailableError("the sandbox is gone")

    monkeypatch.setattr(OpenEnded, "score", fail)
    (score,) = score_many([essay(10)])
    assert (score.status, score.detail) == (ScoreStatus.unavailable, "the sandbox is gone")


def test_a_scorer_that_raises_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(registry._TASKS, ProblemType.svg_code)
    broken = Sample(id="q9", problem="?", answer="Z", problem_type=ProblemType.multiple_choice,
                    options=("Red", "Blue"))  # fmt: skip
    unknown = Sample(id="q8", problem="?", answer="x", problem_type=ProblemType.svg_code)
    scores = score_many([(broken, "A"), (unknown, "x"), (QUICK, "<answer>B</answer>")])
    assert count_statuses(scores) == dict.fromkeys(ScoreStatus, 0) | {"ok": 1, "error": 2}
    assert "GoldError: sample q9: answer" in scores[0].detail
    assert "no reward for problem_type" in scores[1].detail


if __name__ == "__main__":
    if len(sys.argv) == 1:
        first_scores()
    else:
        score_many([(QUICK, sys.argv[2])], RewardConfig(function=sys.argv[1], deadline_s=600))
