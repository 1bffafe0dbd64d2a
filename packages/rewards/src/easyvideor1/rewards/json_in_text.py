r"""JSON objects and arrays in prose and code fences, strict or as models write them.

Accepted beside JSON: the same value as Python writes it (single quotes, tuples, True, False, None,
numbers as keys), a comma before a closing bracket, and line breaks within strings. Refused, as
there is more than one way to read it: a key that stands twice with different values, bare words,
cut-off values, NaN and Infinity. Time is linear in the text, up to fixed bounds.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

MAX_STARTS = 32
"""How many `{` and `[` are tried; a text of nothing but brackets would take quadratic time."""
MAX_TOKENS = 100_000
"""Of all values in a text that are not strict JSON; those are read by Python code."""
MAX_DEPTH = 20
"""Of a value that is not strict JSON."""


class Found(NamedTuple):
    """A value and where it stands in the text."""

    value: Any
    start: int
    end: int


def find_json(text: str) -> Iterator[Found]:
    """All JSON objects and arrays in `text`, outermost first, in order.

    Example:
        >>> [found.value for found in find_json("First {'a': (1, 2)}, then [3].")]
        [{'a': [1, 2]}, [3]]
    """
    relaxed = _Relaxed(text)
    position = 0
    for _ in range(MAX_STARTS):
        match = _START.search(text, position)
        if match is None:
            return
        start = match.start()
        try:
            value, position = _DECODER.raw_decode(text, start)
        except RecursionError:
            position = start + 1
            continue
        except ValueError:
            try:
                value, position = relaxed.read(start)
            except ValueError:
                position = start + 1
                continue
        yield Found(value, start, position)


def is_json_object(text: str, *keys: str) -> bool:
    """Whether `text` is one object in strict JSON and nothing else, with at least these keys."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(key in value for key in keys)


def without_json(text: str, found: Iterable[Found]) -> str:
    """`text` with a line break in place of each value."""
    kept, position = [], 0
    for value in found:
        kept.append(text[position : value.start])
        position = value.end
    return "\n".join([*kept, text[position:]])


_START = re.compile(r"[{\[]")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs) and any(fields[key] != value for key, value in pairs):
        raise ValueError("a key stands twice")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, object_pairs_hook=_unique, strict=False
)

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<sign>[\[\](){},:])
      | (?P<double>"[^"\\]*(?:\\.[^"\\]*)*")
      | '(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'
      | (?P<number>-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
      | (?P<word>true|false|null|True|False|None)(?!\w)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_QUOTE = re.compile(r"\\(.)|\"", re.DOTALL)


class _Relaxed:
    """Reads values that are not quite JSON; every failure is a `ValueError`."""

    def __init__(self, text: str):
        self._text = text
        self._position = 0
        self._num_tokens = 0

    def read(self, start: int) -> tuple[Any, int]:
        """The value that begins at `start`, and where it ends."""
        self._position = start
        return self._value(self._next(), MAX_DEPTH), self._position

    def _next(self) -> re.Match[str]:
        self._num_tokens += 1
        match = _TOKEN.match(self._text, self._position)
        if match is None or self._num_tokens > MAX_TOKENS:
            raise ValueError("not JSON")
        self._position = match.end()
        return match

    def _value(self, token: re.Match[str], depth: int) -> Any:
        kind, sign = token.lastgroup, token["sign"]
        if kind != "sign":
            return _scalar(token)
        if sign not in _CLOSING or depth == 0:
            raise ValueError("not JSON")
        read = self._pair if sign == "{" else self._value
        items = []
        while (token := self._next())["sign"] != _CLOSING[sign]:
            items.append(read(token, depth - 1))
            token = self._next()
            if token["sign"] == _CLOSING[sign]:
                break
            if token["sign"] != ",":
                raise ValueError("a comma is missing")
        return _unique(items) if sign == "{" else items

    def _pair(self, token: re.Match[str], depth: int) -> tuple[str, Any]:
        kind = token.lastgroup
        if kind not in ("double", "single", "number") or self._next()["sign"] != ":":
            raise ValueError("not a key")
        key = token[kind] if kind == "number" else _scalar(token)
        return key, self._value(self._next(), depth)


def _scalar(token: re.Match[str]) -> Any:
    match token.lastgroup:
        case "word":
            return _WORDS[token["word"]]
        case "number":
            digits = token["number"]
            return int(digits) if digits.lstrip("-").isdecimal() else float(digits)
        case "double":
            return json.loads(token["double"], strict=False)
        case _:
            return json.loads(f'"{_QUOTE.sub(_requote, token["single"])}"', strict=False)


def _requote(match: re.Match[str]) -> str:
    r"""A sign of a single-quoted string as it stands in a double-quoted one."""
    if match[0] == '"':
        return '\\"'
    return "'" if match[1] == "'" else match[0]
