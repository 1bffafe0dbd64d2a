"""Reward functions from files, and tasks of other installed packages."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from easyvideor1.rewards import RewardConfig, compat, score_many
from easyvideor1.rewards.config import OverlongConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus

SAMPLE = Sample(id="q1", problem="Which?", answer="B", problem_type=ProblemType.multiple_choice,
                options=("Red", "Blue"), extra={"level": 3})  # fmt: skip
CLIP = Sample(id="q2", problem="When?", answer=[4, 8], problem_type=ProblemType.temporal_grounding)


def function(folder: Path, source: str, name: str = "reward.py") -> str:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return str(path)


def test_a_batch_function_gets_all_answers_in_one_call(tmp_path: Path):
    path = function(tmp_path, """
        calls = []

        def main(reward_inputs, bonus=0.0):
            calls.append(len(reward_inputs))
            return [
                {"overall": len(one["response"]) / 10 + bonus, "format": 1.0, "calls": len(calls),
                 "is_gold": one["ground_truth"] in ("B", "[4, 8]"),
                 "level": one["extra"].get("level", 0)}
                for one in reward_inputs
            ]
    """)  # fmt: skip
    config = RewardConfig(function=f"{path}:main", function_options={"bonus": 0.5})
    first, second = score_many([(SAMPLE, "ab"), (CLIP, "abcd")], config)
    assert first.value == pytest.approx(0.7)
    assert second.value == pytest.approx(0.9)
    assert first.parts == {
        "accuracy": pytest.approx(0.7), "format": 1.0, "calls": 1.0, "is_gold": 1.0, "level": 3.0,
    }  # fmt: skip
    assert second.parts["is_gold"] == 1.0


def test_a_sequential_function_runs_in_workers_under_the_deadline(tmp_path: Path):
    path = function(tmp_path, """
        import os, time
        REWARD_TYPE = "sequential"

        def compute_score(reward_input, weight):
            text = reward_input["response"]
            if text == "hang":
                time.sleep(60)
            if text == "die":
                os._exit(3)
            if text == "raise":
                raise KeyError("gone")
            return {"overall": weight * (text == reward_input["ground_truth"]), "pid": os.getpid()}
    """)  # fmt: skip
    config = RewardConfig(
        function=f"{path}:compute_score", function_options={"weight": 0.5}, deadline_s=1.0
    )
    texts = ["B", "A", "hang", "die", "raise", "B"]
    scores = score_many([(SAMPLE, text) for text in texts], config)
    assert [score.status.value for score in scores] == [
        "ok", "ok", "timeout", "error", "error", "ok",
    ]  # fmt: skip
    assert [score.value for score in scores] == [0.5, 0.0, 0.0, 0.0, 0.0, 0.5]
    assert scores[4].detail == "KeyError: 'gone'"
    assert scores[0].parts["pid"] != os.getpid()


def test_our_own_easyr1_file_is_such_a_function():
    config = RewardConfig(function=f"{compat.__file__}:main")
    items = [(SAMPLE, "<answer>blue</answer>"), (CLIP, '<answer>{"time": [2, 6]}</answer>')]
    assert [score.value for score in score_many(items, config)] == pytest.approx([1.0, 0.4])


def test_penalties_are_added_to_what_a_function_gives(tmp_path: Path):
    path = function(tmp_path, "def main(inputs): return [{'overall': 1, 'accuracy': 0}]")
    overlong = OverlongConfig(max_tokens=10, buffer_tokens=10)
    config = RewardConfig(function=path, overlong=overlong)
    (score,) = score_many([(SAMPLE, "B")], config, num_tokens=[5])
    assert (score.value, score.parts["accuracy"], score.parts["overlong"]) == (0.5, 0.0, -0.5)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("def main(inputs): return []", "main", "returned 0 results for 1 answers"),
        ("def main(inputs): raise RuntimeError('no data')", "main", "RuntimeError: no data"),
        ("def other(inputs): return []", "main", "has no function main"),
        ("import no_such_module", "main", "cannot be imported: ModuleNotFoundError"),
        ("REWARD_TYPE = 'async'\ndef main(inputs): return []", "main", "REWARD_TYPE is 'async'"),
    ],
)
def test_a_function_that_cannot_be_used_is_an_error(
    tmp_path: Path, source: str, name: str, message: str
):
    path = function(tmp_path, source)
    with pytest.raises(UserError, match=message):
        score_many([(SAMPLE, "B")], RewardConfig(function=f"{path}:{name}"))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(UserError, match="there is no file"):
        score_many([(SAMPLE, "B")], RewardConfig(function=f"{tmp_path}/no.py:main"))


@pytest.mark.parametrize("result", ["1.0", "{'score': 1}", "{'overall': float('nan')}",
                                    "{'overall': 'high'}", "None"])  # fmt: skip
def test_a_result_that_is_no_score_is_a_status(tmp_path: Path, result: str):
    path = function(tmp_path, f"def main(inputs): return [{result} for _ in inputs]")
    (score,) = score_many([(SAMPLE, "B")], RewardConfig(function=path))
    assert (score.status, score.value) == (ScoreStatus.error, 0.0)


# --- entry points -------------------------------------------------------------------------------

TASK = """
    from easyvideor1.rewards import NoAnswer, Task

    class Shout(Task[str]):
        def instruction(self, sample, config): return "Shout in <answer></answer>."
        def extract(self, answer, sample, config):
            if not answer.text.isupper():
                raise NoAnswer("not loud")
            return answer.text
        def score(self, value, sample, config): return float(value == str(sample.answer).upper())
        def render_gold(self, sample, config): return str(sample.answer).upper()
        def is_quick(self, text, sample, config): return "SLOW" not in text
"""
USE = """
    from easyvideor1.rewards import instruction, score_many
    from easyvideor1.rewards.registry import installed_tasks
    from easyvideor1.schema.records import ProblemType, Sample

    if __name__ == "__main__":
        sample = Sample(id="1", problem="?", answer="slow dog", problem_type=ProblemType.ocr)
        print(installed_tasks())
        print(instruction(sample))
        texts = ["<answer>SLOW DOG</answer>", "<answer>dog</answer>"]
        print([score.value for score in score_many([(sample, text) for text in texts])])
"""


def install(folder: Path, entry_points: str) -> None:
    """A package as an installer leaves it: a module and its metadata."""
    (folder / "loud.py").write_text(textwrap.dedent(TASK))
    info = folder / "loud_task-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-task\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[easyvideor1.tasks]\n{entry_points}\n")


def use(folder: Path) -> subprocess.CompletedProcess:
    script = folder / "use.py"
    script.write_text(textwrap.dedent(USE))
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, timeout=120
    )


def test_the_task_of_an_installed_package_takes_the_place_of_ours(tmp_path: Path):
    install(tmp_path, "ocr = loud:Shout")
    done = use(tmp_path)
    assert done.stdout.splitlines() == [
        "{'ocr': 'loud-task 1.2 (loud:Shout)'}",
        "Shout in <answer></answer>.",
        "[1.0, 0.05]",  # the first in a worker, the second here
    ], done.stderr
    assert "ocr is asked and scored by loud-task 1.2 (loud:Shout)" in done.stderr


@pytest.mark.parametrize(
    ("entry_points", "reason"),
    [
        ("riddle = loud:Shout", "registers a task 'riddle': unknown problem type"),
        ("ocr = loud:missing", "registers a task 'ocr': module 'loud' has no attribute"),
        ("ocr = loud:NoAnswer", "which is no subclass of Task"),
        ("ocr = loud:Shout\nOCR = loud:Shout", "both register a task for ocr"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_an_error(
    tmp_path: Path, entry_points: str, reason: str
):
    install(tmp_path, entry_points)
    done = use(tmp_path)
    assert done.returncode == 1
    assert "UserError: loud-task 1.2 (loud:" in done.stderr
    assert reason in done.stderr
