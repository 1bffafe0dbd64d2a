"""Numbers written in words, as digits: English phrases, six more languages, Chinese numerals.

English words are text2num's within any short phrase, with "a dozen", "half a million", "two and a
half" and "two thirds" besides. In French, German, Spanish, Italian, Portuguese and Dutch the whole
text has to be the number. Left alone, since they have more than one reading: "a third", "three
quarters", "hundreds of", 三万五.
"""

import re
import unicodedata
from functools import lru_cache

from text_to_num import alpha2digit, text2num

MAX_WORDS = 8
"""Number words are read in texts of at most this many words: in prose, "one" is rarely a number."""
MAX_CHARS = 120


def in_digits(text: str) -> str:
    """`text` with the number that it states in words as digits; as it is where it has none.

    Example:
        >>> in_digits("about twenty-five cars")
        'about 25 cars'
    """
    if len(text) > MAX_CHARS or len(text.split()) > MAX_WORDS:
        return text
    return _in_digits(text)


@lru_cache(maxsize=4096)
def _in_digits(text: str) -> str:
    plain = " ".join(text.casefold().split())
    for read in (_english, _chinese, _other_language):
        digits = read(plain)
        if any(map(str.isdecimal, digits)):
            return digits
    return text


# English

_SCALE = "hundred|dozen|thousand|million|billion|trillion|lakh|crore"
_VAGUE = re.compile(rf"\b(?:{_SCALE}|ten)s\b|\b(?:{_SCALE})ths?\b|\b(?:few|couple|several)\b")
_HALF_A = re.compile(rf"\bhalf\s+(?:an?\s+)?(?={_SCALE})")
_A_SCALE = re.compile(rf"\ban?\s+(?={_SCALE})")
_AND_A_HALF = re.compile(r"(?P<whole>.+?)\s+and\s+a\s+half\b(?P<rest>.*)")
_SMALL = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_PARTS = {
    "half": 2, "halve": 2, "third": 3, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10,
}  # fmt: skip
_FRACTION = re.compile(
    rf"(?:(?P<whole>.+) and )?(?P<above>a|{'|'.join(_SMALL)})[ -](?P<below>{'|'.join(_PARTS)})s?"
)


def _english(text: str) -> str:
    if not text.isascii() or _VAGUE.search(text):
        return text
    if text == "half":
        return "1/2"
    if match := _FRACTION.fullmatch(text):
        return _fraction(match) or text
    if match := _AND_A_HALF.fullmatch(text):
        whole = _words(match["whole"])
        return f"{whole}.5{match['rest']}" if _is_whole_at_end(whole) else text
    if _HALF_A.search(text):
        return _HALF_A.sub("0.5 ", text)
    return _words(_A_SCALE.sub("one ", text))


def _words(text: str) -> str:
    return alpha2digit(text, "en", threshold=0.0)


def _is_whole_at_end(text: str) -> bool:
    return re.search(r"(?<![\d.,/])\d+\Z", text) is not None


def _fraction(match: re.Match[str]) -> str | None:
    """`two thirds` as 2/3 and `one and two thirds` as 1 2/3; None for `a third`, "one more"."""
    below = _PARTS[match["below"]]
    if match["above"] == "a" and below != 2:
        return None
    above = _SMALL.index(match["above"]) + 1 if match["above"] != "a" else 1
    if match["whole"] is None:
        return f"{above}/{below}"
    whole = _words(match["whole"])
    return f"{whole} {above}/{below}" if _is_whole_at_end(whole) else None


# Chinese

_DIGIT = "[一二两兩三四五六七八九]"
_SIGNS = "零〇一二两兩三四五六七八九十百千万萬亿億"
_NUMBER_AND_UNIT = re.compile(
    rf"(?P<lead>(?:大约|大概|约|一共|总共|共有?|有){{0,2}})(?P<number>[{_SIGNS}]+)"
    rf"(?P<unit>[^\W\d{_SIGNS}]{{0,4}})"
)
_SECTION = re.compile(
    rf"零?(?:({_DIGIT})千)?(?:零?({_DIGIT})百)?(?:零?({_DIGIT})?(十))?(零?)({_DIGIT})?"
)
_VALUES = {"两": 2, "兩": 2, "〇": 0}


def _chinese(text: str) -> str:
    """A Chinese numeral, with at most a few signs around it, as digits."""
    match = _NUMBER_AND_UNIT.fullmatch(text)
    value = _chinese_value(match["number"]) if match else None
    return text if match is None or value is None else f"{match['lead']}{value}{match['unit']}"


def _chinese_value(numeral: str) -> int | None:
    """Value of 二十五, 一百零五, 三千万 or 二〇二四; None for what is none, or colloquial."""
    numeral = numeral.replace("萬", "万").replace("億", "亿")
    if not re.search("[十百千万亿]", numeral):
        is_spelled = len(numeral) > 3 or "零" in numeral or "〇" in numeral
        digits = "".join(str(_digit(sign)) for sign in numeral)
        return int(digits) if is_spelled or len(numeral) == 1 else None
    total = 0
    for unit, factor in (("亿", 100_000_000), ("万", 10_000)):
        if unit in numeral:
            head, _, numeral = numeral.partition(unit)
            if not (count := _section(head)):
                return None
            total += count * factor
    if not numeral:
        return total
    rest = _section(numeral)
    is_colloquial = bool(total) and len(numeral) == 1  # 三万五 is 35000
    return None if rest is None or is_colloquial else total + rest


def _section(text: str) -> int | None:
    """Value of a numeral below ten thousand; None for what is none, or colloquial."""
    match = _SECTION.fullmatch(text)
    if match is None or not text:
        return None
    thousands, hundreds, tens, ten, zero, ones = match.groups()
    if ones and (thousands or hundreds) and not (ten or zero):
        return None  # 三百五 is 350
    value = 1000 * _digit(thousands) + 100 * _digit(hundreds) + _digit(ones)
    return value + (10 * (_digit(tens) or 1) if ten else 0)


def _digit(sign: str | None) -> int:
    return 0 if not sign else _VALUES.get(sign, int(unicodedata.numeric(sign, 0)))


# Other languages

_LANGUAGES = ("fr", "de", "es", "it", "pt", "nl")
_ALSO_ENGLISH = frozenset(
    {"once", "cent", "null", "quince", "seize", "venti", "uno", "elf", "due", "sei", "mil", "dos",
     "um", "om", "den"}
)  # fmt: skip
"""Numbers of those languages that are other words of English."""


def _other_language(text: str) -> str:
    """The number that the whole text is in all those of the languages in which it is one."""
    if text in _ALSO_ENGLISH:
        return text
    values = {value for language in _LANGUAGES if (value := _value(text, language)) is not None}
    return str(values.pop()) if len(values) == 1 else text


def _value(text: str, language: str) -> int | float | None:
    try:
        return text2num(text, language)
    except ValueError:  # no number, or a lone surrogate
        return None
