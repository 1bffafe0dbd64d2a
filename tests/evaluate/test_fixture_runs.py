"""Every benchmark from its records to its summary, but for the engine: asked, stored, scored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.evaluate import run
from easyvideor1.evaluate.config import EvaluateConfig, Job, register
from easyvideor1.evaluate.fixtures import on_fixtures
from easyvideor1.preprocess.families import family_of
from easyvideor1.rewards import render_gold
from easyvideor1.schema.conf import compose
from easyvideor1.schema.records import Prediction, PredictionStatus, ProblemType, Sample
from tests.evaluate.benchmark_fixtures import NAMES

OPERATIONS = {"card": "add Ace of Hearts to pile0, remove King of Spades from pile0"}


def right_answer(sample: Sample) -> str:
    """What the strict reading takes for right, without tags, as official prompts ask for it."""
    if sample.answer is None:
        return f"Final Answer: {OPERATIONS.get(sample.extra['demo'], '(a1, a2)')}"
    if sample.problem_type is ProblemType.boolean:
        return str(sample.answer)  # in the case of the release, which scripts look for
    gold = render_gold(sample).removeprefix("<answer>").removesuffix("</answer>")
    return f"Final Answer: {gold}" if sample.source == "videoreasonbench" else gold


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_make_a_full_score(
    name: str, tiny_model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    register()
    config = compose("evaluate", [f"benchmark={name}", "fixtures=true"], EvaluateConfig)
    config.model.path, config.model.build = tiny_model_path, None
    family = family_of(replace(config.model, path=tiny_model_path))
    opened = run.open_benchmark(name, on_fixtures(name, config.benchmarks[name]))
    evaluation = run.prepare(config, opened, model=tiny_model_path, family=family)
    assert {q.sample.id for q in evaluation.questions} == {s.id for s in opened.samples}
    assert all(question.prompt_token_ids for question in evaluation.questions)
    evaluation.folder.append(
        [
            Prediction(
                fingerprint=evaluation.folder.fingerprint,
                sample_id=sample.id,
                status=PredictionStatus.ok,
                text=right_answer(sample),
            )
            for sample in opened.samples
        ]
    )
    config.job = Job.score
    summary = run.conclude(config, evaluation, tiny_model_path)
    assert summary["complete"] and summary["coverage"] == 1
    rows = (evaluation.folder.path / "scores.jsonl").read_text().splitlines()
    by_id = {row["sample_id"]: row for row in map(json.loads, rows)}
    for sample in opened.samples:
        row = by_id[sample.id]
        if sample.answer is None or name != "videoreasonbench":  # whose words ROUGE compares
            assert row["strict"]["parts"]["accuracy"] == pytest.approx(1), row
        if row["score"]["status"] == "unavailable":
            assert sample.problem_type is ProblemType.open_ended or sample.options, (
                "no judge is set"
            )
        elif sample.extra.get("demo") != "card":  # which the script compares upside down
            assert row["accuracy"] == pytest.approx(1), row
