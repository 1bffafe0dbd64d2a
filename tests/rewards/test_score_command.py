import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.evaluate.config import EvaluateConfig
from easyvideor1.rewards.config import OverlongConfig, RewardConfig, ScoreConfig, register
from easyvideor1.rewards.score_file import score_file
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.train.config import TrainConfig

ROWS = [
    {"id": "a", "problem": "?", "problem_type": "multiple choice", "answer": "B",
     "options": ["Red", "Blue"]},
    {"id": "b", "problem": "?", "problem_type": "numerical", "answer": 5},
    {"id": "c", "problem": "?", "problem_type": "boolean", "answer": True},
    {"id": "d", "problem": "?", "problem_type": "boolean", "answer": False},
]  # fmt: skip
TEXTS = ["<answer>B</answer>", "five", "<answer>perhaps</answer>", "No"]


def write(path: Path, rows: list) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def evr_score(*overrides: str, cwd: Path) -> subprocess.CompletedProcess:
    command = Path(sys.executable).with_name("evr-score")
    return subprocess.run([command, *overrides], capture_output=True, text=True, cwd=cwd)


def test_the_command_scores_rows_that_hold_their_sample(tmp_path: Path):
    answers = [{**row, "response": text} for row, text in zip(ROWS, TEXTS, strict=True)]
    source = write(tmp_path / "answers.jsonl", answers)
    done = evr_score(f"input={source}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "answers.scores.jsonl")
    assert [{k: v for k, v in row.items() if k != "score"} for row in rows] == read(source)
    assert [row["score"]["value"] for row in rows] == pytest.approx([1.0, 0.9, 0.05, 0.9])
    assert rows[2]["score"] == {
        "value": 0.05,
        "accuracy": 0.0,
        "format": 0.5,
        "status": "no_answer",
        "extracted": None,
        "detail": "no answer is stated",
    }
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[0][:5] == ["problem_type", "n", "mean", "accuracy", "format"]
    assert table[0][5:] == ["no_answer", "timeout", "no_verdict", "unavailable", "error"]
    assert table[1] == ["boolean", "2", "0.4750", "0.5000", "0.2500", "1", "0", "0", "0", "0"]
    assert table[4] == ["all", "4", "0.7125", "0.7500", "0.3750", "1", "0", "0", "0", "0"]
    assert sorted(os.listdir(tmp_path)) == ["answers.jsonl", "answers.scores.jsonl"]


def test_answers_are_joined_with_the_samples_of_data_files(tmp_path: Path):
    data = write(tmp_path / "data.jsonl", ROWS)
    source = write(
        tmp_path / "answers.jsonl",
        [
            {"id": "b", "response": "5", "model": "m"},
            {"id": "b", "response": "6"},
            {"id": "d", "response": ""},
        ],
    )
    output = tmp_path / "new" / "scores.jsonl"
    mean = score_file(ScoreConfig(input=str(source), samples=[str(data)], output=str(output)))
    rows = read(output)
    assert [row["score"]["accuracy"] for row in rows] == [1.0, 0.0, 0.0]
    assert rows[0]["model"] == "m"
    assert mean == pytest.approx(0.3)


def test_scored_rows_can_be_scored_again(tmp_path: Path):
    source = write(tmp_path / "a.jsonl", [{**ROWS[0], "response": "B"}])
    score_file(ScoreConfig(input=str(source), output=str(tmp_path / "b.jsonl")))
    score_file(ScoreConfig(input=str(tmp_path / "b.jsonl"), output=str(tmp_path / "c.jsonl")))
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "c.jsonl").read_bytes()


GOOD = {**ROWS[0], "response": "B"}


@pytest.mark.parametrize(
    ("row", "where", "reason"),
    [
        ("{broken", "line", "a JSON object"),
        ("[1]", "line", "a JSON object"),
        ({**ROWS[0]}, "response", "the text of the answer"),
        ({**ROWS[0], "response": 5}, "response", "the text of the answer"),
        ({"id": "x", "response": "B"}, "problem_type", "samples=[FILE]"),
        ({**GOOD, "problem_type": "riddle"}, "problem_type", "one of"),
        ({**GOOD, "answer": "Z"}, "answer", "a letter from A to B"),
        ({**GOOD, "problem_type": "boolean", "answer": "maybe"}, "answer", "true or false"),
        ({**GOOD, "answer": None}, "answer", "not hidden"),
        ({**GOOD, "anwser": "B"}, "anwser", "did you mean answer?"),
    ],
)
def test_a_bad_row_is_named_by_file_row_and_field(tmp_path: Path, row, where: str, reason: str):
    source = write(tmp_path / "answers.jsonl", [GOOD, "", row])
    with pytest.raises(DataError) as caught:
        score_file(ScoreConfig(input=str(source)))
    assert str(caught.value).startswith(f"{source}:3:{where}: got")
    assert reason in str(caught.value)
    assert os.listdir(tmp_path) == ["answers.jsonl"]


def test_an_id_that_no_data_file_has_is_a_bad_row(tmp_path: Path):
    data = write(tmp_path / "data.jsonl", ROWS)
    source = write(tmp_path / "answers.jsonl", [{"id": "z", "response": "B"}])
    with pytest.raises(DataError, match=r"answers.jsonl:1:id: got 'z', expected the id of one of"):
        score_file(ScoreConfig(input=str(source), samples=[str(data)]))


def test_inputs_that_cannot_be_are_refused(tmp_path: Path):
    source = write(tmp_path / "answers.jsonl", [GOOD])
    empty = write(tmp_path / "empty.jsonl", [])
    with pytest.raises(UserError, match="there is no such file"):
        score_file(ScoreConfig(input=str(tmp_path / "none.jsonl")))
    with pytest.raises(UserError, match="holds no answers"):
        score_file(ScoreConfig(input=str(empty)))
    with pytest.raises(UserError, match="would replace the input"):
        score_file(ScoreConfig(input=str(source), output=str(source)))


def test_a_bad_row_ends_the_command_with_one_paragraph(tmp_path: Path):
    source = write(tmp_path / "answers.jsonl", [{**GOOD, "answer": "Z"}])
    done = evr_score(f"input={source}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"evr-score: {source}:1:answer: got 'Z', expected a letter")
    assert len(done.stderr.splitlines()) == 1


def test_rows_may_lack_problem_and_media_and_hold_more(tmp_path: Path):
    cases = Path(__file__).parent / "reward_cases.jsonl"
    known = {"multiple_choice", "numerical", "boolean", "temporal_grounding", "open_ended"}
    rows = [row for row in read(cases) if row["problem_type"] in known]
    source = write(tmp_path / "cases.jsonl", rows)
    score_file(ScoreConfig(input=str(source)))
    for row in read(tmp_path / "cases.scores.jsonl"):
        assert row["score"]["accuracy"] == pytest.approx(row["accuracy"], abs=row["tolerance"])
        assert row["why"]


def test_a_sample_of_our_own_format_may_stand_in_a_row(tmp_path: Path):
    row = {"id": "v1", "problem": "<video>When?", "problem_type": "temporal_grounding",
           "answer": [4, 8], "media": [{"kind": "video", "path": "a.mp4"}], "extra": {"a": 1},
           "response": "4 - 8", "model": "m"}  # fmt: skip
    source = write(tmp_path / "a.jsonl", [row])
    assert score_file(ScoreConfig(input=str(source))) == pytest.approx(0.9)


def test_a_file_of_several_chunks_keeps_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("easyvideor1.rewards.score_file.CHUNK", 3)
    rows = [{**ROWS[1], "answer": n, "response": "<answer>7</answer>"} for n in range(10)]
    source = write(tmp_path / "a.jsonl", rows)
    score_file(ScoreConfig(input=str(source)))
    scored = read(tmp_path / "a.scores.jsonl")
    assert [row["answer"] for row in scored] == list(range(10))
    assert [row["score"]["accuracy"] for row in scored] == [float(n == 7) for n in range(10)]


def test_penalties_are_parts_of_their_own(tmp_path: Path):
    rows = [{**ROWS[1], "response": "<answer>5</answer>", "num_tokens": n} for n in (10, 75, 999)]
    reward = RewardConfig(overlong=OverlongConfig(max_tokens=100, buffer_tokens=50))
    source = write(tmp_path / "a.jsonl", rows)
    score_file(ScoreConfig(input=str(source), reward=reward))
    scores = [row["score"] for row in read(tmp_path / "a.scores.jsonl")]
    assert [score["overlong"] for score in scores] == pytest.approx([0, -0.5, -1])
    assert [score["value"] for score in scores] == pytest.approx([1, 0.5, 0])
    write(source, [{**rows[0], "num_tokens": None}])
    with pytest.raises(DataError, match=r"a.jsonl:1:num_tokens: got None, expected the length"):
        score_file(ScoreConfig(input=str(source), reward=reward))


def test_a_judge_is_not_asked_about_a_question_that_is_not_given(tmp_path: Path):
    row = {"problem_type": "preference", "answer": {"reference": "red"}, "response": "red"}
    source = write(tmp_path / "a.jsonl", [row])
    with pytest.raises(DataError, match="problem: got None, expected the question, which the"):
        score_file(ScoreConfig(input=str(source)))


def test_gold_answers_that_score_one_pass_the_check(tmp_path: Path):
    hidden = {**ROWS[0], "id": "h", "answer": None}
    judged = {"id": "p", "problem": "?", "problem_type": "preference", "answer": None}
    data = write(tmp_path / "data.jsonl", [*ROWS, hidden, judged])
    done = evr_score("job=check", f"samples=[{data}]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[0] == ["problem_type", "right", "wrong", "hidden", "not", "checked"]
    assert table[1:] == [
        ["boolean", "2", "0", "0", "0"],
        ["multiple_choice", "1", "0", "1", "0"],
        ["numerical", "1", "0", "0", "0"],
        ["preference", "0", "0", "0", "1"],
    ]


def test_gold_answers_that_do_not_score_one_are_named(tmp_path: Path):
    wrong = {**ROWS[1], "id": "w", "answer": "3 to 5"}
    data = write(tmp_path / "data.jsonl", [*ROWS, wrong])
    done = evr_score("job=check", f"input={data}", cwd=tmp_path)
    assert done.returncode == 1
    assert "w (numerical): sample w: answer: got '3 to 5', expected one number" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["numerical", "1", "1", "0", "0"]


def test_a_job_without_its_input_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="input is not set"):
        score_file(ScoreConfig())
    done = evr_score("job=check", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2, "evr-score: job=check takes data files: samples=[FILE]\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["reward=default"], ("ocr", 0.1)),
        (["reward=accuracy"], ("ocr", 0.0)),
        (["reward=dapo"], ("ocr", 0.0)),
        (["reward=by_task"], ("ocr", 0.1)),
        (["reward=by_task"], ("code", 0.0)),
        (["reward.tasks.ocr.format_weight=0.25"], ("ocr", 0.25)),
    ],
)
def test_the_shipped_reward_settings_compose(overrides: list[str], expected: tuple[str, float]):
    register()
    config = compose("score", ["input=x.jsonl", *overrides], ScoreConfig)
    problem_type, format_weight = expected
    assert config.reward.weights(problem_type)[1] == format_weight
    overlong = config.reward.overlong
    if overrides == ["reward=dapo"]:
        assert (overlong.max_tokens, overlong.buffer, overlong.weight) == (20_480, 4_096, 0.5)
    else:
        assert overlong.max_tokens is None


@pytest.mark.parametrize("command", ["score", "train", "evaluate"])
def test_a_judge_is_chosen_by_name(command: str):
    module = {"score": "rewards", "train": "train", "evaluate": "evaluate"}[command]
    importlib.import_module(f"easyvideor1.{module}.config").register()
    roots = {"score": ScoreConfig, "train": TrainConfig, "evaluate": EvaluateConfig}
    config = compose(command, ["judge=local", "reward=accuracy"], roots[command])
    assert config.reward.judge.base_url == "http://127.0.0.1:8000/v1"
    assert config.reward.judge.concurrency == 32
    assert config.reward.format_weight == 0
    assert compose(command, [], roots[command]).reward.judge.model is None
    overrides = ["judge=openai", "reward.judge.model=m"]
    assert compose(command, overrides, roots[command]).reward.judge.api_key_env == "OPENAI_API_KEY"
