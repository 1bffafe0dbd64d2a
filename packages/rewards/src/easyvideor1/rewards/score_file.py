"""Score a JSONL file of answers: read and check all rows, score, write, print a table per type.

All input is checked before the first answer is scored. The output appears complete or not at all.
Called by `cli` alone.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from easyvideor1.rewards.batch import count_statuses, score_many
from easyvideor1.rewards.config import RewardConfig, ScoreConfig
from easyvideor1.rewards.registry import GoldError
from easyvideor1.rewards.scoring import render_gold
from easyvideor1.schema import formats
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Sample, Score, ScoreStatus

CHUNK = 1_000
"""Answers per step of the progress bar."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of the input."""

    row: dict[str, Any]
    sample: Sample
    text: str


def score_file(config: ScoreConfig) -> float:
    """Score `config.input` into `config.output`, print the table, return the mean reward.

    Raises:
        UserError: for a missing file, or a bad row as file:row:field.
    """
    source = Path(config.input).expanduser()
    output = _output_of(config, source)
    answers = read_answers(source, config)
    scores: list[Score] = []
    with tqdm(total=len(answers), desc="score", unit="answer") as progress:
        for start in range(0, len(answers), CHUNK):
            chunk = answers[start : start + CHUNK]
            scores += score_many([(a.sample, a.text) for a in chunk], config.reward)
            progress.update(len(chunk))
    _write(output, answers, scores)
    print(table(answers, scores))
    print(f"scores: {output}")
    return sum(score.value for score in scores) / len(scores)


def _output_of(config: ScoreConfig, source: Path) -> Path:
    if not source.is_file():
        raise UserError(f"input={config.input}: there is no such file")
    if config.output is None:
        return source.with_suffix(".scores.jsonl")
    output = Path(config.output).expanduser()
    if output.exists() and output.samefile(source):
        raise UserError(f"output={config.output} would replace the input; name another file")
    return output


def read_answers(source: Path, config: ScoreConfig) -> list[Answer]:
    """All rows of `source`, each with its sample, whose gold answer can be scored against.

    Raises:
        DataError: naming file, row and field.
        UserError: for a file without rows, or a gold answer of the data files that cannot be used.
    """
    rows = list(_rows(source))
    if not rows:
        raise UserError(f"{source}: holds no answers")
    known: Mapping[str, Sample] = {}
    if config.samples:
        known = {sample.id: sample for sample in read_samples(config.samples, format=config.format)}
    answers: list[Answer] = []
    checked: set[str] = set()
    for number, row in rows:
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError(source, number, "text", text, "the text of the answer")
        if config.samples:
            sample = _known_sample(source, number, row, known)
        else:
            sample = _own_sample(source, number, row)
        if not config.samples or sample.id not in checked:
            _check_gold(source, number, row, sample, config.reward)
            checked.add(sample.id)
        answers.append(Answer(row, sample, text))
    return answers


def _rows(source: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with source.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                shown = line[:80].decode(errors="replace")
                raise DataError(source, number, "line", shown, "a JSON object")
            yield number, row


def _known_sample(
    source: Path, number: int, row: dict[str, Any], known: Mapping[str, Sample]
) -> Sample:
    sample = known.get(str(row.get("id")))
    if sample is None:
        raise DataError(
            source,
            number,
            "id",
            row.get("id"),
            f"the id of one of the {len(known)} samples read",
        )
    return sample


def _own_sample(source: Path, number: int, row: dict[str, Any]) -> Sample:
    if "problem_type" not in row:
        raise DataError(
            source, number, "problem_type", None, "the fields of a sample beside the text",
            "Or name the data files that hold the samples: samples=[FILE]",
        )  # fmt: skip
    fields = {name: value for name, value in row.items() if name not in ("text", "score")}
    context = formats.Context(path=source, format=formats.OWN)
    return formats.parse(fields, number, context)


def _check_gold(
    source: Path, number: int, row: dict[str, Any], sample: Sample, config: RewardConfig
) -> None:
    try:
        render_gold(sample, config)
    except GoldError as error:
        if "answer" not in row:
            raise
        raise DataError(source, number, "answer", row["answer"], error.expected) from None


def _write(output: Path, answers: Sequence[Answer], scores: Sequence[Score]) -> None:
    """One line per answer: its row, with the field `score`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            for answer, score in zip(answers, scores, strict=True):
                row = {**answer.row, "score": as_json(score)}
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def as_json(score: Score) -> dict[str, Any]:
    """`{value, accuracy, format, status, extracted, detail}`."""
    return {
        "value": score.value,
        **score.parts,
        "status": score.status.value,
        "extracted": score.extracted,
        "detail": score.detail,
    }


def table(answers: Sequence[Answer], scores: Sequence[Score]) -> str:
    """Per problem type and for all: how many answers, mean reward and parts, counts of failures."""
    by_type: dict[str, list[Score]] = defaultdict(list)
    for answer, score in zip(answers, scores, strict=True):
        by_type[answer.sample.problem_type.value].append(score)
    failures = [status.value for status in ScoreStatus if status is not ScoreStatus.ok]
    lines = [["problem_type", "n", "mean", "accuracy", "format", *failures]]
    lines += [_line(name, by_type[name], failures) for name in sorted(by_type)]
    if len(by_type) > 1:
        lines.append(_line("all", scores, failures))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _line(name: str, scores: Sequence[Score], failures: Sequence[str]) -> list[str]:
    counts = count_statuses(scores)
    means = [
        sum(score.value for score in scores) / len(scores),
        *(sum(s.parts[part] for s in scores) / len(scores) for part in ("accuracy", "format")),
    ]
    cells = [f"{mean:.4f}" for mean in means]
    return [name, str(len(scores)), *cells, *(str(counts[status]) for status in failures)]
