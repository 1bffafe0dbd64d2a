"""`evr-train`: what it composes, and what it says at once when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.schema.conf import compose, conf_dir
from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import TrainConfig, register

HEAVY = ("torch", "vllm", "ray", "transformers", "mlflow")
PROBE = f"""
import atexit, sys
atexit.register(lambda: print("heavy:", [m for m in {HEAVY} if m in sys.modules]))
sys.argv = ["evr-train", *sys.argv[1:]]
from easyvideor1.train.cli import main
main()
"""
EXPERIMENTS = sorted(
    path.stem
    for path in (conf_dir() / "experiment").glob("*.yaml")
    if not path.stem.startswith("eval")
)


def call(*overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, *overrides], capture_output=True, text=True, timeout=60
    )


def composed(*overrides: str) -> TrainConfig:
    register()
    return compose("train", list(overrides), TrainConfig)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_training_experiment_composes(experiment):
    config = composed(f"experiment={experiment}")
    assert config.run_name == experiment


def test_the_folder_follows_from_name_algorithm_and_seed():
    config = composed("run_name=trial", "seed=3")
    assert config.output_dir == "outputs/trial/grpo-seed3"


def test_a_single_run_and_a_sweep_use_the_same_folder(tmp_path):
    arguments = ["data.train=[nowhere.jsonl]", "data.toybox=null", "run_name=same", "seed=7"]
    folder = tmp_path / "same" / "grpo-seed7" / ".hydra"
    for arguments_of in (arguments, ["--multirun", *arguments]):
        subprocess.run(
            [sys.executable, "-c", PROBE, *arguments_of],
            env={"EVR_OUTPUTS": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            timeout=60,
        )
        assert (folder / "overrides.yaml").is_file()
        (folder / "overrides.yaml").unlink()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["rollout.group_sise=4"], "rollout.group_size"),
        (["train.warm_start.step=4"], "train.warm_start.steps"),
        (["mixing=replaced"], "replace"),
        (["rollout.group_size=1"], "at least 2"),
        (["rollout.temperature=0"], "rollout.temperature must be above 0"),
        (["train.steps=0"], "nothing to train"),
        (["learner.ranks=4", "learner.shard_size=3"], "must divide learner.ranks=4, got 3"),
        (["learner.process_group_timeout_s=0"], "process_group_timeout_s must be above 0"),
        (["learner.sequence_parallel_size=2"], "lower learner.micro_batch_tokens"),
        (["learner.critic=true"], "raise rollout.group_size for a better baseline"),
        (["data.train=[nowhere.jsonl]", "data.toybox=null"], "nowhere.jsonl"),
        (["model.path=./no/such/model", "model.build=null"], "no/such/model"),
    ],
)
def test_a_mistake_is_one_paragraph_before_anything_heavy_loads(overrides, expected):
    result = call("data.toybox.train_clips=2", "data.toybox.validation_clips=4", *overrides)
    assert result.returncode == 2
    (paragraph,) = result.stderr.strip().splitlines()[-1:]
    assert paragraph.startswith("evr-train: ") and expected in paragraph
    assert result.stdout.strip().endswith("heavy: []")


@pytest.mark.parametrize("model_type", ["qwen3_vl_moe", "qwen3_5_moe"])
def test_a_mixture_of_experts_is_refused_before_anything_heavy_loads(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    result = call(
        "data.toybox.train_clips=2",
        "data.toybox.validation_clips=4",
        f"model.path={tmp_path}",
        "model.build=null",
    )
    assert result.returncode == 2
    assert f"of model_type '{model_type}', a mixture of experts, which is not built" in (
        result.stderr
    )
    assert "use a dense checkpoint of qwen2_5_vl, qwen2_vl, qwen3_5, qwen3_vl" in result.stderr
    assert "heavy: []" in result.stdout


def test_a_bad_row_names_file_row_and_field(tmp_path):
    good = {"id": "a", "problem": "?", "answer": "A", "problem_type": "multiple_choice"}
    file = tmp_path / "train.jsonl"
    rows = [good | {"options": ["x", "y"]}, good | {"id": "b", "problem_type": "guess"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = call(f"data.train=[{file}]", "data.validation=[]", "data.toybox=null")
    assert result.returncode == 2
    assert f"{file}:2:problem_type: got 'guess'" in result.stderr
    assert "heavy: []" in result.stdout


def test_help_loads_nothing_heavy():
    result = call("--help")
    assert result.returncode == 0
    assert "rollout" in result.stdout and "heavy: []" in result.stdout


def test_training_files_are_asked_for(tmp_path):
    from easyvideor1.train.cli import read_data

    config = composed("data.toybox=null", "data.train=[]")
    Path(tmp_path / "v.jsonl").write_text("")
    config.data.validation = [str(tmp_path / "v.jsonl")]
    with pytest.raises(UserError, match="of toybox is empty"):
        read_data(config)
