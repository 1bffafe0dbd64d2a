"""Rows of a JSONL file of answers, each with its sample: what `evr-score` reads.

A row holds `response` beside an `id` of the data files, or beside the fields of a sample. Rows are
read one at a time, so that a file may be larger than memory. Called by `score_file`.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from easyvideor1.rewards.config import ScoreConfig
from easyvideor1.rewards.registry import GoldError, task_of
from easyvideor1.rewards.scoring import check_gold
from easyvideor1.schema import formats
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Sample

RESPONSE = "response"
NUM_TOKENS = "num_tokens"
SCORE = "score"
OF_THE_ANSWER = (RESPONSE, NUM_TOKENS, SCORE)

_SAMPLE_FIELDS = tuple(field.name for field in fields(Sample))
_KNOWN = (*OF_THE_ANSWER, *_SAMPLE_FIELDS, "solution", "images", "videos", "path", "problem_id")
_OWN_MARKS = {"media", "offline", "extra"}
NO_PROBLEM = "(not given)"


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of the input."""

    row: dict[str, Any]
    sample: Sample
    text: str
    num_tokens: int | None


class AnswerRows:
    """The answers of a file, in order, as often as they are iterated over."""

    def __init__(self, source: Path, config: ScoreConfig):
        """Opens the data files, not yet the answers.

        Raises:
            UserError: for a data file that cannot be read.
        """
        self._source, self._config = source, config
        self._table = None
        if config.samples:
            self._table = read_samples(config.samples, format=config.format)
            self._places = {name: place for place, name in enumerate(self._table.ids)}
        self._sample_at = lru_cache(maxsize=4096)(self._read_sample)

    def __iter__(self) -> Iterator[Answer]:
        """Yields answers with samples that can be scored against.

        Raises:
            DataError: for a bad row, as file:row:field.
            GoldError: for a gold answer in the data files that cannot be used.
        """
        needs_num_tokens = self._config.reward.overlong.max_tokens is not None
        for number, row in _rows(self._source):
            text = row.get(RESPONSE)
            if not isinstance(text, str):
                raise DataError(self._source, number, RESPONSE, text, "the text of the answer")
            num_tokens = row.get(NUM_TOKENS)
            if needs_num_tokens and type(num_tokens) is not int:
                expected = "the length in tokens, which reward.overlong takes"
                raise DataError(self._source, number, NUM_TOKENS, num_tokens, expected)
            yield Answer(row, self._sample(number, row), text, num_tokens)

    def _sample(self, number: int, row: dict[str, Any]) -> Sample:
        if self._table is None:
            sample = _own_sample(self._source, number, row)
            self._check(number, row, sample)
            return sample
        place = self._places.get(str(row.get("id")))
        if place is None:
            known = f"the id of one of the {len(self._places)} samples read"
            raise DataError(self._source, number, "id", row.get("id"), known)
        return self._sample_at(place)

    def _read_sample(self, place: int) -> Sample:
        assert self._table is not None
        sample = self._table[place]
        check_gold(sample, self._config.reward)
        return sample

    def _check(self, number: int, row: dict[str, Any], sample: Sample) -> None:
        try:
            check_gold(sample, self._config.reward)
        except GoldError as error:
            field = "solution" if row.get("answer") is None and "solution" in row else "answer"
            expected = error.expected
            raise DataError(self._source, number, field, row.get(field), expected) from None
        is_asked = sample.problem != NO_PROBLEM
        if not is_asked and task_of(sample).needs_judge(sample, self._config.reward):
            expected = "the question, which the judge is shown"
            raise DataError(self._source, number, "problem", None, expected)


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


def _own_sample(source: Path, number: int, row: dict[str, Any]) -> Sample:
    """The sample in a row, in our own format or a published one; other fields are let be."""
    if "problem_type" not in row:
        raise DataError(
            source, number, "problem_type", None, "the fields of a sample beside the response",
            "Or name the data files that hold the samples: samples=[FILE]",
        )  # fmt: skip
    for name in row:
        _refuse_misspelt(source, number, name, row[name])
    values: dict[str, Any] = {"problem": NO_PROBLEM, "id": str(number)}
    values |= {name: value for name, value in row.items() if name not in OF_THE_ANSWER}
    has_gold = row.get("answer") is not None or row.get("solution") is not None
    is_own = bool(_OWN_MARKS & row.keys()) or not has_gold
    if is_own:
        values = {name: value for name, value in values.items() if name in _SAMPLE_FIELDS}
        values.setdefault("answer", None)
    style = formats.OWN if is_own else "easyvideor1"
    return formats.parse(values, number, formats.Context(path=source, format=style))


def _refuse_misspelt(source: Path, number: int, name: str, value: Any) -> None:
    """Other fields may stand in a row, but not one that is nearly one of ours."""
    if name in _KNOWN:
        return
    if close := difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.8):
        raise DataError(source, number, name, value, f"no such field; did you mean {close[0]}?")
