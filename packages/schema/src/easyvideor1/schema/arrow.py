"""How records lie in Arrow and Parquet files: one schema per record, its version in the metadata.

Answers, extras and extracted values are JSON text, so numbers, booleans and objects keep their
meaning. A file of another record or version is refused by name. No reading policy here: see
`schema.readers`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from easyvideor1.schema.codec import from_plain, to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Completion, Prediction, Sample, Score

T = TypeVar("T")

VERSIONS = {"Sample": 1, "Completion": 1, "Score": 1, "Prediction": 1}
"""Raise a record's number whenever its schema or the meaning of a field changes."""

_RECORD, _VERSION = b"easyvideor1.record", b"easyvideor1.version"


def _text(name: str) -> pa.Field:
    return pa.field(name, pa.string(), nullable=False)


def _versioned(record: str, fields: list[pa.Field]) -> pa.Schema:
    metadata = {_RECORD: record.encode(), _VERSION: str(VERSIONS[record]).encode()}
    return pa.schema(fields, metadata=metadata)


_MEDIA = pa.struct(
    [
        _text("kind"),
        _text("path"),
        pa.field("start_s", pa.float64()),
        pa.field("end_s", pa.float64()),
        pa.field("frames", pa.list_(pa.string()), nullable=False),
        pa.field("frames_fps", pa.float64()),
    ]
)
_TRAJECTORY = pa.struct(
    [_text("text"), _text("source"), pa.field("logprobs", pa.list_(pa.float64()))]
)
_SEGMENT = pa.struct(
    [
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        _text("role"),
        pa.field("trainable", pa.bool_(), nullable=False),
        pa.field("media", pa.list_(_MEDIA), nullable=False),
        pa.field("logprobs", pa.list_(pa.float64())),
        pa.field("policy_version", pa.int64()),
    ]
)

SAMPLE_SCHEMA = _versioned(
    "Sample",
    [
        _text("id"),
        _text("problem"),
        _text("answer"),
        _text("problem_type"),
        pa.field("media", pa.list_(_MEDIA), nullable=False),
        pa.field("options", pa.list_(pa.string()), nullable=False),
        pa.field("offline", pa.list_(_TRAJECTORY), nullable=False),
        _text("source"),
        _text("category"),
        pa.field("pass_rate", pa.float64()),
        _text("extra"),
    ],
)
COMPLETION_SCHEMA = _versioned(
    "Completion",
    [
        pa.field("segments", pa.list_(_SEGMENT), nullable=False),
        _text("text"),
        _text("finish_reason"),
        _text("source"),
    ],
)
SCORE_SCHEMA = _versioned(
    "Score",
    [
        pa.field("value", pa.float64(), nullable=False),
        pa.field("parts", pa.map_(pa.string(), pa.float64()), nullable=False),
        _text("status"),
        _text("extracted"),
        _text("detail"),
    ],
)
PREDICTION_SCHEMA = _versioned(
    "Prediction",
    [
        _text("fingerprint"),
        _text("sample_id"),
        pa.field("repeat", pa.int32(), nullable=False),
        _text("status"),
        _text("text"),
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        _text("finish_reason"),
        pa.field("prompt_tokens", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        _text("error"),
        pa.field("media", pa.list_(pa.string()), nullable=False),
    ],
)

SCHEMAS: dict[type, pa.Schema] = {
    Sample: SAMPLE_SCHEMA,
    Completion: COMPLETION_SCHEMA,
    Score: SCORE_SCHEMA,
    Prediction: PREDICTION_SCHEMA,
}
_JSON_FIELDS = {Sample: ("answer", "extra"), Score: ("extracted",)}
_JSON_LIST_FIELDS = {Prediction: ("media",)}


def to_json_text(value: Any) -> str:
    """`value` as the JSON text that a column holds.

    Raises:
        TypeError: for a value that JSON does not have (bytes, dates).
        ValueError: for a number that is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def to_row(record: Any) -> dict[str, Any]:
    """The columns of one record, as `SCHEMAS[type(record)]` names them."""
    row = to_plain(record)
    for name in _JSON_FIELDS.get(type(record), ()):
        row[name] = to_json_text(row[name])
    for name in _JSON_LIST_FIELDS.get(type(record), ()):
        row[name] = [to_json_text(item) for item in row[name]]
    return row


def from_row(record_type: type[T], row: Mapping[str, Any]) -> T:
    """The record behind one row, the inverse of `to_row`."""
    values = dict(row)
    for name in _JSON_FIELDS.get(record_type, ()):
        values[name] = json.loads(values[name])
    for name in _JSON_LIST_FIELDS.get(record_type, ()):
        values[name] = [json.loads(item) for item in values[name]]
    if record_type is Score:
        values["parts"] = dict(values["parts"])  # a map column reads as pairs
    return from_plain(record_type, values)


def to_arrow(records: Iterable[T], record_type: type[T]) -> pa.Table:
    """A table of `records` in their versioned schema."""
    return pa.Table.from_pylist([to_row(r) for r in records], schema=SCHEMAS[record_type])


def from_arrow(table: pa.Table, record_type: type[T], path: str | Path = "the table") -> list[T]:
    """All records of a table that `to_arrow` made.

    Raises:
        UserError: for a table of another record or version.
    """
    check_schema(table.schema, record_type, path)
    return [from_row(record_type, row) for row in table.to_pylist()]


def is_versioned(schema: pa.Schema) -> bool:
    """Whether `schema` comes from one of ours, of whatever record and version."""
    return _RECORD in (schema.metadata or {})


def check_schema(schema: pa.Schema, record_type: type, path: str | Path) -> None:
    """Refuse a file that holds something else than `record_type` in the version we read.

    Raises:
        UserError: naming the record and version found and expected.
    """
    expected, metadata = record_type.__name__, schema.metadata or {}
    if _RECORD not in metadata:
        raise UserError(
            f"{path} carries no easyvideor1 record version; expected {expected} records"
        )
    record, version = metadata[_RECORD].decode(), metadata.get(_VERSION, b"?").decode()
    if record != expected:
        raise UserError(f"{path} holds {record} records, expected {expected} records")
    if version != str(VERSIONS[expected]):
        raise UserError(
            f"{path} holds {expected} records of version {version}, this easyvideor1 reads version "
            f"{VERSIONS[expected]}; write the file again from its source, or use a matching release"
        )
    if not schema.equals(SCHEMAS[record_type]):
        raise UserError(
            f"{path} says {expected} version {version} but its columns are "
            f"{', '.join(schema.names)}; the file was changed, write it again from its source"
        )
