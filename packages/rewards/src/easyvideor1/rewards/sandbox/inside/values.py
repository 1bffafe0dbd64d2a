"""Values as JSON that names their types: how results leave the sandbox.

None, booleans, texts and small integers are themselves; everything else is a list that begins with
its kind: `["t", 1, ["f", "0x1.8p+0"]]` is `(1, 1.5)`. A subclass of a plain type is written as the
plain value it holds, whatever methods it overrides; an object without a plain value is `["o", …]`.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 100
SMALL = 2**53


class NotPlainError(ValueError):
    """A value without a plain form: an object, a function, something too deep."""


Keep = Callable[[Any, Any], list[Any]]
"""Writes an object that is no plain value; gets the object and, for a subclass, its plain form."""


def refuse(value: Any, plain: Any) -> list[Any]:
    """The `Keep` of a writer that only takes plain values; subclasses count as such."""
    if plain is None:
        raise NotPlainError(f"{type(value).__name__} is not a plain value")
    return plain


def encode(value: Any, keep: Keep = refuse, depth: int = 0) -> Any:
    """`value` as JSON.

    Raises:
        NotPlainError: from `keep`, or for a value nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise NotPlainError(f"nested deeper than {MAX_DEPTH}")
    kind = type(value)
    if kind in _WRITERS:
        return _WRITERS[kind](value, keep, depth + 1)
    # Not isinstance: a class may lie about itself by a property.
    base = next((known for known in kind.__mro__ if known in _WRITERS), None)
    return keep(value, _WRITERS[base](value, keep, depth + 1) if base else None)


def _items(tag: str, iterate: Callable[[Any], Iterator[Any]]) -> Callable[[Any, Keep, int], Any]:
    return lambda value, keep, depth: [tag, *(encode(v, keep, depth) for v in iterate(value))]


def _int(value: int) -> Any:
    number = int.__index__(value)
    return number if -SMALL < number < SMALL else ["i", hex(number)]


def _dict(value: dict, keep: Keep, depth: int) -> list[Any]:
    return ["d", *(encode(part, keep, depth) for pair in dict.items(value) for part in pair)]


_WRITERS: dict[type, Callable[[Any, Keep, int], Any]] = {
    type(None): lambda value, keep, depth: None,
    bool: lambda value, keep, depth: value,
    int: lambda value, keep, depth: _int(value),
    float: lambda value, keep, depth: ["f", float.hex(value)],
    complex: lambda value, keep, depth: [
        "c", float.hex(complex(value).real), float.hex(complex(value).imag)
    ],
    str: lambda value, keep, depth: str.__str__(value),
    bytes: lambda value, keep, depth: ["y", bytes.hex(value)],
    bytearray: lambda value, keep, depth: ["Y", bytearray.hex(value)],
    list: _items("l", list.__iter__),
    tuple: _items("t", tuple.__iter__),
    set: _items("s", set.__iter__),
    frozenset: _items("z", frozenset.__iter__),
    deque: _items("q", deque.__iter__),
    dict: _dict,
    range: lambda value, keep, depth: ["r", _int(value.start), _int(value.stop), _int(value.step)],
    Decimal: lambda value, keep, depth: ["D", Decimal.__str__(value)],
    Fraction: lambda value, keep, depth: [
        "F", _int(value._numerator), _int(value._denominator)
    ],
}  # fmt: skip


def decode(data: Any, resolve: Callable[[list[Any]], Any] | None = None) -> Any:
    """The value that JSON stands for.

    Args:
        data: as `encode` writes it, or anything else.
        resolve: makes something of an object; without it one is an error.

    Raises:
        ValueError: it does not stand for a value. Also TypeError, OverflowError, RecursionError.
    """
    if not isinstance(data, list):
        if data is None or isinstance(data, bool | int | str):
            return data
        raise ValueError(f"no value: {type(data).__name__}")
    kind, *parts = data
    if kind == "o" and resolve is not None:
        return resolve(data)
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decode(part, resolve) for part in parts)
    if kind == "d":
        items = [decode(part, resolve) for part in parts]
        return dict(zip(items[::2], items[1::2], strict=True))
    if kind not in _SCALARS:
        raise ValueError(f"no kind of value: {kind!r}")
    return _SCALARS[kind](*(decode(part) for part in parts))


_CONTAINERS: dict[str, Callable[[Iterator[Any]], Any]] = {
    "l": list, "t": tuple, "s": set, "z": frozenset, "q": deque,
}  # fmt: skip
_SCALARS: dict[str, Callable[..., Any]] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "c": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "y": bytes.fromhex,
    "Y": bytearray.fromhex,
    "r": range,
    "D": Decimal,
    "F": Fraction,
}


def write(message: Any) -> bytes:
    """One line of JSON."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
