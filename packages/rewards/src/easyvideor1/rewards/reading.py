r"""Where in a model's text the answer stands: after thinking, in the last answer tag, or as stated.

Shared by all tasks; what the answer means is theirs. Every pattern runs in time linear in the text.
Nothing here guesses: a text that does not state its answer raises `NoAnswer`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from easyvideor1.rewards.json_in_text import find_json

T = TypeVar("T")
Parse = Callable[[str], T | None]

MAX_STATED_CHARS = 8_000
"""From the end of a text: where a stated answer is looked for. It keeps hostile texts cheap."""

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

    @property
    def searched(self) -> str:
        """Where structured answers are looked for: all of a tag's content, else the tail."""
        return self.text if self.tagged or self.text[:1] in ("{", "[") else self.tail

    @property
    def tail(self) -> str:
        """The last `MAX_STATED_CHARS` of the text, from a line or word of its own."""
        if len(self.text) <= MAX_STATED_CHARS:
            return self.text
        return re.sub(r"\A\S*\s*", "", self.text[-MAX_STATED_CHARS:])


def read_answer(text: str) -> AnswerText:
    """Cut the answer out of a model's text.

    Text up to the last `</think>` does not count, nor does a thought that never ends. Of several
    answer tags the last one counts; one that is never closed reaches to the end of the text.
    """
    text = _after_thinking(text)
    opened = list(_ANSWER_OPEN.finditer(text))
    if not opened:
        return AnswerText(text.strip(), tagged=False)
    closed = list(_ANSWER_CLOSE.finditer(text))
    start = opened[-1].end()
    end = next((match.start() for match in closed if match.start() >= start), len(text))
    single = len(opened) == 1 and len(closed) == 1
    return AnswerText(text[start:end].strip(), tagged=True, single=single and end < len(text))


def _after_thinking(text: str) -> str:
    closed = list(_THINK_CLOSE.finditer(text))
    rest = text[closed[-1].end() :] if closed else text
    unfinished = _THINK_OPEN.search(rest)
    return rest[: unfinished.start()] if unfinished else rest


_ANSWER_KEYS = frozenset(
    {"answer", "final_answer", "final answer", "choice", "option", "letter", "value", "result"}
)


def out_of_json(answer: AnswerText) -> AnswerText:
    """The text in an object like `{"answer": "B"}`, if the text is one; else the text as it is."""
    if answer.text[:1] not in ("{", "`"):
        return answer
    values = list(find_json(answer.text))
    if len(values) != 1 or not isinstance(values[0].value, dict):
        return answer
    around = answer.text[: values[0].start] + answer.text[values[0].end :]
    fields = values[0].value
    found = [item for key, item in fields.items() if key.strip().lower() in _ANSWER_KEYS]
    if _FENCE.fullmatch(around) is None or len(found) != 1:
        return answer
    value = found[0]
    if isinstance(value, bool):
        value = str(value).lower()
    return (
        replace(answer, text=str(value).strip()) if isinstance(value, str | int | float) else answer
    )


_FENCE = re.compile(r"\s*(?:```\w{0,10}\s*```)?\s*")

_STATEMENT = re.compile(
    r"(?:\b(?:answer|option|choice|result)\b(?:\s{1,3}(?:to|for)\s[^\n.:]{1,80}?)?[\s*_`]{0,6}"
    r"(?:(?:is|are|was|(?:would|should|must|seems?\s+to|appears?\s+to)\s+be)\b"
    r"(?:\s+(?:definitely|clearly|likely|most\s+likely|probably|therefore|thus|simply|indeed)\b)?"
    r"[\s*_`]{0,6}[:：]?|[:：=])"
    r"|(?:答案|选项)(?:应该|应)?(?:是|为|选|[:：]){1,2})[\s*_`]{0,6}",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\s?\{")
_BRACE = re.compile(r"[{}]")
_BOLD = re.compile(r"(?<![A-Za-z0-9*])\*\*(?!\s)([^*\n]{1,200})(?<!\s)\*\*(?![A-Za-z0-9*])")
_NEGATED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor)|n't|不是?)\W{0,3}(?:\w{1,20}\W{0,3})?\Z"
    r"|(?:\bnot|n't)\s+(?:think|believe|say)\s+(?:that\s+)?(?:the\s+)?(?:\w{1,10}\s+)?\Z",
    re.IGNORECASE,
)
_NEGATED_AFTER = re.compile(
    r"\W{0,3}(?:is|are|was|does)\s?(?:n't|not\b|wrong|incorrect|false)", re.IGNORECASE
)


def stated(
    answer: AnswerText,
    parse: Parse[T],
    parse_start: Parse[T],
    statements: Sequence[re.Pattern[str]] = (),
) -> T:
    r"""The answer a text states in prose; the last statement counts.

    Looked for, in this order: an explicit statement ("the answer is …", `\boxed{…}`) in the last
    line, a bold answer in the last line, the last line as a whole, an explicit statement before it.

    Args:
        answer: the text.
        parse: reads a text that is an answer and nothing else; None if it is not.
        parse_start: reads an answer at the start of a text, whatever follows; else None.
        statements: more explicit statements; group 1 is the answer.

    Raises:
        NoAnswer: nothing is stated.
    """
    text = answer.tail
    if not text:
        raise NoAnswer("empty")
    last_line_start = text.rfind("\n") + 1
    last_line = text[last_line_start:]
    where, statement = _last_statement(text, statements)

    def explicit() -> T | None:
        value = parse(statement)
        return parse_start(statement) if value is None else value

    def bold() -> T | None:
        return _bold(last_line, parse)

    def line() -> T | None:
        return parse(last_line)

    order = (explicit, bold, line) if where >= last_line_start else (bold, line, explicit)
    for look in order:
        if (value := look()) is not None:
            return value
    raise NoAnswer("no answer is stated")


def _last_statement(text: str, more: Sequence[re.Pattern[str]]) -> tuple[int, str]:
    """Where the last explicit statement stands, and its answer; (-1, "") if there is none.

    The answer is what follows, up to the end of the line, or what a box or a group holds.
    """
    where, found = -1, ""
    matches = [m for m in _STATEMENT.finditer(text) if not _is_negated(text, m.start())]
    if matches:
        where = matches[-1].end()
        found = text[where:].partition("\n")[0]
    for pattern in more:
        matches = [m for m in pattern.finditer(text) if not _is_negated(text, m.start())]
        if matches and matches[-1].start(1) > where:
            where, found = matches[-1].start(1), matches[-1].group(1)
    boxes = list(_BOXED.finditer(text))
    if boxes and boxes[-1].end() > where:
        where, found = boxes[-1].end(), _braced(text, boxes[-1].end())
    return where, found


def _is_negated(text: str, position: int) -> bool:
    return _NEGATED_BEFORE.search(text[max(0, position - 60) : position]) is not None


def _braced(text: str, start: int) -> str:
    """The text from `start` to the brace that closes the one before it, or to the end."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start : match.start()]
    return text[start:]


def _bold(line: str, parse: Parse[T]) -> T | None:
    """The one answer set in bold in `line`; None if there is none, several, or it is negated."""
    values = [
        value
        for match in _BOLD.finditer(line)
        if (value := parse(match.group(1))) is not None
        and not _is_negated(line, match.start())
        and not _NEGATED_AFTER.match(line, match.end())
    ]
    return values[0] if values and all(value == values[0] for value in values) else None


_WRAPPERS = (
    ("**", "**"), ("__", "__"), ("`", "`"), ("*", "*"), ("$", "$"), ('"', '"'), ("'", "'"),
    ("“", "”"), ("「", "」"), ("(", ")"), ("[", "]"), ("（", "）"), ("{", "}"),
    ("\\(", "\\)"), ("\\[", "\\]"),
)  # fmt: skip
_COMMAND = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s?\{(.*)\}\Z", re.DOTALL)
_CLOSING = ".。!！,，;；:："


def unwrap(text: str) -> str:
    r"""Take off outer space, closing punctuation, quotes, emphasis, brackets and `\boxed`.

    Example:
        >>> unwrap("**(B)**.")
        'B'
    """
    for _ in range(6):
        before = text
        text = text.strip().rstrip(_CLOSING).rstrip()
        if match := _COMMAND.match(text):
            text = match.group(1)
        for left, right in _WRAPPERS:
            if len(text) > len(left) + len(right) and text[0] == left[0]:
                inner = text[len(left) : -len(right)]
                wrapped = text.startswith(left) and text.endswith(right)
                if wrapped and left not in inner and right not in inner:
                    text = inner
        if text == before:
            break
    return text
