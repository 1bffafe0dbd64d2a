"""One number out of a short text: separators, percent, fractions, powers of ten, words, units.

Tolerant about form, strict about meaning: a text with two numbers, an expression, a date or a bound
("at least 5") states no single number and raises `NoAnswer`. European separators are read where
they have no other reading: 1.234,5 and 1.234.567 and 12,5 %, but not 1.234 (that is 1.234) or 12,5.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from easyvideor1.rewards.number_words import in_digits
from easyvideor1.rewards.reading import NoAnswer, unwrap

MAX_CHARS = 500
"""A number and its unit are shorter; what is longer is prose."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written.

    Example:
        Number(value=12.5, decimals=1, percent=True)    # "12.5 %"
    """

    value: float
    decimals: int | None
    """Digits written after the point; None for a fraction."""
    percent: bool = False
    """Whether a percent sign follows; `value` is the number before it."""

    def as_json(self) -> dict[str, Any]:
        """The fields by name."""
        return {"value": self.value, "decimals": self.decimals, "percent": self.percent}


_VULGAR = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5",
    "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
_TRANSLATE = str.maketrans(
    {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full width
    | {"\u2212": "-", "\ufe63": "-", "\u2044": "/"}
    | {glyph: f" {fraction}" for glyph, fraction in _VULGAR.items()}
)
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUPERSCRIPTS = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]{1,9}")
_SPACE_IN_NUMBER = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s?\{\s?(\d{1,30})\s?\}\s?\{\s?(\d{1,30})\s?\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm)\s?\{([^{}]{0,99})\}")
_UNIT_POWER = re.compile(
    r"(?<![A-Za-z])(m|s|g|h|in|ft|yd|mi|[a-z]m|[A-Za-z]{3,20})\s?\^\s?\{?[-+]?(\d)\}?(?![\d^])"
)
_POWER_OF_TEN = re.compile(
    r"(?<![\w.^*])(?:(?P<factor>\d[\d,]{0,40}(?:\.\d{0,40})?)\s?(?:×|x|X|\*|·|⋅|\\times|\\cdot)\s?)?"
    r"10\s?(?:\^|\*\*)\s?[{(]?\s?(?P<exponent>[-+]?\d{1,3})\s?[})]?(?![\w.^*])"
)
_EUROPEAN = re.compile(r"(?<![\w.,])(\d{1,3}(?:\.\d{3}){1,9}),(\d{1,30})(?![\w.,]*\d)")
_DOTTED = re.compile(r"(?<![\w.,])\d{1,3}(?:\.\d{3}){2,9}(?![\w.,]*\d)")
_SWISS = re.compile(r"(?<![\w.,'’])\d{1,3}(?:['’]\d{3}){1,9}(?!['’]?\d)")
_DECIMAL_COMMA = re.compile(r"(?<![\w.,])(\d{1,12}),(\d{1,2})(?=\s?[%€])")

_TOKEN = re.compile(
    r"(?<![A-Za-z_\d.])(?P<sign>\A[-–+]\s?|(?<![\w)\]])[-–+](?=[\d.]))?"
    r"(?P<digits>\d[\d,]*(?:\.\d*)?|\.\d+)(?P<exponent>[eE][-+]?\d{1,300}(?!\w))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d*)?\Z")
_SLASH = re.compile(r"\s?/\s?\Z")
_PERCENT = re.compile(r"\s*(?:%|percent\b|per\s+cent\b)", re.IGNORECASE)
_SCALES = {
    "hundred": 1e2, "dozen": 12.0, "thousand": 1e3, "million": 1e6, "billion": 1e9,
    "trillion": 1e12, "lakh": 1e5, "crore": 1e7, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9,
    "十": 10.0, "百": 1e2, "千": 1e3, "万": 1e4, "萬": 1e4, "亿": 1e8, "億": 1e8,
}  # fmt: skip
_SCALE = re.compile(
    r"\s*(?P<word>(?i:hundred|dozen|thousand|million|billion|trillion|lakh|crore))(?i:s)?\b"
    r"|(?P<glued>[kKMB])\b|\s?(?P<many>[十百千]?)(?P<han>[万萬亿億])"
)
_NEGATIVE = re.compile(r"(?:\b(?:minus|negative)\s*|-\s?(?=[$€£¥]))", re.IGNORECASE)
_NO_NUMBER = re.compile(
    # What around a number says that it is not the whole of it.
    r"[\\^*=√∛∞π<>≤≥±|²³¹⁰⁴-⁹]|(?<![A-Za-z\d])\d|\Ae[-+]?\d|\A\s?\+"
    r"|\A[ijnxyz]\b|n't|\b(?:not|no|never|than|or|at\s+least|at\s+most|few|several|half|halves"
    r"|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?)\b",
    re.IGNORECASE,
)


def parse_number(text: str) -> Number:
    """The one number that `text` states.

    Example:
        >>> parse_number("about 1,234.5 m")
        Number(value=1234.5, decimals=1, percent=False)

    Raises:
        NoAnswer: there is none, there are several, or it is part of an expression or a bound.
    """
    if len(text) > MAX_CHARS:
        raise NoAnswer("too long for a number")
    text = _plain_text(text)
    if not any(map(str.isdecimal, text)):
        text = in_digits(text)
    tokens = list(_TOKEN.finditer(text))
    if not tokens:
        raise NoAnswer("no number")
    value, decimals = _combine(text, tokens)
    before, after = text[: tokens[0].start()], text[tokens[-1].end() :]
    if match := _NEGATIVE.search(before):
        value, before = -value, before[: match.start()] + before[match.end() :]
    if match := _SCALE.match(after):
        factor = _SCALES[match["glued"] or match["han"] or match["word"].lower()]
        factor *= _SCALES[match["many"]] if match["many"] else 1
        value, after = value * factor, after[match.end() :]
        decimals = None if decimals is None else max(0, decimals - round(math.log10(factor)))
    percent = _PERCENT.match(after)
    if percent:
        after = after[percent.end() :]
    if _NO_NUMBER.search(before) or _NO_NUMBER.search(after):
        raise NoAnswer("part of an expression or a bound, not a number")
    if not math.isfinite(value):
        raise NoAnswer("number out of range")
    return Number(value, decimals, percent is not None)


def _plain_text(text: str) -> str:
    """`text` in ASCII signs, without what stands around a number in markdown and LaTeX."""
    text = unwrap(_SPACE_IN_NUMBER.sub("", text.translate(_TRANSLATE)))
    if not text.isascii():
        text = _SUPERSCRIPTS.sub(_as_power, text)
    text = _LATEX_FRACTION.sub(r" \1/\2 ", text).replace("{,}", ",").replace("\\%", "%")
    text = _LATEX_TEXT.sub(r" \1 ", text).replace("\\,", "").replace("\\ ", " ").strip()
    text = _right_side(text.rpartition("≈")[2]).strip()
    if "^" in text or "*" in text:
        text = _POWER_OF_TEN.sub(_in_e_notation, _UNIT_POWER.sub(r"\1\2", text))
    return _with_english_separators(text)


def _right_side(text: str) -> str:
    """What stands after the last equals sign: `12` of `5 + 7 = 12`.

    Raises:
        NoAnswer: another number stands before it: `5 cm = 0.05 m`.
    """
    left, sign, right = text.rpartition("=")
    if sign and _QUANTITY.fullmatch(left.strip()):
        raise NoAnswer("several numbers")
    return right


_QUANTITY = re.compile(r"[-+]?\d[\d,.]*\s?[A-Za-z%°/]{0,12}")


def _as_power(match: re.Match[str]) -> str:
    return "^" + match[0].translate(_SUPERSCRIPT)


def _in_e_notation(match: re.Match[str]) -> str:
    return f"{match['factor'] or 1}e{match['exponent']}"


def _with_english_separators(text: str) -> str:
    """`text` with the European forms that have no other reading as English ones."""
    if "," in text or text.count(".") > 1:
        text = _EUROPEAN.sub(lambda match: f"{match[1].replace('.', '')}.{match[2]}", text)
        text = _DOTTED.sub(lambda match: match[0].replace(".", ""), text)
        text = _DECIMAL_COMMA.sub(r"\1.\2", text)
    if "'" in text or "’" in text:
        text = _SWISS.sub(lambda match: re.sub("['’]", "", match[0]), text)
    return text


def _combine(text: str, tokens: list[re.Match[str]]) -> tuple[float, int | None]:
    """Value and written decimals of one number, a fraction `a/b` or a mixed number `w a/b`."""
    if len(tokens) == 1:
        return _plain(tokens[0])
    if len(tokens) > 3:
        raise NoAnswer("several numbers")
    above, below = tokens[-2:]
    is_fraction = (
        _SLASH.match(text[above.end() : below.start()])
        and below["digits"].isdigit()
        and not below["digits"].startswith("0")  # 2023/05 is a date
        and not (below["sign"] or below["exponent"])
    )
    if not is_fraction:
        raise NoAnswer("several numbers")
    fraction = _plain(above)[0] / float(below["digits"])
    if len(tokens) == 2:
        return fraction, None
    whole = tokens[0]
    is_mixed = whole["digits"].isdigit() and above["digits"].isdigit() and not above["sign"]
    if not is_mixed or text[whole.end() : above.start()].strip():
        raise NoAnswer("several numbers")
    size = float(whole["digits"]) + fraction
    return (-size if _is_minus(whole) else size), None


def _plain(token: re.Match[str]) -> tuple[float, int]:
    digits, exponent = token["digits"].rstrip(","), token["exponent"] or ""
    if "," in digits and not _GROUPED.match(digits):
        raise NoAnswer(f"{digits[:40]!r} is not one number")
    digits = digits.replace(",", "")
    written = len(digits.partition(".")[2]) - int(exponent[1:] or 0)
    value = float(digits + exponent)
    return (-value if _is_minus(token) else value), max(0, written)


def _is_minus(token: re.Match[str]) -> bool:
    return (token["sign"] or "").strip() in ("-", "–")
