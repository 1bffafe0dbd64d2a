"""`job=rescore`: answers that lmms-eval logged, read and scored by our rules beside its own.

Needs neither a model nor media. Only the questions in the logs count; what both say about each is
written to `rescored.jsonl`, and the console names those on which they differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig
from easyvideor1.evaluate.lmms_log import (
    LoggedAnswer,
    Matcher,
    read_logs,
    their_reading,
    their_score,
)
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.protocol import digest
from easyvideor1.preprocess.data import ensure_data
from easyvideor1.preprocess.keys import content_fingerprint
from easyvideor1.rewards import check_scoring
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Prediction, PredictionStatus, Sample
from easyvideor1.schema.table import problem_types_of

NAMED = 10
"""Differing questions, and rows without one, that the console names."""
SHOWN_CHARACTERS = 70


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """One answer by both."""

    logged: LoggedAnswer
    outcome: Outcome
    theirs: float | None

    @property
    def differs(self) -> bool:
        """Whether their score, where it is known, is not the official one here."""
        return self.theirs is not None and not math.isclose(self.theirs, self.outcome.accuracy)


def rescore(config: EvaluateConfig) -> dict[str, Any]:
    """Score the logs of `rescore.logs` as answers of the benchmark; returns the summary.

    Raises:
        UserError: if no row belongs to the benchmark, or two rows to one question.
    """
    from easyvideor1.evaluate import scoring
    from easyvideor1.evaluate.results import write_lines

    ((name, benchmark),) = config.benchmarks.items()
    benchmark.data = ensure_data(benchmark.data)
    samples = load_benchmark(name, benchmark)
    check_scoring(problem_types_of(samples), config.reward)
    answers = read_logs([str(resolve_output(source)) for source in config.rescore.logs])
    matched, unmatched = match(name, benchmark, samples, answers)
    rows = score(config, benchmark, matched)
    folder = resolve_output(config.output_dir) / name / f"rescored-{_digest(answers)}"
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / "rescored.jsonl", map(_line, rows))
    outcomes = [row.outcome for row in rows]
    known = [row.theirs for row in rows if row.theirs is not None]
    header = {
        "benchmark": name,
        "folder": str(folder),
        "logs": sorted({str(answer.path) for answer in answers}),
        "metric": benchmark.metric.value,
        "unmatched": [answer.place for answer in unmatched],
        "theirs": math.fsum(known) / len(known) if known else None,
        "theirs_known": len(known),
        "differ": sum(row.differs for row in rows),
    }
    summary = scoring.write_summary(folder, outcomes, benchmark, header)
    _print(summary, rows, unmatched, len(samples))
    return summary


def match(
    name: str,
    benchmark: BenchmarkConfig,
    samples: Sequence[Sample],
    answers: Sequence[LoggedAnswer],
) -> tuple[list[tuple[Sample, LoggedAnswer]], list[LoggedAnswer]]:
    """Each row with its question, and the rows that have none here."""
    matcher = Matcher(name, samples, benchmark.layout.id)
    found: dict[str, tuple[Sample, LoggedAnswer]] = {}
    unmatched = []
    for answer in answers:
        sample = matcher.find(answer)
        if sample is None:
            unmatched.append(answer)
            continue
        if sample.id in found:
            other = found[sample.id][1]
            raise UserError(
                f"{other.place} and {answer.place} both answer {sample.id}; give the logs of one "
                "run, each once"
            )
        found[sample.id] = sample, answer
    if not answers:
        raise UserError("the files of rescore.logs hold no rows")
    if not found:
        first = unmatched[0]
        raise UserError(
            f"no row of rescore.logs belongs to a question of {name}; the first is {first.place}, "
            f"doc_id {first.doc_id} with target {first.target!r}. See whether benchmark={name} and "
            f"benchmarks.{name}.data.validation are what was asked"
        )
    return list(found.values()), unmatched


def score(
    config: EvaluateConfig,
    benchmark: BenchmarkConfig,
    matched: Sequence[tuple[Sample, LoggedAnswer]],
) -> list[Rescored]:
    """Both readings of each answer, beside what the log says."""
    from easyvideor1.evaluate.scoring import score_predictions

    predictions = [
        Prediction(
            fingerprint="lmms-eval",
            sample_id=sample.id,
            status=PredictionStatus.ok,
            text=answer.text,
        )
        for sample, answer in matched
    ]
    outcomes = score_predictions(
        [sample for sample, _ in matched],
        predictions,
        repeats=1,
        reward=config.reward,
        extractor=benchmark.extractor,
    )
    return [
        Rescored(logged=answer, outcome=outcome, theirs=their_score(answer, config.rescore.metric))
        for (_, answer), outcome in zip(matched, outcomes, strict=True)
    ]


def _digest(answers: Sequence[LoggedAnswer]) -> str:
    paths = sorted({str(answer.path) for answer in answers})
    return digest(content_fingerprint(path) for path in paths)


def _line(row: Rescored) -> dict[str, Any]:
    outcome = row.outcome
    return {
        "sample_id": outcome.sample.id,
        "file": str(row.logged.path),
        "line": row.logged.number,
        "doc_id": row.logged.doc_id,
        "text": row.logged.text,
        "theirs": {"score": row.theirs, "read": their_reading(row.logged)},
        "official": to_plain(outcome.score) if outcome.score else None,
        "strict": to_plain(outcome.strict) if outcome.strict else None,
        "differs": row.differs,
    }


def _print(
    summary: dict[str, Any],
    rows: Sequence[Rescored],
    unmatched: Sequence[LoggedAnswer],
    num_questions: int,
) -> None:
    theirs = "unknown" if summary["theirs"] is None else f"{summary['theirs']:.3f}"
    print(
        f"{summary['benchmark']}: {len(rows)} of {num_questions} questions are logged; mean score "
        f"theirs {theirs}, official {summary['accuracy']:.3f}, "
        f"strict {summary['strict_accuracy']:.3f}"
    )
    official = "  ".join(f"{name} {value:.3f}" for name, value in summary["official"].items())
    print(f"  official numbers over these: {official}")
    if summary["theirs_known"] < len(rows):
        print(f"  their score is known for {summary['theirs_known']}")
    if unmatched:
        places = ", ".join(answer.place for answer in unmatched[:NAMED])
        print(f"  {len(unmatched)} rows belong to no question here and do not count: {places}")
    differing = [row for row in rows if row.differs]
    more = f", the first {NAMED}" if len(differing) > NAMED else ""
    print(f"  theirs and the official score differ on {len(differing)}{more}:")
    for row in differing[:NAMED]:
        outcome, text = row.outcome, " ".join(row.logged.text.split())
        ours = outcome.score.extracted if outcome.score else None
        print(
            f"    {outcome.sample.id}: gold {outcome.sample.answer}, theirs "
            f"{their_reading(row.logged) or '?'} {row.theirs:g}, official {ours} "
            f"{outcome.accuracy:g}, strict {outcome.strictly().accuracy:g}: "
            f"{text[:SHOWN_CHARACTERS]}{'…' if len(text) > SHOWN_CHARACTERS else ''}"
        )
    print(f"  all in {Path(summary['folder']) / 'rescored.jsonl'}")
