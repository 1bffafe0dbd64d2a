"""One letter out of 2 to 26 options: accuracy 1 if it is the gold one, else 0.

The options decide what an answer may be: letters beyond the last option are none, and the text of
an option stands for its letter. The article in "A dog" and the pronoun in "I think" are no letters.
"""

import re
import string
import unicodedata
from functools import lru_cache

from easyvideor1.rewards.reading import AnswerText, NoAnswer, stated, unwrap
from easyvideor1.rewards.registry import Task, register_task
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

LETTERS = string.ascii_uppercase
MAX_ANSWER_CHARS = 2_000
"""No option is longer; what is longer is prose, where only stated answers count."""

_LABELLED = re.compile(
    r"(?:(?:option|choice|answer|选项)\s*)?[(\[*_]*([A-Za-z])[)\]*_]*"
    r"(?P<separator>[.:：、．)\]]+(?=\s|\*|[^\x00-\x7f]|\Z)|\s+[-–—]+\s|\s|\Z)[\s*_]*(?P<rest>.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_LETTER_AT_START = re.compile(
    r"(?:(?:the\s+)?(?:(?i:option|choice|letter)|选项)\s*)?[\s(\[*_`\"'$]*([A-Z])(?![A-Za-z0-9'’])[)\]*_`\"'$]*"
)
_ANOTHER_LETTER = re.compile(
    r"\s*(?:,|，|、|/|&|\+|(?:,\s*)?(?:and|or)\b|和|或)\s*(?:(?:option|choice)\s+)?[(\[*_]*([A-Z])(?![A-Za-z0-9'’])"
)
_AFTER_WORD = re.compile(r"\s+(?!(?:because|since|as|due|which|for)\b)\w")
_LABEL_INSIDE = re.compile(r"(?<![A-Za-z0-9])[(\[]?([A-Z])[.):](?=\s|\Z)")
_VERDICT = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:option|choice|answer)\s+)?[(\[*_]*([A-Z])[)\]*_]*\s*"
    r"(?:is|是)\s*(?:the\s+|most\s+|indeed\s+)*(?:correct|right|best|正确|对)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"(?:\b(?:choose|select|pick|go\s+with)\b|选择?)\s*(?:(?:option|choice|answer|选项)\s*)?[(\[*_]*([A-Z])(?![A-Za-z0-9'’])"
)


@register_task(ProblemType.multiple_choice)
class MultipleChoice(Task[str]):
    def instruction(self, sample: Sample) -> str:
        return "Reason briefly, then give only the letter of the right option in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample) -> str:
        options = sample.options
        index = _parse(answer.text, options)
        if index is None:
            index = stated(
                answer,
                lambda text: _parse(text, options),
                lambda text: _parse_start(text, options),
            )
        return LETTERS[index]

    def score(self, value: str, sample: Sample) -> float:
        return float(value == _gold(sample))

    def render_gold(self, sample: Sample) -> str:
        return _gold(sample)


def _parse(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the option that a text names if it does nothing else."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    text = unwrap(unicodedata.normalize("NFKC", text))
    if len(text) == 1 and text.isascii() and text.isalpha():
        return _index(text, options)
    by_text = _by_text(options)
    if (index := by_text.get(_plain(text))) is not None:
        return index
    match = _LABELLED.match(text)
    if match is None:
        return None
    index = _index(match.group(1), options)
    if index is None:
        return None
    rest = unwrap(match.group("rest"))
    named = by_text.get(_plain(rest))
    if named is not None or not rest:
        return index if named in (index, None) else None
    labelled = bool(match.group("separator").strip()) and match.group(1).isupper()
    return index if labelled and not _names_another(rest, index, options) else None


def _parse_start(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the option named at the start of a statement that goes on."""
    text = unicodedata.normalize("NFKC", text[:MAX_ANSWER_CHARS])
    index = _option_text_at_start(text, options)
    if index is not None:
        return index
    match = _LETTER_AT_START.match(text)
    if match is None:
        return None
    letter, end = match.group(1), match.end()
    another = _ANOTHER_LETTER.match(text, end)
    if another and _index(another.group(1), options) is not None:
        return None
    if letter in "AI" and _AFTER_WORD.match(text, end):
        return None  # an article or a pronoun
    return _index(letter, options)


def _index(letter: str, options: tuple[str, ...]) -> int | None:
    """Place of a letter among the options; without options every letter is one."""
    index = LETTERS.index(letter.upper())
    return index if not options or index < len(options) else None


def _names_another(text: str, index: int, options: tuple[str, ...]) -> bool:
    others = (_index(match.group(1), options) for match in _LABEL_INSIDE.finditer(text))
    if len(text) == 1 and text.isalpha() and text.isascii():
        return True
    return any(other is not None and other != index for other in others)


def _option_text_at_start(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the longest option whose text opens `text`, at the end of a word."""
    plain = _plain(text)
    best, length = None, 0
    for option, index in _by_text(options).items():
        if index is not None and len(option) > max(length, 1) and plain.startswith(option):
            boundary = plain[len(option) : len(option) + 1]
            if not boundary.isalnum() or not option.isascii():
                best, length = index, len(option)
    return best


_ARTICLE = re.compile(r"(?:a|an|the)\s+")
_EDGES = " \t\n.。,，;；:：!！?？*_`\"'“”"


def _plain(text: str) -> str:
    """`text` in lower case, single-spaced, without an opening article and outer punctuation."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(_EDGES)
    return _ARTICLE.sub("", text, count=1) if _ARTICLE.match(text) else text


@lru_cache(maxsize=4096)
def _by_text(options: tuple[str, ...]) -> dict[str, int | None]:
    """Plain text of each option to its index; None where two options share it."""
    table: dict[str, int | None] = {}
    for index, option in enumerate(options):
        plain = _plain(option)
        table[plain] = None if plain in table else index
    table.pop("", None)
    return table


def _gold(sample: Sample) -> str:
    index = _gold_index(str(sample.answer), sample.options)
    if len(sample.options) > len(LETTERS):
        raise UserError(
            f"sample {sample.id}: {len(sample.options)} options, at most 26 have letters"
        )
    if index is None:
        asked = f"A to {LETTERS[len(sample.options) - 1]}" if sample.options else "one letter"
        raise UserError(
            f"sample {sample.id}: answer {sample.answer!r} names no option; "
            f"expected {asked}, or the text of one option"
        )
    return LETTERS[index]


@lru_cache(maxsize=4096)
def _gold_index(answer: str, options: tuple[str, ...]) -> int | None:
    return _parse(answer, options)
