"""The fields that `data.filter` compares, each read as one Arrow array from a batch of rows.

Texts and pass rates are columns; counts and the data type are computed from the media lists. The
answer and the extra fields are JSON text, parsed once per batch and only if they are asked for.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute

from easyvideor1.schema.records import MediaKind, parse_problem_type

pc: Any = pyarrow.compute  # its kernels are made at import, where type checkers do not see them

DATA_TYPES = ("text", "image", "video", "mixed")


class Kind(StrEnum):
    """What a value is compared as; the value is how messages say it."""

    number = "a number"
    text = "text"
    truth = "true or false"
    any = "of any type"
    """Of a JSON value that is only asked whether it is there."""

    @property
    def arrow_type(self) -> pa.DataType:
        if self is Kind.number:
            return pa.float64()
        return pa.string() if self is Kind.text else pa.bool_()

    def holds(self, value: Any) -> bool:
        """Whether a JSON value is of this kind."""
        if self is Kind.number:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return isinstance(value, str if self is Kind.text else bool)


class Rows:
    """A batch of rows whose JSON columns are parsed at most once."""

    def __init__(self, batch: pa.RecordBatch):
        self._batch = batch
        self._parsed: dict[str, list[Any]] = {}

    def column(self, name: str) -> Any:
        return self._batch.column(name)

    def parsed(self, name: str) -> list[Any]:
        """The values behind a column of JSON texts."""
        if name not in self._parsed:
            # One list parses several times faster than as many texts.
            self._parsed[name] = json.loads(f"[{','.join(self.column(name).to_pylist())}]")
        return self._parsed[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """Something a filter can compare."""

    name: str
    kind: Kind | None
    """None for a JSON value, which is compared as what stands on the other side."""
    read: Callable[[Rows], Any]
    """An array of `kind.arrow_type`, null where a sample has no such value."""
    nullable: bool = False
    example: str = ""
    """Of a comparison with it."""
    empty_hint: str = ""
    """What the field holds where users might expect None."""
    missing_hint: str = ""
    """Where a value would come from."""
    parse: Callable[[str], str] | None = None
    """The stored form of a constant; a ValueError for one that no sample can have."""
    typed: Callable[[Kind], Callable[[Rows], Any]] | None = None
    """How to read a JSON value as one kind."""

    def as_kind(self, kind: Kind) -> "Field":
        """The field to be compared as `kind`; JSON values of other kinds count as missing."""
        if self.typed is None:
            return self
        name = self.name if kind is Kind.any else f"{self.name} that is {kind}"
        return replace(self, name=name, kind=kind, read=self.typed(kind), typed=None)


def json_field(column: str, key: str | None = None) -> Field:
    """A JSON column, or the value under `key` of a column of JSON objects."""
    name = column if key is None else f"{column}[{key!r}]"

    def values(rows: Rows) -> list[Any]:
        parsed = rows.parsed(column)
        return parsed if key is None else [value.get(key) for value in parsed]

    def typed(kind: Kind) -> Callable[[Rows], pa.Array]:
        def read(rows: Rows) -> pa.Array:
            if kind is Kind.any:
                found = [None if value is None else True for value in values(rows)]
            elif kind is Kind.number:
                found = [float(v) if kind.holds(v) else None for v in values(rows)]
            else:
                found = [value if kind.holds(value) else None for value in values(rows)]
            return pa.array(found, kind.arrow_type)

        return read

    return Field(name=name, kind=None, read=typed(Kind.truth), nullable=True, typed=typed)


def length_field(name: str) -> Field | None:
    """The length of a list or text field; None for a field that has none."""
    if name in ("media", "options", "offline"):
        kernel = pc.list_value_length
    elif name in FIELDS and FIELDS[name].kind is Kind.text:
        kernel = pc.utf8_length
    else:
        return None

    def read(rows: Rows) -> pa.Array:
        values = rows.column(name) if name not in FIELDS else FIELDS[name].read(rows)
        return kernel(values).cast(pa.float64())

    return Field(
        name=f"len({name})",
        kind=Kind.number,
        read=read,
        example=f"len({name}) > 0",
        empty_hint="; it is 0 for an empty one",
    )


def _text(name: str, parse: Callable[[str], str] | None = None, value: str = "web") -> Field:
    return Field(
        name=name,
        kind=Kind.text,
        read=lambda rows: rows.column(name),
        example=f"{name} == {value!r}",
        empty_hint="; a sample without one has ''",
        parse=parse,
    )


def _counted(kind: MediaKind) -> Field:
    name = f"num_{kind.value}s"
    return Field(
        name=name,
        kind=Kind.number,
        read=lambda rows: _num_media(rows, kind).cast(pa.float64()),
        example=f"{name} > 1",
        empty_hint="; it is 0 for a sample without",
    )


def _num_media(rows: Rows, kind: MediaKind) -> pa.Array:
    """How many media of a kind each sample has: running counts at the ends of its list."""
    media = rows.column("media")
    is_kind = pc.equal(pc.struct_field(media.values, "kind"), kind.value).cast(pa.int64())
    running = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(is_kind)])
    at_offsets = running.take(media.offsets)
    return pc.subtract(at_offsets.slice(1), at_offsets.slice(0, len(media)))


def _data_type(rows: Rows) -> pa.Array:
    has_image = pc.greater(_num_media(rows, MediaKind.image), 0)
    has_video = pc.greater(_num_media(rows, MediaKind.video), 0)
    of_one_kind = pc.if_else(has_image, "image", pc.if_else(has_video, "video", "text"))
    return pc.if_else(pc.and_(has_image, has_video), "mixed", of_one_kind)


def _parse_data_type(name: str) -> str:
    if name not in DATA_TYPES:
        raise ValueError(f"unknown data type {name!r}; known: {', '.join(DATA_TYPES)}")
    return name


def _parse_problem_type(name: str) -> str:
    return parse_problem_type(name).value


FIELDS: Mapping[str, Field] = {
    field.name: field
    for field in (
        _text("id", value="train/17"),
        _text("problem", value="Why?"),
        json_field("answer"),
        _text("problem_type", _parse_problem_type, value="ocr"),
        replace(_text("data_type", _parse_data_type, value="video"), read=_data_type),
        _text("source"),
        _text("category"),
        Field(
            name="pass_rate",
            kind=Kind.number,
            read=lambda rows: rows.column("pass_rate"),
            nullable=True,
            example="0 < pass_rate < 1",
            missing_hint="evaluation fills it",
        ),
        _counted(MediaKind.image),
        _counted(MediaKind.video),
    )
}
"""By name. Beside them stand `extra['name']` and `len(field)`."""
