"""`mixed_vs_on_policy`: steps to an accuracy, on-policy over the best way to mix offline answers.

The toybox's hard questions have one answer among 32 and are asked of a tiny Qwen3-VL whose warm
start taught the toybox's other questions and the form of these. From that one checkpoint every mode
trains with three seeds: `on_policy` (algorithm=grpo), `gated` (the same with mixing=gated), `luffy`
and `chord`, each with its recipe but for one update per rollout in all of them, and one optimizer.

A mode's steps are the median over its seeds of the first step whose validation accuracy is at least
`ACCURACY`; both it and the number of steps were fixed before the seeds were run. Where a run does
not get there within `STEPS`, they count instead, so that the ratio is a lower bound
(`detail.reached` tells). `ours_s` and `baseline_s` are the seconds of so many steps, while two runs
share the machine.

Takes an hour or two on two cores. Started again, it goes on: runs are kept in
outputs/perf/learning, delete that folder to measure anew. `python perf/learning.py pilot` runs each
mode with seed 0, which is not among the three, and prints no claim.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from easyvideor1.schema.conf import outputs_dir

ACCURACY = 0.5
STEPS = 100
SEEDS = (1, 2, 3)
PILOT_SEEDS = (0,)
NUM_AT_ONCE = 2

MODES = {
    "on_policy": ("algorithm=grpo", "mixing=none"),
    "gated": ("algorithm=grpo", "mixing=gated"),
    "luffy": ("algorithm=luffy",),
    "chord": ("algorithm=chord",),
}
FOLDER = outputs_dir() / "perf" / "learning"
COMMON = (f"cache.dir={FOLDER / 'cache'}", "tracking.mlflow=false")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What became of one mode with one seed."""

    mode: str
    seed: int
    start: float
    """Mean reward for correctness of the first step's sampled answers."""
    accuracies: dict[int, float]
    """On the held-out questions, by step."""
    seconds: list[float]
    """[steps + 1] from the beginning to the end of each step."""

    @property
    def reached(self) -> bool:
        return max(self.accuracies.values()) >= ACCURACY

    @property
    def steps(self) -> int:
        """To the accuracy; all of them where it was not reached."""
        there = [step for step, value in self.accuracies.items() if value >= ACCURACY]
        return min(there, default=STEPS)

    @property
    def final(self) -> float:
        return self.accuracies[STEPS]


def train(*overrides: str) -> None:
    """`evr-train`, which goes on from where it was."""
    log = FOLDER / "train.log"
    with log.open("ab") as out:
        done = subprocess.run(
            ["evr-train", *COMMON, *overrides], stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        raise RuntimeError(f"evr-train {' '.join(overrides)} failed, see {log}")


def warm_start() -> Path:
    """The model that every run begins with."""
    run = FOLDER / "warm_start"
    files = ("train.jsonl", "hard_form.jsonl")
    data = ",".join(str(outputs_dir() / "data" / "toybox" / name) for name in files)
    if not (run / "export").exists():
        train(
            "experiment=demo_cpu",
            f"data.train=[{data}]",
            "data.validation=[]",
            "train.steps=0",
            f"output_dir={run}",
        )
    return run / "export"


def run(model: Path, mode: str, seed: int) -> Run:
    """Train where that has not been done, and read what the run wrote."""
    folder = FOLDER / f"{mode}-seed{seed}"
    if not (folder / "result.json").exists():
        train(
            "experiment=cold_start_cpu",
            *MODES[mode],
            f"model.path={model}",
            "model.build=null",
            f"seed={seed}",
            f"train.steps={STEPS}",
            "train.save_every=25",
            f"output_dir={folder}",
        )
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row["seconds/step"] for row in rows if "seconds/step" in row]
    return Run(
        mode=mode,
        seed=seed,
        start=next(row["reward/policy/accuracy"] for row in rows if row["step"] == 1),
        accuracies={
            row["step"]: row["validation/accuracy"] for row in rows if "validation/accuracy" in row
        },
        seconds=list(accumulate(steps, initial=0.0)),
    )


def all_runs(seeds: Sequence[int]) -> list[Run]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = warm_start()
    runs: list[Run] = []
    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        asked = [pool.submit(run, model, mode, seed) for seed in seeds for mode in MODES]
        for future in asked:
            done = future.result()
            runs.append(done)
            print(
                f"  {done.mode} seed {done.seed}: first rewards {done.start:.3f}, "
                f"{done.steps}{'' if done.reached else '+'} steps, final {done.final:.3f}",
                flush=True,
            )
    return runs


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """One mode over its seeds."""
    return {
        "first_rewards": [round(run.start, 4) for run in runs],
        "steps": [run.steps for run in runs],
        "reached": [run.reached for run in runs],
        "final": [round(run.final, 4) for run in runs],
        "median_steps": median(run.steps for run in runs),
        "median_final": median(run.final for run in runs),
        "curves": [{str(k): round(v, 4) for k, v in run.accuracies.items()} for run in runs],
    }


def main() -> None:
    if sys.argv[1:] == ["pilot"]:
        all_runs(PILOT_SEEDS)
        return
    runs = all_runs(SEEDS)
    of_mode = {mode: [run for run in runs if run.mode == mode] for mode in MODES}
    modes = {mode: summary(its) for mode, its in of_mode.items()}
    best = min((m for m in MODES if m != "on_policy"), key=lambda m: modes[m]["median_steps"])
    seconds = {
        mode: median(run.seconds[run.steps] for run in of_mode[mode])
        for mode in (best, "on_policy")
    }
    print(
        json.dumps(
            {
                "claim": "mixed_vs_on_policy",
                "ratio": modes["on_policy"]["median_steps"] / modes[best]["median_steps"],
                "ours_s": seconds[best],
                "baseline_s": seconds["on_policy"],
                "detail": {
                    "best": best,
                    "accuracy": ACCURACY,
                    "max_steps": STEPS,
                    "seeds": SEEDS,
                    "modes": modes,
                    "threads": 1,
                    "nproc": os.cpu_count(),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
