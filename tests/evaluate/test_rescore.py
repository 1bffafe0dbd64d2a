"""lmms-eval's logs, in the forms its versions write, scored by our rules beside its own scores."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.lmms_log import agrees, read_logs, their_score
from easyvideor1.evaluate.rescore import rescore
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import Sample
from tests.evaluate.benchmark_fixtures import files_of, samples_of
from tests.evaluate.test_cli import PROBE

VIDEO_MME = {sample.id: sample for sample in samples_of("video_mme", "release")}
ANSWERS = {
    "001-1": ("B", "B", 1.0),
    "001-2": ("The best answer is: C.", "C", 1.0),
    "001-3": ("Perhaps the umbrella", "", 0.0),
    # Its prefixes lack `Answer:`, whose A it then reads.
    "002-1": ("Answer: D", "A", 0.0),
}
"""By question: the model's text, and what lmms-eval's videomme task reads in it and scores."""


def prompt_of(sample: Sample) -> str:
    options = "\n".join(sample.lettered_options)
    return f"Select the best answer.\n{sample.problem}\n{options}\nThe best answer is:"


def metric_of(question: str) -> dict[str, Any]:
    _, read, score = ANSWERS[question]
    gold = VIDEO_MME[f"video_mme/{question}"].answer
    return {"question_id": question, "pred_answer": read, "answer": gold, "score": score}


def row_of_today(place: int, question: str) -> dict[str, Any]:
    """Without `doc`, and without `resps` where no filter changed them."""
    sample = VIDEO_MME[f"video_mme/{question}"]
    return {
        "doc_id": place,
        "target": sample.answer,
        "filtered_resps": ANSWERS[question][0],
        "token_counts": [{"output_tokens": 2}],
        "doc_hash": "0f",
        "videomme_perception_score": metric_of(question),
        "input": prompt_of(sample),
    }


def row_of_old(place: int, question: str) -> dict[str, Any]:
    """With `doc` and nested responses, one of them changed by a filter; no score by number."""
    sample = VIDEO_MME[f"video_mme/{question}"]
    metric = metric_of(question)
    del metric["score"]
    return {
        "doc_id": place,
        "doc": {"question_id": question, "question": sample.problem},
        "target": sample.answer,
        "arguments": [],
        "resps": [[ANSWERS[question][0]]],
        "filtered_resps": [ANSWERS[question][0][:1]],
        "videomme_perception_score": metric,
    }


def write_log(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def config_for(name: str, tmp_path: Path, *logs: Path, **settings: str) -> EvaluateConfig:
    register()
    files = ",".join(map(str, files_of(name, "release")))
    overrides = [
        "job=rescore",
        f"benchmark={name}",
        f"benchmarks.{name}.data.validation=[{files}]",
        f"benchmarks.{name}.data.media_root=/videos",
        f"rescore.logs=[{','.join(map(str, logs))}]",
        f"output_dir={tmp_path}/results",
        *(f"rescore.{key}={value}" for key, value in settings.items()),
    ]
    return compose("evaluate", overrides, EvaluateConfig)


def rows_in(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = jsonl.read(Path(summary["folder"]) / "rescored.jsonl")
    return {row["sample_id"].removeprefix("video_mme/"): row for row in rows}


@pytest.mark.parametrize("row_of", [row_of_today, row_of_old])
def test_theirs_stands_beside_ours_and_differing_samples_are_named(
    row_of: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row_of(place, question) for place, question in enumerate(ANSWERS)]
    log = write_log(tmp_path / "20260923_172512_samples_videomme.jsonl", rows)
    summary = rescore(config_for("video_mme", tmp_path, log))
    assert (summary["theirs"], summary["accuracy"]) == (0.5, 0.75)
    assert summary["questions"] == 4 and summary["differ"] == 1
    by_question = rows_in(summary)
    for question, (text, read, score) in ANSWERS.items():
        row = by_question[question]
        assert row["text"] == text, "the model's own text, not what a filter left of it"
        assert row["theirs"] == {"score": score, "read": read}
        assert row["differs"] == (question == "002-1")
    assert by_question["002-1"]["official"]["extracted"] == "D"
    assert by_question["001-3"]["strict"]["status"] == "no_answer"
    printed = capsys.readouterr().out
    assert "4 of 4 questions are logged; mean score theirs 0.500, official 0.750" in printed
    assert "video_mme/002-1: gold D, theirs A 0, official D 1" in printed
    assert "video_mme/001-1: gold" not in printed


def test_a_log_of_some_questions_counts_these_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = row_of_today(2, "001-2") | {"videomme_perception_score": {"question_id": "900-1"}}
    rows = [row_of_today(0, "001-1"), row_of_today(1, "001-3"), foreign]
    summary = rescore(config_for("video_mme", tmp_path, write_log(tmp_path / "a.jsonl", rows)))
    assert summary["questions"] == 2 and not summary["complete"]
    assert summary["unmatched"] == [f"{tmp_path}/a.jsonl:3"]
    assert "1 rows belong to no question here and do not count" in capsys.readouterr().out


def test_logs_without_ids_are_lined_up_by_file_and_place(tmp_path: Path) -> None:
    samples = samples_of("mvbench", "release")
    logs = []
    for sample in samples:
        prompt = f"Question:{sample.problem}\nOption:\n" + "\n".join(sample.options)
        metric = {"pred_answer": "(B)", "gt_answer": sample.answer, "score": sample.answer == "B"}
        row = {
            "doc_id": 0,
            "target": sample.options["ABCDE".index(str(sample.answer))],
            "filtered_resps": ["(B)"],
            "mvbench_accuracy": metric,
            "input": prompt,
        }
        file = tmp_path / f"20260101_samples_mvbench_{sample.extra['file']}.jsonl"
        logs.append(write_log(file, [row]))
    summary = rescore(config_for("mvbench", tmp_path, *logs))
    assert summary["questions"] == len(samples) == summary["theirs_known"]
    assert summary["theirs"] == summary["accuracy"] > 0
    assert list(rows_in(summary)) == [sample.id for sample in samples]


def test_a_row_at_another_place_is_found_by_its_words(tmp_path: Path) -> None:
    samples = list(VIDEO_MME.values())
    rows = []
    for place, sample in enumerate(reversed(samples)):
        row = row_of_today(place, sample.id.removeprefix("video_mme/"))
        del row["videomme_perception_score"]["question_id"]
        rows.append(row)
    summary = rescore(config_for("video_mme", tmp_path, write_log(tmp_path / "a.jsonl", rows)))
    assert summary["accuracy"] == 0.75
    assert list(rows_in(summary)) == list(reversed(ANSWERS))


def test_another_benchmarks_log_is_refused(tmp_path: Path) -> None:
    row = {"doc_id": 0, "target": "Yes", "filtered_resps": "Yes", "input": "Is it red?", "mme": 1.0}
    log = write_log(tmp_path / "20260923_samples_mme.jsonl", [row])
    with pytest.raises(UserError, match=r"no row of rescore.logs belongs to .* target 'Yes'"):
        rescore(config_for("video_mme", tmp_path, log))


def test_two_rows_for_one_question_are_refused(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / f"{n}.jsonl", [row_of_today(0, "001-1")]) for n in (1, 2)]
    with pytest.raises(UserError, match=r"1.jsonl:1 and .*2.jsonl:1 both answer video_mme/001-1"):
        rescore(config_for("video_mme", tmp_path, *logs))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prediction": "B"}, "a.jsonl:1:doc_id: got None"),
        ({"doc_id": 0, "target": "1", "filtered_resps": [[-3.0, False], [-4.0, True]]}, "one text"),
        ({"doc_id": 0, "target": "A", "resps": [["A", "B"]]}, "one text of the model"),
        ({"doc_id": "x", "target": "A", "filtered_resps": "A"}, "a whole number"),
    ],
)
def test_rows_of_another_kind_are_named(row: dict, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        read_logs([str(write_log(tmp_path / "a.jsonl", [row]))])


@pytest.mark.parametrize(
    ("metrics", "score"),
    [
        ({"exact_match": 1.0}, 1.0),
        ({"exact_match": False}, 0.0),
        ({"m": {"score": 0, "pred_answer": "A", "answer": "A"}}, 0.0),
        ({"lvb_acc": {"parsed_pred": "e", "answer": "E"}}, 1.0),
        ({"m": {"pred_answer": "", "gt_answer": "C"}}, 0.0),
        ({"a": {"score": 1}, "b": {"score": 1}}, 1.0),
        ({"submission": {"a.mp4": "from 1 to 2"}}, None),
        ({}, None),
    ],
)
def test_their_score_is_read_in_the_forms_of_their_tasks(
    metrics: dict, score: float | None, tmp_path: Path
) -> None:
    row = {"doc_id": 0, "target": "A", "filtered_resps": "A", **metrics}
    (answer,) = read_logs([str(write_log(tmp_path / "a.jsonl", [row]))])
    assert their_score(answer, None) == score


def test_of_several_scores_one_is_named(tmp_path: Path) -> None:
    row = {"doc_id": 0, "target": "A", "filtered_resps": "A", "strict": 0, "loose": 1}
    (answer,) = read_logs([str(write_log(tmp_path / "a.jsonl", [row]))])
    with pytest.raises(UserError, match=r"say rescore\.metric=<name>"):
        their_score(answer, None)
    assert their_score(answer, "loose") == 1.0
    with pytest.raises(UserError, match="may be strict, loose"):
        their_score(answer, "tight")


@pytest.mark.parametrize(
    ("target", "expected"),
    [("B", True), ("b", True), ("(B)", True), ("1", True), ("Two eggs", True), ("C", False),
     ("2", False), ("Salt", False), ("from 1 to 2", False)],
)  # fmt: skip
def test_a_target_is_a_letter_a_place_or_a_text(target: str, expected: bool) -> None:
    assert agrees(VIDEO_MME["video_mme/001-1"], target) is expected


def test_the_command_needs_no_model_and_loads_nothing_heavy(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [row_of_today(0, "001-1")])
    (file,) = files_of("video_mme", "release")
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROBE, "job=rescore", "benchmark=video_mme"),
            f"benchmarks.video_mme.data.validation=[{file}]",
            "model.path=/no/such/model",
            f"rescore.logs=[{log}]",
            f"output_dir={tmp_path}/results",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 4 questions are logged" in done.stdout and "heavy: []" in done.stdout
    for wrong in (["job=rescore"], ["job=rescore", "benchmark=[toybox,video_mme]"]):
        register()
        with pytest.raises(UserError, match="needs the logs of one benchmark"):
            compose("evaluate", wrong, EvaluateConfig)
