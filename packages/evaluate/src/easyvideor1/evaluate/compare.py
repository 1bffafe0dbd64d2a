"""Two stored runs side by side: where their protocols differ, and by how much their scores.

Lines up the questions that both runs have answered and takes the difference for each. Since a
question that is hard for one run is mostly hard for the other, the mean of these differences is
known far better than the difference of two means; its interval is clustered by video. Source:
Miller 2024, Adding Error Bars to Evals, arXiv 2411.00640, sections 2.2 and 4.2. Reads
`protocol.json`, `scores.jsonl` and `summary.json`; needs no model and no media.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.aggregates import mean
from easyvideor1.evaluate.config import EvaluateConfig
from easyvideor1.evaluate.metrics import clustered_error
from easyvideor1.evaluate.protocol import Protocol, differences
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import write_json

NAMED = 10
"""Questions of one run only that the console names; the file names all."""
SHOWN_CHARACTERS = 60
"""Of a protocol's value on the console."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What one run scored on one question, the mean over its repeats."""

    id: str
    video: str
    groups: dict[str, list[str]]
    accuracy: float
    strict_accuracy: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A folder with scores."""

    folder: Path
    protocol: Protocol
    summary: dict[str, Any]
    questions: dict[str, Question]
    """Those with a prediction, answered or failed, by id."""

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Paired:
    """Scores of two runs on the same questions, 0 to 1."""

    questions: int
    videos: int
    a: float
    b: float
    difference: float
    """b - a."""
    interval_95: tuple[float, float] | None
    """Of the difference, clustered by video; None below two videos."""
    better: int
    """Questions on which b scores more."""
    worse: int

    def __str__(self) -> str:
        interval = self.interval_95
        shown = f" ({_points(interval[0])} to {_points(interval[1])})" if interval else ""
        return (
            f"{100 * self.a:.1f} -> {100 * self.b:.1f}, {_points(self.difference)}{shown}; "
            f"better on {self.better}, worse on {self.worse} of {self.questions}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A field in which two protocols differ."""

    field: str
    a: Any
    b: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All that is said about two runs."""

    a: str
    b: str
    protocol: list[Change]
    official: Paired
    """By the benchmark's own reading of answers."""
    strict: Paired
    by: dict[str, dict[str, Paired]]
    """By field and value, official reading."""
    metrics: dict[str, tuple[float | None, float | None]]
    """The benchmark's numbers of each run over all its questions, None where it lacks one."""
    only_a: list[str]
    """Questions that b has not."""
    only_b: list[str]


def compare_runs(config: EvaluateConfig) -> Comparison:
    """Compare the runs `a` and `b`, print it and write it beside `a`.

    Raises:
        UserError: where a run is not there, has no scores, or shares no question with the other.
    """
    root = resolve_output(config.output_dir)
    first, second = (read_run(find_run(name or "", root)) for name in (config.a, config.b))
    comparison = compare(first, second)
    path = first.folder.parent / f"compare_{first.folder.name}_{second.folder.name}.json"
    write_json(path, asdict(comparison))
    print("\n".join([*describe(comparison), f"written to {path}"]))
    return comparison


def find_run(name: str, root: Path) -> Path:
    """The folder of a run.

    Args:
        name: the folder, or `<benchmark>/<beginning of its fingerprint>`.
        root: folder of all evaluations.

    Raises:
        UserError: where it names none or several, with those that are there.
    """
    folder = resolve_output(name)
    if (folder / "protocol.json").exists():
        return folder.resolve()
    benchmark, _, beginning = name.rpartition("/")
    stored = sorted(path.parent for path in (root / benchmark).glob("*/protocol.json"))
    found = [folder for folder in stored if folder.name.startswith(beginning)]
    if benchmark and beginning and len(found) == 1:
        return found[0]
    known = ", ".join(f"{path.parent.name}/{path.name}" for path in found or stored)
    raise UserError(
        f"{name} names {len(found) if benchmark and beginning else 0} stored runs, not one: give a "
        f"run's folder, or <benchmark>/<beginning of its fingerprint> below {root}; "
        + (f"there are {known}" if benchmark and known else "there are none of that benchmark")
    )


def read_run(folder: Path) -> StoredRun:
    """Read what a run has stored.

    Raises:
        UserError: where it has no scores, or scores that do not name the videos.
    """
    files = {name: folder / name for name in ("scores.jsonl", "summary.json", "protocol.json")}
    for path in files.values():
        if not path.exists():
            raise UserError(f"{folder} has no {path.name}: score it first with job=score")
    rows = jsonl.read(files["scores.jsonl"])
    if any("video" not in row for row in rows):
        raise UserError(
            f"{files['scores.jsonl']} does not say which video a question is about; write it again "
            "with job=score"
        )
    by_id: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["status"] != "missing":
            by_id[row["sample_id"]].append(row)
    return StoredRun(
        folder=folder,
        protocol=json.loads(files["protocol.json"].read_text(encoding="utf-8")),
        summary=json.loads(files["summary.json"].read_text(encoding="utf-8")),
        questions={name: _question(name, repeats) for name, repeats in by_id.items()},
    )


def _question(name: str, repeats: Sequence[dict[str, Any]]) -> Question:
    return Question(
        id=name,
        video=repeats[0]["video"],
        groups=repeats[0]["groups"],
        accuracy=mean([row["accuracy"] for row in repeats]),
        strict_accuracy=mean([row["strict_accuracy"] for row in repeats]),
    )


def compare(a: StoredRun, b: StoredRun) -> Comparison:
    """What changes from a to b, on the questions that both have.

    Raises:
        UserError: where they have none in common.
    """
    shared = [name for name in a.questions if name in b.questions]
    if not shared:
        raise UserError(
            f"{a.name} and {b.name} have no question in common, so there is nothing to compare"
        )
    pairs = [(a.questions[name], b.questions[name]) for name in shared]
    fields = [field for field in pairs[0][0].groups if field in pairs[0][1].groups]
    numbers = [run.summary["official"] for run in (a, b)]
    return Comparison(
        a=str(a.folder),
        b=str(b.folder),
        protocol=[
            Change(field=field, a=_at(a.protocol, field), b=_at(b.protocol, field))
            for field in differences(a.protocol, b.protocol)
        ],
        official=paired([(x.video, x.accuracy, y.accuracy) for x, y in pairs]),
        strict=paired([(x.video, x.strict_accuracy, y.strict_accuracy) for x, y in pairs]),
        by={field: _by_value(pairs, field) for field in fields},
        metrics={
            name: (numbers[0].get(name), numbers[1].get(name))
            for name in dict.fromkeys([*numbers[0], *numbers[1]])
        },
        only_a=[name for name in a.questions if name not in b.questions],
        only_b=[name for name in b.questions if name not in a.questions],
    )


def _by_value(pairs: Sequence[tuple[Question, Question]], field: str) -> dict[str, Paired]:
    parts: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for x, y in pairs:
        for value in x.groups[field]:
            parts[value].append((x.video, x.accuracy, y.accuracy))
    return {value: paired(parts[value]) for value in sorted(parts)}


def paired(rows: Sequence[tuple[str, float, float]]) -> Paired:
    """The paired difference over at least one question.

    Args:
        rows: video, score in a and score in b, 0 to 1, of each question.
    """
    gains = [b - a for _, a, b in rows]
    videos = [video for video, _, _ in rows]
    difference, error = mean(gains), clustered_error(gains, videos)
    interval = None
    if error is not None:
        interval = max(-1.0, difference - 1.96 * error), min(1.0, difference + 1.96 * error)
    return Paired(
        questions=len(rows),
        videos=len(set(videos)),
        a=mean([a for _, a, _ in rows]),
        b=mean([b for _, _, b in rows]),
        difference=difference,
        interval_95=interval,
        better=sum(gain > 0 for gain in gains),
        worse=sum(gain < 0 for gain in gains),
    )


def _at(protocol: Any, field: str) -> Any:
    """The value under a dotted name, None where there is none."""
    for key in field.split("."):
        protocol = protocol.get(key) if isinstance(protocol, dict) else None
    return protocol


def describe(comparison: Comparison) -> list[str]:
    """The comparison as lines for the console; scores in per cent, differences in points."""
    lines = [f"a: {comparison.a}", f"b: {comparison.b}"]
    if comparison.protocol:
        lines.append(f"their protocols differ in {len(comparison.protocol)} fields:")
        lines += [
            f"  {change.field}: {_shown(change.a)} -> {_shown(change.b)}"
            for change in comparison.protocol
        ]
    else:
        lines.append("they have the same protocol")
    for run, names in (("a", comparison.only_a), ("b", comparison.only_b)):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            listed = ", ".join(names[:NAMED])
            lines.append(f"only in {run}, left out: {len(names)} questions: {listed}{more}")
    official, strict = comparison.official, comparison.strict
    lines.append(
        f"accuracy, with the 95 % interval of the difference over {official.videos} videos:"
    )
    lines.append(f"  official: {official}")
    lines.append(f"  strict: {strict}")
    for field, values in comparison.by.items():
        lines += [f"  {field} {value}: {part}" for value, part in values.items()]
    lines.append("the benchmark's numbers over all questions of each run:")
    lines += [
        f"  {name}: {_number(a)} -> {_number(b)}" for name, (a, b) in comparison.metrics.items()
    ]
    return lines


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
