"""The items of a list that an answer states: in JSON, or in prose.

Shared by boxes and intervals, which say how an item is written. What is listed is the answer;
alternatives ("… or …") and items here and there in the text are none.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from easyvideor1.rewards.json_in_text import find_json, without_json
from easyvideor1.rewards.reading import AnswerText, NoAnswer, stated

T = TypeVar("T")

MAX_GAP_CHARS = 40
"""Between two items of a list."""

_BETWEEN = re.compile(r"[\s,;，；、&+`)(\[\]]*(?:and\b|和|以及)?\s*", re.IGNORECASE)


def read_listed(
    answer: AnswerText,
    in_json: Callable[[Any], list[T] | None],
    in_prose: Callable[[str], list[T] | None],
) -> list[T]:
    """The items of an answer: those in JSON, else those in prose.

    Args:
        answer: the text. Of one without a tag, JSON counts where there is but one answer in it;
            otherwise what it states last.
        in_json: the items of a JSON value; None if it is something else.
        in_prose: the items of a text without JSON; None if it has none.

    Raises:
        NoAnswer: there is none, or there are alternatives.
    """

    def in_text(text: str) -> list[T] | None:
        values = list(find_json(text))
        found = [
            (items, value.start, value.end) for value in values if (items := in_json(value.value))
        ]
        return all_listed(text, found) if found else in_prose(without_json(text, values))

    if answer.tagged:
        return in_text(answer.text) or stated(answer, in_text, in_text)
    values = list(find_json(answer.searched))
    answers = [items for value in values if (items := in_json(value.value))]
    if answers and all(items == answers[0] for items in answers):
        return answers[0]
    if not answers:
        answer = replace(answer, text=without_json(answer.searched, values))
    return stated(answer, in_text, in_text)


def all_listed(text: str, found: Sequence[tuple[list[T], int, int]]) -> list[T]:
    """All items of parts of `text` that follow each other as a list does, or that are the same.

    Args:
        text: the text.
        found: items with start and end of the part that states them.

    Raises:
        NoAnswer: something else stands between two parts.
    """
    first = found[0][0]
    if all(items == first for items, _, _ in found):
        return first
    for (_, _, end), (_, start, _) in itertools.pairwise(found):
        if start - end > MAX_GAP_CHARS or not _BETWEEN.fullmatch(text, end, start):
            raise NoAnswer("several answers")
    return [item for items, _, _ in found for item in items]
