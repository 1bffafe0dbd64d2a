r"""A mathematical answer: accuracy 1 if math-verify finds it equal to the gold one, else 0.

Both are parsed to sympy and compared numerically, symbolically, as sets, intervals, matrices,
equations and inequalities (https://github.com/huggingface/Math-Verify). `x = 5` answers 5; `50\%`
is 0.5, and 50; units are converted where both sides have one, and may be left out. `math_text` says
what else is read. Text goes through a LaTeX grammar, never through Python's `eval`, and no number
of more than 20 000 digits is computed. What math-verify cannot read is right only as the same text.
An answer that leaves an integral, sum, product, limit or derivative to be worked out is none, but
where the gold answer has one: math-verify would work it out for the model.

math-verify bounds its time by SIGALRM, which works in main threads alone; it is switched off here,
and answers that are not quick are scored in processes with a deadline.
"""

import logging
import re
import warnings
from fractions import Fraction
from functools import lru_cache
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.expression_size import is_bounded
from easyvideor1.rewards.math_text import bare, is_costly, is_expression, to_latex
from easyvideor1.rewards.reading import AnswerText, NoAnswer, out_of_json, read_answer, stated
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.units import Unit, split_unit
from easyvideor1.schema.records import ProblemType, Sample


@register_task(ProblemType.math)
class Math(Task[str]):
    batch_size = 16

    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give only the final result, in LaTeX, in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        gold = None if sample.answer is None else _gold(sample)
        if answer.tagged and gold is not None and _same_text(bare(answer.text), gold):
            return bare(answer.text)
        text = _stated(answer)
        if _PLAIN_NUMBER.fullmatch(text):
            return text
        expression = _parse(split_unit(text)[0])
        if expression is None:
            raise NoAnswer("not an expression that can be read or computed")
        if _is_to_work_out(expression) and not (gold and _is_to_work_out(_parse(gold))):
            raise NoAnswer("an operation is left to be worked out")
        return text

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_expression(bare(answer.text))

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        return float(equal(value, _gold(sample)))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        answer = read_answer(text)
        return answer.tagged and _equal_at_sight(bare(answer.text), _gold(sample)) is not None

    def load(self) -> None:
        _parse(r"\frac{1}{2}")


_STARTS_WITH_LATEX = re.compile(r"\s*(?:\$([^$]{1,300})\$|\\\((.{1,300}?)\\\))")
_REASON = re.compile(r"[.;](?=\s|\Z)|[。；\n]|,?\s(?:because|since|as|where|which|for|when)\b")
_PROSE_FOLLOWS = re.compile(r"[.,;]?\s+(?!and\b|or\b)[A-Za-z]{2}")
_LOOKS_LIKE_MATH = re.compile(r"[\d\\^=π√∞∅]|^.$")


def _stated(answer: AnswerText) -> str:
    """The expression that an answer states: the content of the tag, else a stated one.

    Raises:
        NoAnswer: none is stated.
    """
    answer = out_of_json(answer)
    if answer.tagged and is_expression(text := bare(answer.text)):
        return text
    return stated(answer, _parse_line, _parse_start)


def _parse_line(text: str) -> str | None:
    """A line that is an expression; in prose, a word is none."""
    match = _STARTS_WITH_LATEX.match(text)
    if match and _PROSE_FOLLOWS.match(text, match.end()):
        text = match[0]
    text = bare(text)
    return text if is_expression(text) and _LOOKS_LIKE_MATH.search(text) else None


def _parse_start(text: str) -> str | None:
    """The expression at the start of a statement that goes on."""
    if match := _STARTS_WITH_LATEX.match(text):
        return _parse_line(match[1] or match[2])
    return _parse_line(_REASON.split(text, maxsplit=1)[0])


_PLAIN_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{1,10})?")


def equal(text: str, gold: str) -> bool:
    """Whether two expressions mean the same."""
    at_sight = _equal_at_sight(text, gold)
    if at_sight is not None:
        return at_sight
    (quantity, unit), (gold_quantity, gold_unit) = split_unit(text), split_unit(gold)
    if unit and gold_unit:
        return unit.dimension == gold_unit.dimension and _verify(
            gold_quantity, quantity, unit, gold_unit
        )
    if _verify(gold_quantity, quantity):
        return True
    # One letter may be a unit or a variable.
    return bool(unit or gold_unit) and _verify(gold, text)


def _equal_at_sight(text: str, gold: str) -> bool | None:
    """Whether two expressions are equal where that takes no sympy; None where it does."""
    if _same_text(text, gold):
        return True
    if _PLAIN_NUMBER.fullmatch(text) and _PLAIN_NUMBER.fullmatch(gold):
        a, b = Fraction(text), Fraction(gold)
        return a == b or ("." in text + gold and round(a, 6) == round(b, 6))
    return None


def _same_text(text: str, gold: str) -> bool:
    return text == gold or _SPACE.sub("", text) == _SPACE.sub("", gold)


_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")  # but that of 1 1/2


def _verify(gold: str, text: str, unit: Unit | None = None, gold_unit: Unit | None = None) -> bool:
    expected, found = _parse(gold), _parse(text)
    if expected is None or found is None:
        return False
    if unit and gold_unit and unit.factor != gold_unit.factor:
        found = _times(found, unit.factor / gold_unit.factor)
    return _library().verify(expected, found, allow_set_relation_comp=True, timeout_seconds=None)


def _times(expression: Any, factor: Fraction) -> Any:
    """A quantity in another unit; of an assignment, its right side."""
    import sympy

    ratio = sympy.Rational(factor.numerator, factor.denominator)
    if isinstance(expression, sympy.Eq):
        return sympy.Eq(expression.lhs, sympy.Mul(expression.rhs, ratio), evaluate=False)
    return sympy.Mul(expression, ratio) if isinstance(expression, sympy.Expr) else expression


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    """The sympy expression that `text` is; None where it is none, or too large to compute."""
    import sympy

    library = _library()
    if not is_expression(text):
        return None
    latex = to_latex(text)
    if is_costly(latex):
        return None
    parsed = library.parse(
        f"${latex[:-1]}$%" if latex.endswith("%") else f"${latex}$",
        [library.LatexExtractionConfig()],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    expression = parsed[0] if parsed else None
    is_undefined = expression is sympy.nan or expression is sympy.zoo
    return None if is_undefined or not is_bounded(expression) else expression


def _is_to_work_out(expression: Any) -> bool:
    import sympy

    operations = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)
    return isinstance(expression, sympy.Basic) and expression.has(*operations)


@lru_cache(maxsize=1)
def _library() -> Any:
    # It warns once that its timeouts are off; each failed comparison it logs is a wrong answer.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    # Of what its parser does with odd texts.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"sympy|latex2sympy2")
    import math_verify

    return math_verify


def _gold(sample: Sample) -> str:
    value = sample.answer
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        value = str(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = bare(str(value)) if is_number or isinstance(value, str) else ""
    if not text.strip("$ "):
        raise GoldError(sample, "an expression in LaTeX or plain text, a number or a matrix")
    return text
