"""Benchmarks within training: the same answers and scores as evaluate gives the exported model."""

import json
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate.config import EvaluateConfig
from easyvideor1.evaluate.config import register as register_evaluate
from easyvideor1.evaluate.run import evaluate
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.train import cli
from easyvideor1.train.config import TrainConfig, ValidationConfig, register
from easyvideor1.train.live_benchmarks import headline, metrics_of


def composed(
    toybox_dir: Path, model: str, folder: Path, benchmark: list[str], *overrides: str
) -> TrainConfig:
    register()
    return compose(
        "train",
        [
            f"model.path={model}",
            "model.build=null",
            f"data.train=[{toybox_dir / 'train.jsonl'}]",
            "data.validation=[]",
            "data.toybox=null",
            f"cache.dir={folder / 'cache'}",
            f"output_dir={folder / 'run'}",
            "validation.benchmarks=[toybox]",
            f"validation.overrides=[{','.join(json.dumps(text) for text in benchmark)}]",
            "rollout.batch_size=4",
            "rollout.group_size=2",
            "rollout.max_new_tokens=16",
            "train.warm_start.steps=20",
            "train.warm_start.batch_size=8",
            "train.steps=2",
            "train.validate_every=1",
            "train.save_every=1",
            "train.export_checkpoints=true",
            "learner.keep_last=1",
            "tracking.mlflow=false",
            *overrides,
        ],
        TrainConfig,
    )


def on_toybox(toybox_dir: Path) -> list[str]:
    return [
        "benchmarks.toybox.data.toybox=null",
        f"benchmarks.toybox.data.validation=[{toybox_dir / 'validation.jsonl'}]",
    ]


def predictions(folder: Path) -> dict[str, str]:
    (file,) = folder.glob("*/predictions.jsonl")
    return {row["sample_id"]: row["text"] for row in jsonl.read(file)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_checkpoint_scores_in_training_as_evaluate_scores_its_export(
    toybox_dir, tiny_model_path, tmp_path, monkeypatch
):
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    benchmark = on_toybox(toybox_dir)
    returned = cli.run(composed(toybox_dir, tiny_model_path, tmp_path, benchmark))
    run = tmp_path / "run"
    steps = sorted(path.name for path in (run / "validation").iterdir())
    assert steps == ["step_000000", "step_000001", "step_000002"]
    rows = [row for row in jsonl.read(run / "metrics.jsonl") if "validation/toybox/accuracy" in row]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert returned == rows[-1]["validation/toybox/accuracy"], "a sweep maximises it"

    register_evaluate()
    (summary,) = evaluate(
        compose(
            "evaluate",
            [
                "benchmark=[toybox]",
                *benchmark,
                f"model.path={run / 'export'}",
                "model.build=null",
                f"cache.dir={tmp_path / 'cache'}",
                f"output_dir={tmp_path / 'evaluated'}",
            ],
            EvaluateConfig,
        )
    )
    assert summary["official"]["accuracy"] == returned
    live = predictions(run / "validation" / "step_000002" / "toybox")
    assert live == predictions(tmp_path / "evaluated" / "toybox")
    assert len(set(live.values())) > 1, "answers that differ"

    best = max(rows[1:], key=lambda row: row["validation/toybox/accuracy"])
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert {f"step_{best['step']:06d}", "step_000002"} <= kept


def test_what_a_benchmark_says_is_logged_under_its_name():
    summary: dict[str, Any] = {
        "benchmark": "toybox",
        "official": {"accuracy": 0.5, "colour": 0.75},
        "strict_accuracy": 0.25,
        "statuses": {"ok": 6, "load_failed": 2},
    }
    assert metrics_of([summary]) == {
        "validation/toybox/accuracy": 0.5,
        "validation/toybox/colour": 0.75,
        "validation/toybox/strict_accuracy": 0.25,
        "validation/toybox/not_ok": 0.25,
    }
    assert headline([summary], "toybox") == 0.5
    with pytest.raises(UserError, match=r"best_by=toybox: this benchmark has no score"):
        headline([summary | {"official": {}}], "toybox")


def test_what_is_not_there_is_refused_before_anything_starts(toybox_dir, tiny_model_path, tmp_path):
    with pytest.raises(UserError, match=r"validation\.best_by=mvbench is none of accuracy, toybox"):
        ValidationConfig(benchmarks=["toybox"], best_by="mvbench")
    config = composed(toybox_dir, tiny_model_path, tmp_path, [], "validation.benchmarks=[no_such]")
    with pytest.raises(UserError, match=r"validation\.benchmarks=\['no_such'\].*no_such"):
        cli.run(config)
    assert not (tmp_path / "run" / "config.json").exists()
