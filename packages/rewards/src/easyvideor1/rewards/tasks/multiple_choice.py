"""One letter out of 2 to 26 options: accuracy 1 if it is the gold one, else 0.

The options decide what an answer may be: a letter beyond the last option is none, and the text of
an option stands for its letter. The article of "A dog" and the pronoun of "I think" are no letters;
two letters, or a letter beside the text of another option, are no answer.
"""

import re
import string
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, out_of_json, stated, unwrap
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

LETTERS = string.ascii_uppercase
MAX_ANSWER_CHARS = 2_000
"""No option is longer; what is longer is prose, where only statements count."""


@register_task(ProblemType.multiple_choice)
class MultipleChoice(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give only the letter of the right option in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        answer, options = out_of_json(answer), sample.options
        index = _parse(answer.text, options)
        if index is None:
            parse_line = _line_parser(answer.tail)
            index = stated(
                answer,
                lambda text: parse_line(text, options),
                lambda text: _parse_start(text, options),
                (_VERDICT, _CHOSEN),
            )
        return LETTERS[index]

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return _parse(answer.text, sample.options) is not None

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        return float(value == _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)


_WORD = r"(?i:option|choice|answer|letter|选项)"
_LABELLED = re.compile(
    rf"(?:(?i:the\s+)?{_WORD}\s*)?[(\[*_]*([A-Za-z])(?P<separator>[\s.:、,;)\]*_–—-]*)(?P<rest>.*)\Z",
    re.DOTALL,
)
_LABEL_END = re.compile(r"[.:)\]、\n]|\s[-–—]\s")
_REASON = re.compile(r"(?:because|since|as)\b")
_LONE_LETTER = re.compile(r"(?<![A-Za-z0-9'’])([A-Z])(?![A-Za-z0-9'’])(?!\s+[a-z])")


def _parse(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the option that a text names if it does nothing else."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    text = unwrap(unicodedata.normalize("NFKC", text))
    if _is_letter(text):
        return _index(text, options)
    named = _by_text(options).get(_plain(text))
    if named is not None:
        return named
    match = _LABELLED.match(text)
    index = _index(match[1], options) if match else None
    if match is None or index is None:
        return None
    rest, separator = unwrap(match["rest"]), match["separator"]
    if not rest or (separator and options and _plain(rest) == _plain(options[index])):
        return index
    return index if _is_label(match[1], separator, rest, index, options) else None


def _is_label(letter: str, separator: str, rest: str, index: int, options: tuple[str, ...]) -> bool:
    """Whether `rest` only explains the letter: "B. it is blue", not "B. Red", "A dog", "e.g. …"."""
    if not (separator and letter.isupper()) or _names_another(rest, index, options):
        return False
    others = (_index(match[1], options) for match in _LONE_LETTER.finditer(rest))
    if any(other not in (None, index) for other in others):
        return False
    if _REASON.match(rest):
        return True
    is_apart = separator[-1].isspace() or not rest[0].isascii()
    return is_apart and _LABEL_END.search(separator) is not None


def _parse_letter(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the option whose letter is all there is."""
    letter = unwrap(unicodedata.normalize("NFKC", text[:40]))
    return _index(letter, options) if _is_letter(letter) and len(text) <= 40 else None


def _names_another(rest: str, index: int, options: tuple[str, ...]) -> bool:
    """Whether the text after a letter begins with another letter or the text of another option."""
    if _is_letter(rest):
        return True
    if options and _plain(options[index]).startswith(_plain(rest)):
        return False  # its own text, cut short
    return _option_at_start(_plain(rest), options)[0] not in (None, index)


_NOT_IN_WORD = r"(?![A-Za-z0-9'’])"
_LETTER_AT_START = re.compile(
    rf"[\s(\[*_`\"'$]*(?:(?i:the\s+)?{_WORD}\s*)?[(\[*_`\"'$]*([A-Z]){_NOT_IN_WORD}[)\]*_`\"'$.:]*"
)
_ANOTHER = re.compile(
    rf"\s*(?:(?:,\s*)?(?:or\b|或|/)|(?:,|，|、|&|\+|(?:,\s*)?and\b|和)\s*(?:{_WORD}\s*)?[(\[*_]*"
    rf"([A-Z]){_NOT_IN_WORD})"
)
_JOINT = re.compile(r"\s*(?:[,，、/&]|(?:,\s*)?(?:and|or)\b|和|或)\s*")
_GOES_ON = re.compile(r"\s+(?!(?:because|since|as|due|which)\b)\w")


def _parse_start(text: str, options: tuple[str, ...]) -> int | None:
    """Index of the option named at the start of a statement that goes on."""
    text = unicodedata.normalize("NFKC", text[:MAX_ANSWER_CHARS])
    index, rest = _option_at_start(_plain(text), options)
    if index is not None:
        joint = _JOINT.match(rest)
        another = _option_at_start(_plain(rest[joint.end() :]), options)[0] if joint else None
        return index if another in (None, index) else None
    match = _LETTER_AT_START.match(text)
    if match is None:
        return None
    letter, rest = match[1], text[match.end() :]
    another = _ANOTHER.match(rest)
    if another and (another[1] is None or _index(another[1], options) is not None):
        return None
    if letter in "AI" and match[0][-1] == letter and _GOES_ON.match(rest):
        return None  # an article or a pronoun
    index = _index(letter, options)
    return None if index is None or _names_another(rest.strip(), index, options) else index


_VERDICT = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_WORD}\s+)?[(\[*_]*([A-Z])[)\]*_]*\s*"
    r"(?:is|是)\s*(?:the\s+|most\s+|indeed\s+)?(?i:correct|right|best|正确|对)"
)
_CHOSEN = re.compile(
    r"(?:\b(?i:choose|select|pick|go\s+with|it\s+is|it's|it\s+must\s+be)\b|选择?)\s*"
    rf"((?:{_WORD}\s*)?[(\[*_]*[A-Z]{_NOT_IN_WORD}[^\n]{{0,200}})"
)
_LETTER_LINE = re.compile(r"^[^\w\n]{0,6}([A-Z])[^\w\n]{0,6}$", re.MULTILINE)
_LABELLED_LINE = re.compile(r"^[^\w\n]{0,6}([A-Z])[.):]", re.MULTILINE)


def _line_parser(text: str) -> Callable[[str, tuple[str, ...]], int | None]:
    """How to read the last line: in a list of options it is just the last option."""
    if len({match[1] for match in _LETTER_LINE.finditer(text)}) > 1:
        return _parse_nothing
    labels = {match[1] for match in _LABELLED_LINE.finditer(text)}
    return _parse_letter if len(labels) > 1 else _parse


def _parse_nothing(text: str, options: tuple[str, ...]) -> int | None:
    return None


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text.isalpha()


def _index(letter: str, options: tuple[str, ...]) -> int | None:
    """Place of a letter among the options; without options every letter is one."""
    index = LETTERS.index(letter.upper())
    return index if not options or index < len(options) else None


_BOUNDARY = re.compile(r"(?!\w|[.,:/-]\d)")


def _option_at_start(plain: str, options: tuple[str, ...]) -> tuple[int | None, str]:
    """Index of the longest option whose text opens a plain text, and what follows it."""
    best, length = None, 1
    for option, index in _by_text(options).items():
        if index is None or len(option) <= length or not plain.startswith(option):
            continue
        if _BOUNDARY.match(plain, len(option)) or not option[-1].isascii():
            best, length = index, len(option)
    return best, plain[length:]


_ARTICLE = re.compile(r"(?:a|an|the)\s+(?=\w)")
_EDGES = " \t\n.。,，;；:：!！?？*_`\"'“”()[]"


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
    if len(sample.options) > len(LETTERS):
        raise GoldError(sample, f"at most 26 options, not {len(sample.options)}")
    is_json = isinstance(sample.answer, list | dict)
    index = None if is_json else _gold_index(str(sample.answer), sample.options)
    if index is None:
        last = LETTERS[len(sample.options) - 1]
        asked = f"a letter from A to {last} or the text of one option"
        raise GoldError(sample, asked if sample.options else "a letter")
    return LETTERS[index]


@lru_cache(maxsize=4096)
def _gold_index(answer: str, options: tuple[str, ...]) -> int | None:
    if answer in options and options.count(answer) == 1 and not _is_letter(answer):
        return options.index(answer)
    return _parse(answer, options)
