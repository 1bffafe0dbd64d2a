"""A number: accuracy 1 if it equals the gold number, else 0.

Equal means: the same value; or, where both or one are rounded, the same at the coarser of the two
written precisions, if that has at least two decimals and two digits (3.14 for 3.14159, not 3 for
3.2). `50%` equals 0.5, and equals 50 where the gold answer leaves the percent sign to the question.
"""

import math
import re

from easyvideor1.rewards.numbers import Number, parse_number
from easyvideor1.rewards.reading import AnswerText, NoAnswer, stated
from easyvideor1.rewards.registry import Task, register_task
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

_SENTENCE_END = re.compile(r"[.;!?](?=\s|\Z)|[。；！？\n]|,\s|\b(?:because|since|as)\b")
_THERE_ARE = re.compile(r"\bthere\s+(?:is|are|was|were)\s+(.{1,80})\Z", re.IGNORECASE | re.DOTALL)


@register_task(ProblemType.numerical)
class Numerical(Task[dict[str, float | int | bool | None]]):
    def instruction(self, sample: Sample) -> str:
        return "Reason briefly, then give only the number in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample):
        return as_dict(read_number(answer))

    def score(self, value, sample: Sample) -> float:
        return float(equal(Number(**value), gold_number(sample)))

    def render_gold(self, sample: Sample) -> str:
        gold_number(sample)
        return str(sample.answer)


def as_dict(number: Number) -> dict[str, float | int | bool | None]:
    return {"value": number.value, "decimals": number.decimals, "percent": number.percent}


def read_number(answer: AnswerText) -> Number:
    """The number an answer states: all of the tag's content, else a stated one.

    Raises:
        NoAnswer: none is stated, or several.
    """
    if answer.tagged:
        try:
            return parse_number(answer.text)
        except NoAnswer as reason:
            try:
                return stated(answer, _parse_bare, _parse_start)
            except NoAnswer:
                raise reason from None
    return stated(answer, _parse_bare, _parse_start)


def _parse_bare(text: str) -> Number | None:
    """A number with at most three words around it; `there are 3 cars` counts as one."""
    if match := _THERE_ARE.search(text):
        text = match.group(1)
    if len(text.split()) > 4:
        return None
    try:
        return parse_number(text)
    except NoAnswer:
        return None


def _parse_start(text: str) -> Number | None:
    """The number in the first sentence of a statement that goes on."""
    end = _SENTENCE_END.search(text)
    try:
        return parse_number(text[: end.start()] if end else text)
    except NoAnswer:
        return None


def equal(answer: Number, gold: Number) -> bool:
    """Whether two numbers agree; see the module for the rule."""
    if answer.percent and not gold.percent:
        return _agree(answer, gold) or _agree(_as_ratio(answer), gold)
    if gold.percent and not answer.percent:
        return _agree(answer, gold) or _agree(answer, _as_ratio(gold))
    return _agree(answer, gold)


def _as_ratio(percent: Number) -> Number:
    decimals = None if percent.decimals is None else percent.decimals + 2
    return Number(percent.value / 100, decimals)


def _agree(a: Number, b: Number) -> bool:
    if math.isclose(a.value, b.value, rel_tol=1e-9):
        return True
    written = [number.decimals for number in (a, b) if number.decimals is not None]
    if not written or min(written) < 2:
        return False
    decimals = min(written)
    rounded = round(a.value, decimals), round(b.value, decimals)
    return rounded[0] == rounded[1] and abs(rounded[0]) * 10**decimals >= 10


def gold_number(sample: Sample) -> Number:
    """The gold answer as a number.

    Raises:
        UserError: it is none.
    """
    value = sample.answer
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    try:
        return parse_number(value if isinstance(value, str) else "")
    except NoAnswer as reason:
        raise UserError(
            f"sample {sample.id}: answer {sample.answer!r} is not a number ({reason})"
        ) from None
