"""Where in a model's text the answer stands: after thinking, in the last answer tag, or as stated.

Shared by all tasks; what the answer means is theirs. Every pattern runs in time linear in the text.
Nothing here guesses: a text that does not state its answer raises `NoAnswer`.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_ANSWER_OPEN = re.compile(r"<\s*answer\s*>", re.IGNORECASE)
_ANSWER_CLOSE = re.compile(r"<\s*/\s*answer\s*>", re.IGNORECASE)


class NoAnswer(Exception):
    """The text states no answer of the kind asked for; the message says why."""


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The part of a model's text that holds its answer."""

    text: str
    """Content of the last answer tag; without a tag, all text after thinking. Stripped."""
    tagged: bool
    single: bool = False
    """Exactly one opening and one closing answer tag."""


def read_answer(text: str) -> AnswerText:
    """Cut the answer out of a model's text.

    Text up to the last `</think>` does not count, nor does a thought that never ends. Of several
    answer tags the last one counts; one that is never closed reaches to the end of the text.
    """
    text = _after_thinking(text)
    opened = list(_ANSWER_OPEN.finditer(text))
    if not opened:
        return AnswerText(text.strip(), tagged=False)
    start = opened[-1].end()
    closed = _ANSWER_CLOSE.search(text, start)
    content = text[start : closed.start() if closed else len(text)]
    num_closed = sum(1 for _ in _ANSWER_CLOSE.finditer(text))
    return AnswerText(content.strip(), True, len(opened) == 1 and num_closed == 1)


def _after_thinking(text: str) -> str:
    closed = list(_THINK_CLOSE.finditer(text))
    rest = text[closed[-1].end() :] if closed else text
    unfinished = _THINK_OPEN.search(rest)
    return rest[: unfinished.start()] if unfinished else rest


_STATEMENT = re.compile(
    r"(?:\b(?:answer|option|choice|result)\b(?:\s+(?:to|for)\s[^\n.:]{1,80}?)?[\s*_`]{0,6}"
    r"(?:(?:is|are|was|(?:would|should|must)\s+be)\b[\s*_`]{0,6}[:：]?|[:：=])"
    r"|(?:答案|选项)(?:应该|应)?(?:是|为|选|[:：]){1,2})[\s*_`]{0,6}",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\s*\{")
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_NEGATED_BEFORE = re.compile(
    r"(?:\bnot|n't|\bnever|\bneither|\bnor|不是?)\W*(?:\w+\W*)?$", re.IGNORECASE
)
_NEGATED_AFTER = re.compile(
    r"\W*(?:is|are|was|does)\s*(?:n't|not\b|wrong|incorrect|false)", re.IGNORECASE
)


def stated(
    answer: AnswerText, parse: Callable[[str], T | None], parse_start: Callable[[str], T | None]
) -> T:
    """The answer a text states in prose; the last statement counts.

    Looked for, in this order: an explicit statement ("the answer is …", `\\boxed{…}`) in the last
    line, a bold answer in the last line, the last line as a whole, an explicit statement further up.

    Args:
        answer: the text.
        parse: reads a text that is an answer and nothing else; None if it is not.
        parse_start: reads an answer at the start of a text, whatever follows; None if there is none.

    Raises:
        NoAnswer: nothing is stated.
    """
    text = answer.text
    if not text:
        raise NoAnswer("empty")
    last_line_start = text.rfind("\n") + 1
    last_line = text[last_line_start:]
    statement = _last_statement(text)
    if statement is not None and statement[0] >= last_line_start:
        value = _parse_statement(statement[1], parse, parse_start)
        if value is not None:
            return value
    for candidate in (_bold(last_line, parse), parse(last_line)):
        if candidate is not None:
            return candidate
    if statement is not None and statement[0] < last_line_start:
        value = _parse_statement(statement[1], parse, parse_start)
        if value is not None:
            return value
    raise NoAnswer("no answer is stated")


def _parse_statement(
    text: str, parse: Callable[[str], T | None], parse_start: Callable[[str], T | None]
) -> T | None:
    value = parse(text)
    return parse_start(text) if value is None else value


def _last_statement(text: str) -> tuple[int, str] | None:
    """Where the last explicit statement stands, and the answer's text up to the end of its line."""
    found: tuple[int, str] | None = None
    for match in _STATEMENT.finditer(text):
        line = text[match.end() :].partition("\n")[0]
        found = (match.end(), line)
    boxes = list(_BOXED.finditer(text))
    if boxes and (found is None or boxes[-1].end() > found[0]):
        found = (boxes[-1].end(), _braced(text, boxes[-1].end()))
    return found


def _braced(text: str, start: int) -> str:
    """The text from `start` to the brace that closes the one before it, or to the end."""
    depth = 1
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start : start + match.start()]
    return text[start:]


def _bold(line: str, parse: Callable[[str], T | None]) -> T | None:
    """The one answer set in bold in `line`; None if there is none, several, or it is negated."""
    values = []
    for match in _BOLD.finditer(line):
        value = parse(match.group(1))
        if value is None:
            continue
        if _NEGATED_BEFORE.search(line[max(0, match.start() - 40) : match.start()]):
            continue
        if _NEGATED_AFTER.match(line, match.end()):
            continue
        values.append(value)
    return values[0] if values and all(value == values[0] for value in values) else None


_WRAPPERS = (("**", "**"), ("__", "__"), ("`", "`"), ("*", "*"), ("$", "$"), ('"', '"'), ("'", "'"),
             ("“", "”"), ("「", "」"), ("(", ")"), ("[", "]"), ("（", "）"), ("{", "}"))  # fmt: skip
_COMMAND = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{(.*)\}\Z", re.DOTALL)


def unwrap(text: str) -> str:
    """`text` without surrounding space, closing punctuation, quotes, emphasis, brackets, `\\boxed`.

    Example:
        >>> unwrap("**(B)**."), unwrap("\\\\boxed{\\\\text{B}}")
        ('B', 'B')
    """
    for _ in range(6):
        before = text
        text = text.strip().rstrip(".。!！,，;；:：").rstrip()
        if match := _COMMAND.match(text):
            text = match.group(1)
        for left, right in _WRAPPERS:
            inner = text[len(left) : -len(right)]
            if (
                len(text) > len(left) + len(right)
                and text.startswith(left)
                and text.endswith(right)
                and left not in inner
                and right not in inner
            ):
                text = inner
        if text == before:
            break
    return text


MAX_JSON_STARTS = 64
"""How many `{` and `[` are tried; a text of nothing but brackets would take quadratic time."""


def json_values(text: str) -> Iterator[Any]:
    """All JSON objects and arrays in prose or code fences, outermost first, in order.

    Constants that JSON does not know (NaN, Infinity) make a value unreadable.
    """
    position, starts = 0, 0
    while starts < MAX_JSON_STARTS:
        match = re.compile(r"[{\[]").search(text, position)
        if match is None:
            return
        starts += 1
        try:
            value, position = _DECODER.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            position = match.end()
            continue
        yield value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
