import os
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.schema import environment


def test_values_of_the_user_win(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    assert environment.worker_environment()["VLLM_LOGGING_LEVEL"] == "DEBUG"
    monkeypatch.delenv("VLLM_LOGGING_LEVEL")
    assert environment.worker_environment()["VLLM_LOGGING_LEVEL"] == "WARNING"


def test_ray_never_builds_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "1")
    assert environment.worker_environment()["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"


def test_the_compiler_is_off_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TORCHDYNAMO_DISABLE", raising=False)
    monkeypatch.setattr(environment, "has_nvidia_gpu", lambda: False)
    assert environment.worker_environment()["TORCHDYNAMO_DISABLE"] == "1"
    monkeypatch.setattr(environment, "has_nvidia_gpu", lambda: True)
    assert "TORCHDYNAMO_DISABLE" not in environment.worker_environment()


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_no_gpus(monkeypatch: pytest.MonkeyPatch, hidden: str):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert not environment.has_nvidia_gpu()


def test_prepare_sets_this_process_and_imports_nothing():
    script = (
        "import os, sys\n"
        "from easyvideor1.schema import environment\n"
        "environment.prepare(); environment.prepare_local_ray()\n"
        "assert os.environ['RAY_ENABLE_UV_RUN_RUNTIME_ENV'] == '0'\n"
        "assert os.environ['RAY_AUTH_MODE'] == 'disabled'\n"
        "assert not {'torch', 'ray', 'vllm', 'mlflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_folder_of_a_local_ray_leaves_room_for_its_sockets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    environment.prepare_local_ray()
    session = "ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
    assert len(str(Path(os.environ["RAY_TMPDIR"]) / session)) < 107
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
