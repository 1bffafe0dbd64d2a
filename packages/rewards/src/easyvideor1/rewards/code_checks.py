"""What a test demands of a value that came out of the sandbox, decided on the value's JSON form.

The value is the word of a hostile program (`sandbox.inside.values`): nothing here calls a method of
it, and no container is built of it, since the program could choose elements whose hashes collide.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from easyvideor1.rewards.sandbox.inside.values import decode

Check = Callable[[Any], bool]
"""Whether the JSON of a value passes."""

MAX_DEPTH = 100
MAX_KEY_PARTS = 1_000
MAX_EXACT_DIGITS = 2_000
"""Of the parts of a fraction or a decimal; arithmetic on longer ones takes long."""

_SEQUENCES = {"l": list, "t": tuple, "q": deque}
_SCALARS = "ifcyYrDF"


def equals(data: Any, expected: Any, loose: bool = False, depth: int = 0) -> bool:
    """Whether the value is `==` to one of plain types, as Python has it.

    Args:
        data: JSON of the value.
        expected: None, booleans, numbers, texts, bytes, and lists, tuples, sets and dicts of such.
        loose: lists and tuples are equal, and keys of dicts also by their text: for expected values
            that were written in JSON.
        depth: of the value within another.
    """
    if depth > MAX_DEPTH:
        return False
    kind, parts = _kind_of(data)
    if kind in _SEQUENCES:
        alike = (list, tuple) if loose else _SEQUENCES[kind]
        return (
            isinstance(expected, alike)
            and len(parts) == len(expected)
            and all(equals(p, e, loose, depth + 1) for p, e in zip(parts, expected, strict=True))
        )
    if kind in ("s", "z"):
        return isinstance(expected, set | frozenset) and _same_set(parts, expected)
    if kind == "d":
        return isinstance(expected, dict) and _same_dict(parts, expected, loose, depth)
    try:
        return not isinstance(expected, list | tuple | set | dict) and scalar(data) == expected
    except (ValueError, TypeError, ArithmeticError):
        return False


def _kind_of(data: Any) -> tuple[str, list[Any]]:
    if isinstance(data, list) and data and isinstance(data[0], str):
        return data[0], data[1:]
    return "", []


def _same_set(parts: list[Any], expected: set[Any] | frozenset[Any]) -> bool:
    left = set(expected)
    for part in parts:
        key = _key(part)
        if key not in left:
            return False
        left.remove(key)
    return not left


def _same_dict(parts: list[Any], expected: dict[Any, Any], loose: bool, depth: int) -> bool:
    if len(parts) != 2 * len(expected):
        return False
    left = set(expected)
    for part, value in zip(parts[::2], parts[1::2], strict=True):
        key = _key(part)
        if loose and key not in left:
            key = str(key)
        if key not in left or not equals(value, expected[key], loose, depth + 1):
            return False
        left.remove(key)
    return True


def _key(data: Any) -> Any:
    """A key of a dict or an element of a set; an object that equals nothing if it cannot be one."""
    kind, parts = _kind_of(data)
    try:
        if kind in ("t", "z") and len(parts) <= MAX_KEY_PARTS:
            return {"t": tuple, "z": frozenset}[kind](_key(part) for part in parts)
        return scalar(data)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return object()


def scalar(data: Any) -> Any:
    """The number, text, bytes, range, boolean or None that the JSON stands for.

    Raises:
        ValueError: it stands for something else. Also TypeError and ArithmeticError.
    """
    kind, parts = _kind_of(data)
    if kind:
        if kind not in _SCALARS or any(
            isinstance(part, list) for part in parts if kind not in "Fr"
        ):
            raise ValueError("no scalar")
        if kind in "DF" and len(str(parts)) > MAX_EXACT_DIGITS:
            raise ValueError("too long")
    elif isinstance(data, list):
        raise ValueError("no kind")
    value = decode(data)
    return bytes(value) if isinstance(value, bytearray) else value


def is_exactly(data: Any, expected: object) -> bool:
    """Whether the value is None, True or False itself."""
    return data is expected


def is_among(data: Any, values: Sequence[Any]) -> bool:
    """Whether it equals one of some values."""
    return any(equals(data, value) for value in values)


def is_within(data: Any, expected: float, tolerance: float, closed: bool) -> bool:
    """Whether it is a number at most (`closed`), or less than, `tolerance` away."""
    value = _real(data)
    if value is None:
        return False
    distance = abs(value - expected)
    return distance <= tolerance if closed else distance < tolerance


def is_close(data: Any, expected: float, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    """As `math.isclose` has it."""
    value = _real(data)
    return value is not None and math.isclose(
        value, expected, rel_tol=max(rel_tol, 0.0), abs_tol=max(abs_tol, 0.0)
    )


def _real(data: Any) -> float | None:
    try:
        value = scalar(data)
        return float(value) if isinstance(value, int | float | Decimal | Fraction) else None
    except (ValueError, TypeError, ArithmeticError):
        return None


def same_output(output: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two outputs have the same words on the same lines.

    Blank lines at both ends do not count. With a tolerance above 0, words that are numbers may
    differ by so much, absolute or relative.
    """
    lines, wanted = _lines(output), _lines(expected)
    if tolerance <= 0:
        return lines == wanted
    return len(lines) == len(wanted) and all(
        len(line) == len(want)
        and all(_same_word(a, b, tolerance) for a, b in zip(line, want, strict=True))
        for line, want in zip(lines, wanted, strict=True)
    )


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _same_word(word: str, wanted: str, tolerance: float) -> bool:
    if word == wanted:
        return True
    try:
        return math.isclose(float(word), float(wanted), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False
