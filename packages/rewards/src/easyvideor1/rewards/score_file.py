"""Score a JSONL file of answers: check all rows, score them, write, print a table per type.

All input is checked before the first answer is scored. The output appears complete or not at all.
Both passes hold one chunk of rows at a time. Called by `cli` alone.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from easyvideor1.rewards.answer_rows import SCORE, AnswerRows
from easyvideor1.rewards.batch import score_many
from easyvideor1.rewards.config import ScoreConfig
from easyvideor1.rewards.score_table import ScoreTable
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import new_file
from easyvideor1.schema.records import Score

T = TypeVar("T")

CHUNK = 1_000
"""Answers that are scored together."""


def score_file(config: ScoreConfig) -> float:
    """Score `config.input` into `config.output`, print the table, return the mean reward.

    Raises:
        UserError: for a missing file, or a bad row as file:row:field.
    """
    source, output = _paths(config)
    answers = AnswerRows(source, config)
    count = sum(1 for _ in tqdm(answers, desc="check", unit="answer", delay=2, leave=False))
    if count == 0:
        raise UserError(f"{source}: holds no answers")
    table = ScoreTable()
    progress = tqdm(total=count, desc="score", unit="answer")
    with new_file(output) as draft, draft.open("w", encoding="utf-8") as file, progress:
        for chunk in in_chunks(answers):
            items = [(answer.sample, answer.text) for answer in chunk]
            lengths = [answer.num_tokens for answer in chunk]
            scores = score_many(items, config.reward, num_tokens=lengths)
            for answer, score in zip(chunk, scores, strict=True):
                table.add(answer.sample.problem_type.value, score)
                row = {**answer.row, SCORE: as_json(score)}
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            progress.update(len(chunk))
    print(table)
    print(f"scores: {output}")
    return table.all.mean


def _paths(config: ScoreConfig) -> tuple[Path, Path]:
    if config.input is None:
        raise UserError("input is not set: name the JSONL of answers, input=FILE.jsonl")
    source = Path(config.input).expanduser()
    if not source.is_file():
        raise UserError(f"input={config.input}: there is no such file")
    if config.output is None:
        return source, source.with_suffix(".scores.jsonl")
    output = Path(config.output).expanduser()
    if output.exists() and output.samefile(source):
        raise UserError(f"output={config.output} would replace the input; name another file")
    return source, output


def in_chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """`items` in lists of at most `CHUNK`."""
    left = iter(items)
    while chunk := list(itertools.islice(left, CHUNK)):
        yield chunk


def as_json(score: Score) -> dict[str, Any]:
    """`{value, accuracy, format, status, extracted, detail}`, and penalties by their names."""
    return {
        "value": score.value,
        **score.parts,
        "status": score.status.value,
        "extracted": score.extracted,
        "detail": score.detail,
    }
