"""One number out of a short text: separators, percent, fractions, words, scale words, units.

Tolerant about form, strict about meaning: a text with two numbers, an expression, a date or a bound
("at least 5") states no single number and raises `NoAnswer`. Number words are text2num's.
"""

import math
import re
from dataclasses import dataclass

from text_to_num import alpha2digit

from easyvideor1.rewards.reading import NoAnswer, unwrap

MAX_CHARS = 500
"""A number and its unit are shorter; what is longer is prose."""
MAX_WORDS = 8
"""Number words are read in texts of at most this many words: in prose, "one" is rarely a number."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written."""

    value: float
    decimals: int | None
    """Digits after the point that were written; None for a fraction."""
    percent: bool = False


_TRANSLATE = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full width
        **dict.fromkeys("\u2212\ufe63", "-"),
        "\u2044": "/",
        **{glyph: f" {fraction}" for glyph, fraction in {
            "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5",
            "⅗": "3/5", "⅘": "4/5", "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8",
            "⅞": "7/8"}.items()},
    }
)  # fmt: skip
_SPACE_IN_NUMBER = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})")
_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(\d{1,30})\s*\}\s*\{\s*(\d{1,30})\s*\}")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_TOKEN = re.compile(
    r"(?<![A-Za-z_\d.])(?P<sign>(?<![\w)\]])[-–+])?\s?(?P<digits>\d[\d,]*(?:\.\d*)?|\.\d+)"
    r"(?P<exponent>[eE][-+]?\d{1,4}(?!\w))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d*)?\Z")
_SLASH = re.compile(r"\s*/\s*\Z")
_PERCENT = re.compile(r"\s*(?:%|percent\b|per\s+cent\b)", re.IGNORECASE)
_SCALE = re.compile(
    r"\s*(?P<word>hundred|dozen|thousand|million|billion|trillion)s?\b|(?P<glued>[kKMB])\b|\s*(?P<han>[万萬亿億])",
    re.IGNORECASE,
)
_FACTORS = {
    "hundred": 1e2, "dozen": 12.0, "thousand": 1e3, "million": 1e6, "billion": 1e9,
    "trillion": 1e12, "k": 1e3, "M": 1e6, "B": 1e9, "万": 1e4, "萬": 1e4, "亿": 1e8, "億": 1e8,
}  # fmt: skip
_NEGATIVE = re.compile(r"\b(?:minus|negative)\s*\Z", re.IGNORECASE)
_NO_UNIT = re.compile(
    r"[\\^*=√∛∞π<>≤≥±|²³¹⁰⁴-⁹]|\b(?:not|no|never|than|or|at least|at most|half|halves|thirds?|quarters?"
    r"|fourths?|fifths?)\b|n't|\A[ijnxyz]\b",
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
    text = unwrap(_SPACE_IN_NUMBER.sub("", text.translate(_TRANSLATE)))
    text = _LATEX_FRACTION.sub(r" \1/\2 ", text).replace("{,}", ",").replace("\\%", "%")
    text = _LATEX_TEXT.sub(r" \1 ", text).replace("\\,", "")
    text = text.rpartition("=")[2].rpartition("≈")[2]
    if not any(character.isdigit() for character in text) and len(text.split()) <= MAX_WORDS:
        text = alpha2digit(text.lower(), "en", threshold=0.0)
    tokens = list(_TOKEN.finditer(text))
    if not tokens:
        raise NoAnswer("no number")
    start, end = tokens[0].start(), tokens[-1].end()
    value, decimals = _combine(text, tokens)
    before, after = text[:start], text[end:]
    if match := _NEGATIVE.search(before):
        value, before = -value, before[: match.start()]
    if match := _SCALE.match(after):
        factor = _factor(match)
        value, after = value * factor, after[match.end() :]
        decimals = None if decimals is None else max(0, decimals - round(math.log10(factor)))
    percent = _PERCENT.match(after)
    if percent:
        after = after[percent.end() :]
    if _NO_UNIT.search(before) or _NO_UNIT.search(after):
        raise NoAnswer("part of an expression or a bound, not a number")
    if not math.isfinite(value):
        raise NoAnswer("number out of range")
    return Number(value, decimals, bool(percent))


def _combine(text: str, tokens: list[re.Match[str]]) -> tuple[float, int | None]:
    """Value and written decimals of one number, a fraction `a/b` or a mixed number `w a/b`."""
    gaps = [text[a.end() : b.start()] for a, b in zip(tokens, tokens[1:], strict=False)]
    if len(tokens) == 1:
        return _plain(tokens[0])
    if len(tokens) <= 3 and _SLASH.match(gaps[-1]) and not "".join(gaps[:-1]).strip():
        above, below = tokens[-2], tokens[-1]
        denominator = below["digits"]
        if denominator.isdigit() and not denominator.startswith("0") and not below["sign"]:
            fraction = _plain(above)[0] / float(denominator)
            if len(tokens) == 2:
                return fraction, None
            if tokens[0]["digits"].isdigit() and above["digits"].isdigit() and not above["sign"]:
                whole = float(tokens[0]["digits"]) + fraction
                return (-whole if tokens[0]["sign"] in ("-", "–") else whole), None
    raise NoAnswer("several numbers")


def _plain(token: re.Match[str]) -> tuple[float, int]:
    digits = token["digits"].rstrip(",")
    if "," in digits and not _GROUPED.match(digits):
        raise NoAnswer(f"{digits[:40]!r} is not one number")
    digits = digits.replace(",", "")
    exponent = token["exponent"] or ""
    value = float(digits + exponent)
    written = len(digits.partition(".")[2]) - int(exponent[1:] or 0)
    return (-value if token["sign"] in ("-", "–") else value), max(0, written)


def _factor(match: re.Match[str]) -> float:
    if match["word"]:
        return _FACTORS[match["word"].lower()]
    if match["han"]:
        return _FACTORS[match["han"]]
    return _FACTORS[match["glued"] if match["glued"] in _FACTORS else match["glued"].lower()]
