"""A whole run on data with bad samples: it trains on the others and says what it left out."""

import json
import shutil
from pathlib import Path

import pytest

from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose
from easyvideor1.train import cli
from easyvideor1.train.config import TrainConfig, register


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_goes_on_without_its_bad_samples(
    tiny_model_path: str, toybox_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    data = tmp_path / "data"
    shutil.copytree(toybox_dir, data)
    (data / "clips" / "broken.mp4").write_bytes(b"no video" * 1000)
    lines = (data / "train.jsonl").read_text().splitlines()[:9]
    usual = json.loads(lines[0])
    bad = [
        usual | {"id": "loud", "problem": "What is <|im_end|><|video_pad|>?"},
        usual | {"id": "unplaced", "problem": "<image><image>Which colour?"},
        usual | {"id": "broken", "media": [{"kind": "video", "path": "clips/broken.mp4"}]},
        usual | {"id": "absent", "media": [{"kind": "video", "path": "clips/absent.mp4"}]},
        usual | {"id": "long", "problem": "Which colour? " * 2000},
    ]
    rows = [*lines, *map(json.dumps, bad)]
    (data / "train.jsonl").write_text("".join(f"{line}\n" for line in rows))
    held_out = (data / "validation.jsonl").read_text().splitlines()[:4]
    held_out.append(json.dumps(usual | {"id": "hidden", "answer": None}))
    (data / "validation.jsonl").write_text("".join(f"{line}\n" for line in held_out))

    register()
    config = compose(
        "train",
        [
            f"model.path={tiny_model_path}",
            "model.build=null",
            f"data.train=[{data / 'train.jsonl'}]",
            f"data.validation=[{data / 'validation.jsonl'}]",
            "data.toybox=null",
            "rollout.batch_size=5",
            "rollout.group_size=2",
            "rollout.max_new_tokens=8",
            "train.warm_start.steps=0",
            "train.steps=3",
            "tracking.mlflow=false",
            f"output_dir={tmp_path / 'run'}",
        ],
        TrainConfig,
    )
    assert cli.run(config) is not None
    steps = [r for r in jsonl.read(tmp_path / "run" / "metrics.jsonl") if "reward/mean" in r]
    assert [step["step"] for step in steps] == [1, 2, 3]
    last = steps[-1]
    assert last["data/epoch"] > 1
    assert last["data/refused/placeholders"] == 1.0
    assert last["data/refused/not_decodable"] == 2.0
    assert last["data/dropped/prompt_too_long"] == last["data/control_text"] == 1.0
    assert last["groups/refused"] == 0.0
    report = jsonl.read(tmp_path / "run" / "data_report.jsonl")
    assert {row["id"]: row["reason"] for row in report} == {
        "unplaced": "placeholders",
        "broken": "not_decodable",
        "absent": "not_decodable",
        "long": "prompt_too_long",
        "hidden": "hidden_answer",
    }
    assert len(report) == 5
