"""Each family trains on text, images, videos and both at once, on two ranks, by the command."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.schema import jsonl
from tests.mixed_data import write_mixed

STEPS = 3
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES)
def test_three_steps_on_mixed_data_and_two_ranks(family, tmp_path):
    data = write_mixed(tmp_path / "data", groups=3)
    result = subprocess.run(
        [
            str(Path(sys.executable).with_name("evr-train")),
            "experiment=demo_cpu",
            f"model=tiny_{family}",
            "data=files",
            "data.name=mixed",
            f"data.train=[{data}]",
            "learner.ranks=2",
            f"train.steps={STEPS}",
            f"train.save_every={STEPS}",
            "train.warm_start.steps=0",
            "rollout.batch_size=4",  # one sample of each kind
            "rollout.group_size=2",
            "rollout.max_new_tokens=16",
            "tracking.mlflow=false",
            f"output_dir={tmp_path / 'run'}",
        ],
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    steps = [row for row in jsonl.read(tmp_path / "run" / "metrics.jsonl") if "reward/mean" in row]
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    for row in steps:
        assert row["learner/refused_completions"] == 0
        assert row["learner/skipped_updates"] == 0
        assert math.isfinite(row["learner/grad_norm"])
        assert 1 <= row["learner/makespan_over_mean"] < 2
    assert (tmp_path / "run" / "export" / "model.safetensors").is_file()
