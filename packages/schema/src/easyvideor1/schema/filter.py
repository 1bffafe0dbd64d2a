"""`data.filter`: which samples to keep, as an expression in Python's syntax over their fields.

    0 < pass_rate < 1
    pass_rate is None or pass_rate < 0.9
    problem_type in ('ocr', 'math') and source != 'web'
    data_type == 'video' and 'kitchen' in problem and extra['level'] >= 3

It is parsed and never evaluated: it becomes Arrow kernels over the columns of a `SampleTable`, so
no sample is built. A comparison with a missing value does not hold, and neither does its `not`.
Numbers are compared as 64-bit floats. What a field is: `schema.filter_fields`.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.filter_fields import FIELDS, Field, Kind, Rows, json_field, length_field
from easyvideor1.schema.table import SampleTable

pc: Any = pyarrow.compute  # its kernels are made at import, where type checkers do not see them

SUPPORTED = (
    "supported are fields, numbers, texts, True and False, the comparisons < <= > >= == !=, "
    "`in` and `not in` with a list of constants, 'text' in field, `is None`, `is not None`, "
    "extra['name'], len(field), and, or, not"
)
SHOWN_VALUES = 5

Mask = Callable[[Rows], Any]
"""From rows to a boolean array, null where the answer hangs on a missing value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Constant:
    value: Any
    kind: Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class FilterReport:
    """What a filter kept."""

    kept: int
    total: int
    missing: dict[str, int]
    """Samples without a value, by field, e.g. `pass_rate`; only fields that some sample lacks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleFilter:
    """A checked expression; `compile_filter` makes it."""

    text: str
    mask: Mask
    fields: dict[str, Field] = field(repr=False)
    """Those it compares, by what messages call them."""

    def apply(self, table: SampleTable) -> tuple[SampleTable, FilterReport]:
        """The samples for which the expression holds, as a view of the same mapped files."""
        columns = table.compute(self._columns)
        kept = table.select(pc.indices_nonzero(columns.column(0)).to_pylist())
        missing = {
            name: count
            for name, is_missing in zip(self.fields, columns.columns[1:], strict=True)
            if (count := pc.sum(is_missing).as_py())
        }
        return kept, FilterReport(kept=len(kept), total=len(table), missing=missing)

    def describe(self, table: SampleTable) -> str:
        """What the compared fields hold, for a filter that keeps nothing: why is that?"""
        columns = table.compute(
            lambda batch: {name: f.read(Rows(batch)) for name, f in self.fields.items()}
        )
        return "; ".join(_described(f, columns.column(name)) for name, f in self.fields.items())

    def _columns(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        rows = Rows(batch)
        missing = {f"no {name}": pc.is_null(f.read(rows)) for name, f in self.fields.items()}
        return {"keep": self.mask(rows), **missing}


def compile_filter(text: str) -> SampleFilter:
    """Check `text` and make a filter of it.

    Raises:
        UserError: naming the expression, the part that is wrong, its place and what would be right.
    """
    return _Compiler(text).compile()


def _described(field: Field, values: pa.ChunkedArray) -> str:
    name, present = field.name, values.drop_null()
    if not len(present):
        hint = f" ({field.missing_hint})" if field.missing_hint else ""
        return f"no sample has {field.name}{hint}"
    if pa.types.is_floating(present.type):
        least, most = pc.min_max(present).as_py().values()
        return f"{name} is {least:g} in all" if least == most else f"{name}: {least:g} to {most:g}"
    counts = sorted(pc.value_counts(present).to_pylist(), key=lambda c: -c["counts"])
    shown = ", ".join(repr(count["values"])[:40] for count in counts[:SHOWN_VALUES])
    more = f" and {len(counts) - SHOWN_VALUES} others" if len(counts) > SHOWN_VALUES else ""
    return f"{name}: {shown}{more}"


_KERNELS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
}


class _Compiler:
    """From an expression to a mask; every branch either is in the language or says what is."""

    def __init__(self, text: str):
        self.text = text.strip()
        # Within brackets Python allows line breaks, which long settings in YAML have.
        self.is_wrapped = "\n" in self.text
        self.source = f"({self.text}\n)" if self.is_wrapped else self.text
        self.fields: dict[str, Field] = {}

    def compile(self) -> SampleFilter:
        if not self.text:
            raise UserError(f"data.filter is empty; {SUPPORTED}; null keeps every sample")
        try:
            tree = ast.parse(self.source, mode="eval")
            mask = self._condition(tree.body)
        except SyntaxError as error:
            place = self._place(error.lineno or 1, error.offset - 1) if error.offset else "the end"
            raise UserError(
                f"data.filter={self.text!r}: {error.msg} at {place}; a condition is expected, "
                "e.g. 0 < pass_rate < 1 and source == 'web'"
            ) from None
        except (RecursionError, MemoryError, ValueError) as error:
            raise UserError(f"data.filter={self.text!r} cannot be read: {error}") from None
        return SampleFilter(text=self.text, mask=mask, fields=self.fields)

    def _condition(self, node: ast.expr) -> Mask:
        match node:
            case ast.BoolOp(op=op, values=values):
                join = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
                return _joined(join, [self._condition(value) for value in values])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._condition(operand)
                return lambda rows: pc.invert(inner(rows))
            case ast.Compare(left=left, ops=ops, comparators=rights):
                lefts = [left, *rights[:-1]]
                pairs = zip(lefts, ops, rights, strict=True)
                return _joined(pc.and_kleene, [self._comparison(*pair) for pair in pairs])
        value = self._value(node)
        if isinstance(value, _Constant):
            self._refuse(node, "a constant keeps every sample or none; compare it with a field")
        if value.kind not in (None, Kind.truth):
            self._refuse(node, f"{value.name} is {value.kind}; compare it, e.g. {value.example}")
        return self._used(value, Kind.truth).read

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Mask:
        if isinstance(op, ast.Is | ast.IsNot):
            return self._is_none(left, op, right)
        if isinstance(op, ast.In | ast.NotIn):
            mask = self._membership(left, right)
            return mask if isinstance(op, ast.In) else lambda rows: pc.invert(mask(rows))
        for side in (left, right):
            if isinstance(side, ast.Constant) and side.value is None:
                self._refuse(side, "None is asked for with `is None` or `is not None`")
        first, second = self._value(left), self._value(right)
        kind = self._common_kind(first, second, left, right)
        if kind is Kind.truth and not isinstance(op, ast.Eq | ast.NotEq):
            self._refuse(left, "True and False have no order; compare them with == or !=")
        kernel = _KERNELS[type(op)]
        read_first = self._reader(first, kind, other=second, node=left)
        read_second = self._reader(second, kind, other=first, node=right)
        return lambda rows: kernel(read_first(rows), read_second(rows))

    def _common_kind(
        self, first: Field | _Constant, second: Field | _Constant, left: ast.expr, right: ast.expr
    ) -> Kind:
        """What both sides are. A JSON value takes the kind of the other side."""
        if isinstance(first, _Constant) and isinstance(second, _Constant):
            self._refuse(right, "two constants are compared; one side must be a field")
        if first.kind is None and second.kind is None:
            self._refuse(right, "two JSON values are compared; one side must have a known type")
        kind = first.kind or second.kind
        assert kind is not None
        if second.kind not in (None, kind):
            both = ast.copy_location(ast.Compare(left, [], []), left)
            both.end_lineno, both.end_col_offset = right.end_lineno, right.end_col_offset
            self._refuse(
                both,
                f"{_name(first, left)} is {first.kind} and {_name(second, right)} is {second.kind}",
            )
        return kind

    def _reader(
        self, value: Field | _Constant, kind: Kind, *, other: Field | _Constant, node: ast.expr
    ) -> Mask:
        if isinstance(value, Field):
            return self._used(value, kind).read
        scalar = self._scalar(value, other, node)
        return lambda _: scalar

    def _scalar(self, constant: _Constant, other: Field | _Constant, node: ast.expr) -> pa.Scalar:
        """The constant as the column stores it; refused if the column can never hold it."""
        value = constant.value
        try:
            if isinstance(other, Field) and other.parse is not None:
                value = other.parse(value)
            if constant.kind is Kind.number:
                value = float(value)
            return pa.scalar(value, constant.kind.arrow_type)
        except (OverflowError, ValueError) as error:
            self._refuse(node, str(error))

    def _is_none(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Mask:
        if not (isinstance(right, ast.Constant) and right.value is None):
            self._refuse(right, "`is` takes None only; compare values with == or !=")
        value = self._value(left)
        if isinstance(value, _Constant):
            self._refuse(left, "only a field can be None")
        if not value.nullable:
            self._refuse(left, f"{value.name} is never None{value.empty_hint}")
        read = self._used(value, value.kind or Kind.any).read
        kernel = pc.is_null if isinstance(op, ast.Is) else pc.is_valid
        return lambda rows: kernel(read(rows))

    def _membership(self, left: ast.expr, right: ast.expr) -> Mask:
        if isinstance(right, ast.List | ast.Tuple | ast.Set):
            return self._in_list(left, right)
        needle, haystack = self._value(left), self._value(right)
        if not isinstance(haystack, Field):
            hint = ", with a comma at the end of a list of one" if haystack.kind == "text" else ""
            self._refuse(right, f"`in` takes a list, e.g. ('a', 'b'), or a text field{hint}")
        if not (isinstance(needle, _Constant) and needle.kind is Kind.text):
            self._refuse(left, f"`in {haystack.name}` looks for a text constant, e.g. 'kitchen'")
        if haystack.kind not in (None, Kind.text):
            self._refuse(right, f"{haystack.name} is {haystack.kind}, not a text to look into")
        read = self._used(haystack, Kind.text).read
        pattern = self._scalar(needle, needle, left).as_py()
        return lambda rows: pc.match_substring(read(rows), pattern)

    def _in_list(self, left: ast.expr, right: ast.List | ast.Tuple | ast.Set) -> Mask:
        value = self._value(left)
        if isinstance(value, _Constant):
            self._refuse(left, "`in` with a list takes a field on its left")
        if not right.elts:
            self._refuse(right, "the list is empty, so no sample is in it")
        members: list[pa.Scalar] = []
        kind = value.kind
        for item in right.elts:
            member = self._value(item)
            if not isinstance(member, _Constant):
                self._refuse(item, "the list after `in` holds constants only")
            kind = kind or member.kind
            if member.kind is not kind:
                self._refuse(item, f"{value.name} is compared as {kind}; this is {member.kind}")
            members.append(self._scalar(member, value, item))
        assert kind is not None
        read = self._used(value, kind).read
        value_set = pa.array([member.as_py() for member in members], kind.arrow_type)

        def mask(rows: Rows) -> pa.Array:
            values = read(rows)
            # The kernel takes a missing value for one that is not in the list.
            return pc.if_else(pc.is_valid(values), pc.is_in(values, value_set), pa.scalar(None))

        return mask

    def _value(self, node: ast.expr) -> Field | _Constant:
        match node:
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
            ) if not isinstance(value, bool):
                return _Constant(value=-value, kind=Kind.number)
            case ast.Subscript(value=ast.Name(id="extra"), slice=ast.Constant(value=str(key))):
                return json_field("extra", key)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)], keywords=[]):
                if (counted := length_field(name)) is None:
                    self._refuse(node, f"{name} has no length")
                return counted
        self._refuse(node, f"this is not supported; {SUPPORTED}")

    def _named(self, node: ast.expr, name: str) -> Field:
        if name == "extra":
            self._refuse(node, "extra is asked by name, e.g. extra['level'] >= 3")
        if name in FIELDS:
            return FIELDS[name]
        if length_field(name) is not None:
            self._refuse(node, f"{name} is a list; ask for its length, e.g. len({name}) > 0")
        known = ", ".join([*FIELDS, "extra['…']", "len(media)", "len(options)", "len(offline)"])
        self._refuse(
            node, f"unknown field {name!r}; known: {known}; a text stands in quotes: '{name}'"
        )

    def _constant(self, node: ast.expr, value: object) -> _Constant:
        if isinstance(value, bool):
            return _Constant(value=value, kind=Kind.truth)
        if isinstance(value, str):
            return _Constant(value=value, kind=Kind.text)
        if _is_number(value):
            return _Constant(value=value, kind=Kind.number)
        if value is None:
            self._refuse(node, "None is asked for with `is None` or `is not None`")
        self._refuse(node, f"this is not supported; {SUPPORTED}")

    def _used(self, value: Field, kind: Kind) -> Field:
        """`value` read as `kind`, noted for the report if samples may lack it."""
        typed = value.as_kind(kind)
        self.fields[typed.name] = typed
        return typed

    def _refuse(self, node: ast.expr, problem: str) -> NoReturn:
        part = ast.get_source_segment(self.source, node) or ""
        line = self.source.splitlines()[node.lineno - 1]
        place = self._place(node.lineno, len(line.encode()[: node.col_offset].decode()))
        raise UserError(f"data.filter={self.text!r}: {problem}, in `{part}` at {place}")

    def _place(self, line: int, column: int) -> str:
        """1-based, as an editor counts."""
        if not self.is_wrapped:
            return f"character {column + 1}"
        return f"line {line}, character {column + (0 if line == 1 else 1)}"


def _joined(join: Callable[[Any, Any], Any], masks: Sequence[Mask]) -> Mask:
    def mask(rows: Rows) -> Any:
        first, *others = masks
        result = first(rows)
        for other in others:
            result = join(result, other(rows))
        return result

    return mask


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(value: Field | _Constant, node: ast.expr) -> str:
    return value.name if isinstance(value, Field) else ast.unparse(node)
