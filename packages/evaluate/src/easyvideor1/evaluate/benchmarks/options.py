"""Options in the forms that releases have them: a list, a mapping, fields, or lettered lines."""

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmark_config import LayoutConfig
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.formats import without_letters

LETTERS = string.ascii_uppercase
LETTERED_LINE = re.compile(
    r"^[ \t]*\(?(?P<letter>[A-Z])[.):][ \t]*(?P<text>.*\S)[ \t]*$", re.MULTILINE
)


def split(
    question: str, row: Mapping[str, Any], path: Path, number: int, layout: LayoutConfig
) -> tuple[str, tuple[str, ...]]:
    """The question and its options, without letters; none where it has none.

    Raises:
        DataError: for options of another form.
    """
    if not layout.options:
        return lettered_lines(question)
    if len(layout.options) > 1:
        fields = [row.get(field) for field in layout.options]
        return question, tuple(
            str(text) for text in fields if text not in (None, "", layout.no_option)
        )
    (field,) = layout.options
    value = row.get(field)
    if not value:
        return question, ()
    if isinstance(value, str):
        head, options = lettered_lines(value)
        if head or len(options) < 2:
            raise DataError(path, number, field, value, "lines lettered from A on")
        return question, options
    if isinstance(value, Mapping):
        # Letters that a question does not use have no text; a question may use none.
        used = [letter for letter, text in value.items() if text not in (None, "")]
        if used != list(LETTERS[: len(used)]):
            raise DataError(path, number, field, value, "letters from A on, in order")
        value = [value[letter] for letter in used]
    texts = list(value)
    if len(texts) > len(LETTERS):
        raise DataError(path, number, field, value, f"at most {len(LETTERS)} options")
    return question, without_letters([str(text) for text in texts])


def lettered_lines(text: str) -> tuple[str, tuple[str, ...]]:
    r"""What stands before the lines lettered A, B, …, and the texts of these.

    Example:
        >>> lettered_lines("Which colour?\nA. red\nB. blue")
        ('Which colour?', ('red', 'blue'))
    """
    lines = list(LETTERED_LINE.finditer(text))
    for start in range(len(lines) - 1, -1, -1):
        run = lines[start:]
        if [line["letter"] for line in run] == list(LETTERS[: len(run)]):
            return text[: run[0].start()].strip(), tuple(line["text"] for line in run)
    return text.strip(), ()


def letter_of(value: object, options: Sequence[str]) -> str | None:
    """The letter of a gold answer given as letter, place from 0, or text; None if it is none.

    Where several options have the text, the last one is it, as in the loaders of MVBench and MLVU.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return LETTERS[value] if 0 <= value < len(options) else None
    text = str(value).strip()
    match = re.fullmatch(r"\(?([A-Z])\)?[.:]?", text)
    if match and match[1] in LETTERS[: len(options)] and text not in options:
        return match[1]
    places = [place for place, option in enumerate(options) if option.strip() == text]
    return LETTERS[places[-1]] if places else _lettered(text, options)


def _lettered(text: str, options: Sequence[str]) -> str | None:
    """The letter of an answer like `B. blue`."""
    match = LETTERED_LINE.fullmatch(text)
    if match is None or match["letter"] not in LETTERS[: len(options)]:
        return None
    place = LETTERS.index(match["letter"])
    return match["letter"] if options[place].strip() == match["text"].strip() else None
