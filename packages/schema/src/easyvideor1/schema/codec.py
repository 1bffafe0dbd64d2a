"""Records to plain JSON-ready values and back, driven by the type hints of the dataclasses.

Used by `schema.jsonl` and `schema.arrow`, and wherever a record crosses a text format. Values are
checked against their hints, so a hand-edited file fails by field name instead of later.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(record: Any) -> dict[str, Any]:
    """`record` as dicts, lists and scalars; enum members become their values.

    Args:
        record: any record of `schema.records`.
    """
    return {field.name: _plain(getattr(record, field.name)) for field in dataclasses.fields(record)}


def _plain(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if dataclasses.is_dataclass(value):
        return to_plain(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class FieldError(ValueError):
    """A value that does not fit the field of a record.

    Example:
        >>> from_plain(Media, {"kind": "film", "path": "a.mp4"})
        FieldError: kind: got 'film', expected one of image, video
    """

    def __init__(self, field: str, value: object, expected: str):
        self.field, self.value, self.expected = field, value, expected
        super().__init__(f"{field}: got {value!r}, expected {expected}")


def from_plain(record_type: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """The record that `to_plain` turned into `values`. Absent and null fields take their defaults.

    Args:
        record_type: dataclass to build.
        values: its fields.
        where: dotted prefix for field names in errors.

    Raises:
        FieldError: for an unknown or missing field, or a value of another type.
    """
    hints = _hints(record_type)
    for name in values:
        if name not in hints:
            raise FieldError(f"{where}{name}", values[name], f"only the fields {', '.join(hints)}")
    built = {}
    for field in dataclasses.fields(typing.cast(Any, record_type)):
        name, value, hint = field.name, values.get(field.name), hints[field.name]
        has_default = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if value is None and has_default:
            continue  # columnar files write null where a row has no such field
        if name not in values:
            raise FieldError(f"{where}{name}", None, "a value; the field is missing")
        built[name] = _build(hint, value, f"{where}{name}")
    try:
        return record_type(**built)
    except FieldError:
        raise
    except ValueError as error:
        raise FieldError(
            where.rstrip(".") or record_type.__name__, dict(values), str(error)
        ) from None


@functools.cache
def _hints(record_type: type) -> dict[str, Any]:
    return typing.get_type_hints(record_type)


def _build(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        options = [arg for arg in args if arg is not type(None)]
        if len(options) > 1:  # Answer: any JSON value
            return value
        return _build(options[0], value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise FieldError(where, value, "a list")
        return tuple(_build(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise FieldError(where, value, "an object")
        return {key: _build(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise FieldError(where, value, "an object")
        return from_plain(typing.cast(type, hint), value, f"{where}.")
    if issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            known = ", ".join(str(member.value) for member in hint)
            raise FieldError(where, value, f"one of {known}") from None
    return _scalar(hint, value, where)


def _scalar(hint: type, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise FieldError(where, value, names.get(hint, hint.__name__))
    return value
