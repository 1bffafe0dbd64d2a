"""The one owner of environment variables that engines, Ray and trackers read.

`prepare()` runs before any of them is imported; `worker_environment()` is the same set for Ray
actors. Values the user has set win, except for those in `_FORCED`.
"""

import os
from pathlib import Path

_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
    # The same line from every worker is printed once.
    "RAY_DEDUP_LOGS": "1",
    # An actor that asks for no GPU keeps seeing those of its node.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_FORCED = {
    # Under `uv run` Ray would zip the working directory and build a second environment.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
_CPU = {
    # No compiler on the user's machine is needed, and the first log-prob request is not slow.
    "TORCHDYNAMO_DISABLE": "1",
    # Keeps vLLM's worker inside the engine process: two processes fewer to start.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # One thread is faster than two for the small models that a CPU serves.
    "OMP_NUM_THREADS": "1",
}


def has_nvidia_gpu() -> bool:
    """Whether the NVIDIA driver is loaded, without importing torch."""
    return Path("/proc/driver/nvidia/version").exists() and not _hidden_gpus()


def _hidden_gpus() -> bool:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "unset") in ("", "-1")


def worker_environment() -> dict[str, str]:
    """Variables for this process and every process it starts."""
    wanted = {**_QUIET, **({} if has_nvidia_gpu() else _CPU)}
    return {name: os.environ.get(name, value) for name, value in wanted.items()} | _FORCED


def prepare() -> None:
    """Set the variables in this process. Call it before importing torch, vllm, ray or mlflow."""
    os.environ.update(worker_environment())


def prepare_local_ray() -> None:
    """Variables for a Ray we start ourselves on loopback; a cluster we join keeps its own."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # Ray would give its workers the lowest priority but a few; on a machine that also does
    # something else, engines and learner ranks would then hardly run.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray's sockets lie below its temporary folder and a socket's path has at most 107 characters;
    # a folder of the user's own, since /tmp/ray belongs to whoever came first.
    os.environ.setdefault("RAY_TMPDIR", f"/tmp/evr-{os.getuid()}")
