"""The rules of MMMU, by which Video-MMMU reads answers: a marked letter, or numbers and words.

Source: EvolvingLMMs-Lab/VideoMMMU, lmms_eval/tasks/videommmu/utils.py (after MMMU-Benchmark/MMMU).
"""

import re

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.evaluate.official.reading import Reading, compared
from easyvideor1.schema.records import Sample

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def mmmu(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """A letter where there are options, else any number or text among those the answer may be."""
    if text == "":
        return Reading()
    if sample.options:
        return compared(choice(text, sample.options) or "", sample)
    said = open_answers(text)
    golds = normalized(str(sample.answer))
    right = any(
        any(isinstance(gold, str) and gold in one for gold in golds)
        if isinstance(one, str)
        else one in golds
        for one in said
    )
    return Reading(extracted=sorted(map(str, said)), accuracy=float(right))


def choice(text: str, options: tuple[str, ...]) -> str | None:
    """The letter in the text: the last of those marked the same way.

    Marks are tried in turn: `A.` or `A:`, `(A)`, `A ` and, in a text of more than five words, the
    text of an option. Where both a dot and a colon mark letters, the dots decide.
    """
    for sign in ",.!?;:'":
        text = text.strip(sign)
    text = f" {text} "
    letters = LETTERS[: len(options)]
    dots = [letter for letter in letters if f"{letter}." in text]
    colons = [letter for letter in letters if f"{letter}:" in text]
    for found, mark in (
        ([*dots, *colons], "{}." if dots else "{}:"),
        ([letter for letter in letters if f"({letter})" in text], "({})"),
        ([letter for letter in letters if f"{letter} " in text], " {} "),
    ):
        if found:
            return _last({letter: text.rfind(mark.format(letter)) for letter in found})
    if len(text.split()) <= 5:
        return None
    lower = text.lower()
    named = {
        letter: lower.rfind(option.lower())
        for letter, option in zip(letters, options, strict=True)
        if option.lower() in lower
    }
    return _last(named) if named else None


def _last(places: dict[str, int]) -> str:
    """The letter that stands last; of several with one place the first."""
    return max(places, key=lambda letter: places[letter])


Value = str | float

_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"-?\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"-?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)
_BEFORE_ANSWERS = (
    "could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ", "are ",
    "in total ", "total ", "identify ", "recognize ", "calculated as ", "counted as ",
    "measured as ", "observed as ", "concluded as ", "found to be ", "equals ", "determined to be ",
    "number of ", "value is ", "adds up to ", "have ", "has ",
)  # fmt: skip
_BREAKS = re.compile(r"\.\s(?=[A-Z])|\n")


def open_answers(text: str) -> set[Value]:
    """All that a free text may give as its answer: the ends of its sentences, and their numbers."""
    ends = _ends_of_sentences(text.strip().strip(".").lower())
    numbers = [number for end in ends for pattern in _NUMBERS for number in pattern.findall(end)]
    return {value for part in [*ends, *numbers] for value in normalized(part)}


def _ends_of_sentences(text: str) -> list[str]:
    """What follows the last "is", "so" and the like of each sentence; else all of the text."""
    parts = _BREAKS.split(text)
    ends = []
    for place, part in enumerate(parts):
        marks = (*_BEFORE_ANSWERS, "=") if place == len(parts) - 1 else _BEFORE_ANSWERS
        tails = [part.split(mark)[-1].strip() for mark in marks if mark in part]
        # The first of the shortest; an empty one gives way to the next.
        shortest = ""
        for tail in tails:
            if not shortest or len(tail) < len(shortest):
                shortest = tail
        if shortest and shortest not in (":", ",", ".", "!", "?", ";", "'"):
            ends.append(shortest)
    return ends or [text]


def normalized(text: str) -> list[Value]:
    """A number to two places, else lower case; a single character needs a space beside it."""
    text = text.strip()
    try:
        return [round(float(text.replace(",", "")), 2)]
    except ValueError:
        lower = text.lower()
    return [f" {lower}", f"{lower} "] if len(lower) == 1 else [lower]
