"""A number: accuracy 1 if it equals the gold number, else 0.

Equal means the same value; or, where one is rounded, the same value at the coarser of the two
written precisions, if that has at least two decimals and two digits (3.14 for 3.14159, not 3 for
3.2). `50%` equals 0.5, and also 50, since a gold answer may leave the sign to the question.
"""

import math
import re
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.numbers import Number, parse_number
from easyvideor1.rewards.reading import AnswerText, NoAnswer, out_of_json, stated
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

MAX_BARE_WORDS = 4
"""A line of prose is a number where it has at most this many words: `about 12.5 square metres`."""


@register_task(ProblemType.numerical)
class Numerical(Task[dict[str, Any]]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give only the number in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> dict[str, Any]:
        return read_number(answer).as_json()

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_number(answer.text)

    def score(self, value: dict[str, Any], sample: Sample, config: RewardConfig) -> float:
        return float(equal(Number(**value), gold_number(sample)))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        gold_number(sample)
        return str(sample.answer)


def read_number(answer: AnswerText) -> Number:
    """The number an answer states: the content of the tag, else a stated one.

    Raises:
        NoAnswer: none is stated, or several.
    """
    answer = out_of_json(answer)
    if not answer.tagged:
        return stated(answer, _parse_bare, _parse_start)
    try:
        return parse_number(answer.text)
    except NoAnswer as reason:
        try:
            return stated(answer, _parse_bare, _parse_start)
        except NoAnswer:
            raise reason from None


def is_number(text: str) -> bool:
    """Whether `text` is a number and no prose around it."""
    return len(text.split()) <= MAX_BARE_WORDS and _parse(text) is not None


_THERE_ARE = re.compile(r"\bthere\s+(?:is|are|was|were)\s+([^\n]{1,80})\Z", re.IGNORECASE)
_FIRST_PART = re.compile(r"[.;!?](?=\s|\Z)|[。；！？\n(]|,\s|\b(?:because|since|as)\b")


def _parse_bare(text: str) -> Number | None:
    """A text that is a number with few words around it; `there are 3 cars` is one."""
    if match := _THERE_ARE.search(text[-200:]):
        text = match.group(1)
    return None if len(text.split()) > MAX_BARE_WORDS else _parse(text)


def _parse_start(text: str) -> Number | None:
    """The number in the first clause of a statement that goes on."""
    end = _FIRST_PART.search(text)
    return _parse(text[: end.start()] if end else text)


def _parse(text: str) -> Number | None:
    try:
        return parse_number(text)
    except NoAnswer:
        return None


def equal(answer: Number, gold: Number) -> bool:
    """Whether two numbers agree; the module says when."""
    if answer.percent == gold.percent:
        return _agree(answer, gold)
    percent, bare = (answer, gold) if answer.percent else (gold, answer)
    decimals = None if percent.decimals is None else percent.decimals + 2
    return _agree(percent, bare) or _agree(Number(percent.value / 100, decimals), bare)


def _agree(a: Number, b: Number) -> bool:
    if math.isclose(a.value, b.value, rel_tol=1e-9):
        return True
    written = [number.decimals for number in (a, b) if number.decimals is not None]
    if not written or min(written) < 2:
        return False
    decimals = min(written)
    rounded_a, rounded_b = round(a.value, decimals), round(b.value, decimals)
    return rounded_a == rounded_b and abs(rounded_a) >= 10 ** (1 - decimals)


def gold_number(sample: Sample) -> Number:
    """The gold answer as a number.

    Raises:
        GoldError: it is none.
    """
    value = sample.answer
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return parse_number(str(value) if is_number or isinstance(value, str) else "")
    except NoAnswer as reason:
        raise GoldError(sample, f"one number ({reason})") from None
