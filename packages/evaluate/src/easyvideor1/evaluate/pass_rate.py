"""`job=passrate`: how often a model answers training samples rightly, written into their rows.

The samples are answered as a benchmark of their own, `k` times each, with the budget and sampling
of training; stored answers, going on after a kill and scoring are those of `run`. A failure, of a
clip, the engine or a scorer, says nothing about the model: it is counted and is no wrong answer.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, Job
from easyvideor1.evaluate.run import evaluate_opened, open_benchmark, refuse_without_media
from easyvideor1.preprocess.families import check_family
from easyvideor1.preprocess.families.tiny import ensure_model
from easyvideor1.schema import jsonl
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.files import write_json
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import PredictionStatus, Sample, ScoreStatus

JUDGED = frozenset({ScoreStatus.ok.value, ScoreStatus.no_answer.value})
"""Statuses of a score that speak about the answer; after the others it is not known."""

ANSWERED = frozenset({PredictionStatus.ok.value, PredictionStatus.truncated.value})


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """The answers to one sample."""

    right: int
    judged: int
    """Answers whose score is known, right or wrong."""

    @property
    def rate(self) -> float | None:
        """Share of right answers; None where not one is known."""
        return self.right / self.judged if self.judged else None


def measure(config: EvaluateConfig) -> float | None:
    """Answer what is not answered yet, and write all samples with their rates.

    Returns:
        The mean rate over the samples that have one; None if none has.
    """
    if config.model.build is None:
        check_family(ensure_model(config.model))
    running = as_benchmark(config)
    ((name, benchmark),) = running.benchmarks.items()
    opened = open_benchmark(name, benchmark)
    refuse_without_media(opened)
    (summary,) = evaluate_opened(running, [opened])
    return conclude(config, opened.samples, Path(summary["folder"]))


def as_benchmark(config: EvaluateConfig) -> EvaluateConfig:
    """The run that answers the training samples: a benchmark of `k` repeats with their budget."""
    data, budget = config.data, config.budget
    assert data is not None and budget is not None
    benchmark = BenchmarkConfig(
        data=replace(data, train=[], validation=data.train),
        budget=Budgets(video=budget.video, image=budget.image),
        generation=config.pass_rate.generation,
        repeats=config.k,
    )
    return replace(
        config,
        job=Job.run,
        data=None,
        budget=None,
        benchmarks={f"pass_rate-{data.name}": benchmark},
    )


def conclude(config: EvaluateConfig, samples: Sequence[Sample], folder: Path) -> float | None:
    """Write the samples and `pass_rate.json` from the scores in `folder`; returns the mean rate."""
    rows = jsonl.read(folder / "scores.jsonl")
    tallies = tally(rows, config.pass_rate.right_from)
    file = resolve_output(config.pass_rate.file or folder / "samples.jsonl")
    write_samples(file, (replace(s, pass_rate=tallies[s.id].rate) for s in samples))
    numbers = summarize(tallies, failures(rows), config.k)
    write_json(folder / "pass_rate.json", numbers | {"file": str(file)})
    _print(numbers, file)
    return numbers["mean"]


def tally(rows: Sequence[Mapping[str, Any]], right_from: float) -> dict[str, Tally]:
    """Right and known answers by sample id.

    Args:
        rows: of `scores.jsonl`.
        right_from: accuracy from which an answer is right.
    """
    right: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for row in rows:
        if _judged(row):
            judged[row["sample_id"]] += 1
            right[row["sample_id"]] += row["accuracy"] >= right_from
    return {
        sample_id: Tally(right=right[sample_id], judged=judged[sample_id])
        for sample_id in dict.fromkeys(row["sample_id"] for row in rows)
    }


def failures(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Answers that say nothing about the model, by what went wrong."""
    return dict(sorted(Counter(_failure(row) for row in rows if not _judged(row)).items()))


def _failure(row: Mapping[str, Any]) -> str:
    if row["score"] is not None:
        return f"score {row['score']['status']}"
    return "no gold answer" if row["status"] in ANSWERED else row["status"]


def _judged(row: Mapping[str, Any]) -> bool:
    return row["score"] is not None and row["score"]["status"] in JUDGED


def summarize(tallies: Mapping[str, Tally], failed: Mapping[str, int], k: int) -> dict[str, Any]:
    """What `pass_rate.json` says.

    `pass@n` is over the samples with at least n known answers.
    """
    rates = [rate for one in tallies.values() if (rate := one.rate) is not None]
    sizes = sorted({2**power for power in range(k.bit_length())} | {k})
    return {
        "samples": len(tallies),
        "with_rate": len(rates),
        "mean": math.fsum(rates) / len(rates) if rates else None,
        "never_right": sum(rate == 0 for rate in rates),
        "sometimes_right": sum(0 < rate < 1 for rate in rates),
        "always_right": sum(rate == 1 for rate in rates),
        "answers": sum(one.judged for one in tallies.values()),
        "failed": dict(failed),
        "pass_at": {
            str(size): math.fsum(known) / len(known)
            for size in sizes
            if (known := [pass_at(size, t) for t in tallies.values() if t.judged >= size])
        },
    }


def pass_at(size: int, answers: Tally) -> float:
    """Probability that one of `size` answers is right, drawn from those known without repeats.

    1 - C(n - c, size) / C(n, size) of n known answers with c right: the unbiased estimate of Chen
    et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374, equation 1.
    """
    wrong = answers.judged - answers.right
    return 1 - math.comb(wrong, size) / math.comb(answers.judged, size)


def _print(numbers: Mapping[str, Any], file: Path) -> None:
    print(
        f"{numbers['with_rate']} of {numbers['samples']} samples have a pass rate: "
        f"{numbers['never_right']} never right, {numbers['sometimes_right']} now and then, "
        f"{numbers['always_right']} always"
    )
    if numbers["pass_at"]:
        shown = "  ".join(f"pass@{n} {rate:.3f}" for n, rate in numbers["pass_at"].items())
        print(f"  {shown}")
    if numbers["failed"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in numbers["failed"].items())
        print(f"  answers that failed and count neither way: {reasons}")
    print(f"  written to {file}")
