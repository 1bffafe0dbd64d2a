"""The whole product on one laptop: `make demo` runs the ordinary commands one after another.

Toybox and real clips are cached, a tiny Qwen3-VL is warm-started and trained with GRPO on mixed
groups, and every model on the way is evaluated on the same held-out questions. Nothing here is
known to the packages; results are `outputs/demo/summary.json` and `report.html`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from easyvideor1.preprocess import decode_counter
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import compose, outputs_dir
from easyvideor1.schema.files import write_json
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.config import register as register_train
from tools.demo_report import write_report

DEMO = outputs_dir() / "demo"
CACHE = f"cache.dir={DEMO / 'cache'}"
EXPERIMENT = "experiment=demo_cpu"
DISCRETE = ("multiple_choice", "numerical", "boolean")
"""Problem types whose gold answers are one of a few, so that chance has a meaning."""


class Clock:
    """Seconds by phase, in the order of the phases."""

    def __init__(self) -> None:
        self.seconds = {"setup": float(os.environ.get("EVR_SETUP_SECONDS") or 0.0)}

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Time a phase and announce it."""
        print(f"\n== {name.replace('_', ' ')}", flush=True)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 1)


def main() -> None:
    """Run every phase, write the summary and the report."""
    # A run would otherwise continue the last one, and its seconds would mean nothing.
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    register_train()
    config = compose("train", [EXPERIMENT], TrainConfig)
    steps, warm_start = config.train.steps, config.train.warm_start.steps
    clock = Clock()

    with clock.phase("cache_clips"):
        run("evr-preprocess", "data=toybox", "budget=toy", CACHE)
        run("evr-preprocess", "data=real_clips", CACHE)

    counters = DEMO / "decodes"
    with clock.phase("train"):
        grpo = train(counters, "demo/grpo", "train.export_checkpoints=true")
    start = grpo / "checkpoints" / f"warm_start_{warm_start:06d}"
    with clock.phase("warm_start_only"):
        updates = steps * config.learner.updates_per_rollout
        imitation = train(
            counters,
            "demo/warm_start_only",
            f"train.resume={start}",
            "train.steps=0",
            f"train.warm_start.steps={warm_start + updates}",
        )

    models: dict[str, tuple[str, ...]] = {
        "random_init": (),
        "before": (f"model.path={start / 'export'}", "model.build=null"),
        "after": (f"model.path={grpo / 'export'}", "model.build=null"),
        "warm_start_only": (f"model.path={imitation / 'export'}", "model.build=null"),
        "without_video": (
            f"model.path={grpo / 'export'}",
            "model.build=null",
            "blank_frames=true",
        ),
    }
    evaluations = {}
    for name, overrides in models.items():
        benchmark = "benchmark=[toybox,real_clips]" if name == "after" else "benchmark=toybox"
        with clock.phase(f"evaluate_{name}"):
            evaluations[name] = evaluate(name, benchmark, *overrides)

    scores = {f"accuracy_{name}": accuracy(results) for name, results in evaluations.items()}
    summary = {
        **scores,
        "chance": discrete_mean(evaluations["after"], "chance"),
        "questions": count_discrete(evaluations["after"]),
        "grpo_steps": steps,
        "clips_cached": cached_clips(),
        "decodes_during_training": decode_counter.total(counters),
        "seconds": clock.seconds,
    }
    write_json(DEMO / "summary.json", summary)
    metrics = list(jsonl.read(grpo / "metrics.jsonl"))
    write_report(DEMO / "report.html", summary, evaluations, metrics)
    print(json.dumps(summary, indent=2))
    print(f"report: {DEMO / 'report.html'}")


def run(command: str, *overrides: str, environment: dict[str, str] | None = None) -> None:
    """Run one of our commands with its output on this terminal; end the demo if it fails."""
    print(f"$ {command} {' '.join(overrides)}", flush=True)
    program = Path(sys.executable).with_name(command)
    process = subprocess.run([program, *overrides], env={**os.environ, **(environment or {})})
    if process.returncode:
        raise SystemExit(f"{command} ended with status {process.returncode}; see above")


def train(counters: Path, run_name: str, *overrides: str) -> Path:
    """Run `evr-train` with every decode counted in `counters`; returns the run's folder."""
    counters.mkdir(exist_ok=True)
    run(
        "evr-train",
        EXPERIMENT,
        CACHE,
        f"run_name={run_name}",
        *overrides,
        environment={decode_counter.VARIABLE: str(counters)},
    )
    (folder,) = (outputs_dir() / run_name).glob("*-seed*")
    return folder


def evaluate(name: str, benchmark: str, *overrides: str) -> dict[str, Any]:
    """Run `evr-evaluate`; returns the summary of each benchmark by name."""
    folder = DEMO / "evaluation" / name
    run("evr-evaluate", benchmark, CACHE, f"output_dir={folder}", *overrides)
    return {
        path.parent.parent.name: json.loads(path.read_text())
        for path in sorted(folder.glob("*/*/summary.json"))
    }


def discrete_mean(results: dict[str, Any], field: str) -> float:
    """Mean of a per-type figure of the toybox over its questions with discrete answers."""
    rows = [results["toybox"]["by_type"][name] for name in DISCRETE]
    return sum(row[field] * row["questions"] for row in rows) / sum(r["questions"] for r in rows)


def accuracy(results: dict[str, Any]) -> float:
    """Share of the toybox questions with discrete answers that are right."""
    return discrete_mean(results, "accuracy")


def count_discrete(results: dict[str, Any]) -> int:
    """Toybox questions with discrete answers."""
    return sum(results["toybox"]["by_type"][name]["questions"] for name in DISCRETE)


def cached_clips() -> int:
    """Clips in the cache of this demo."""
    from easyvideor1.preprocess.cache import open_cache
    from easyvideor1.preprocess.config import CacheConfig

    return len(open_cache(CacheConfig(dir=str(DEMO / "cache"))).keys())


if __name__ == "__main__":
    main()
