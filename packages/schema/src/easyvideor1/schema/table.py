"""Samples behind a sequence: rows of memory-mapped Arrow files that become records when asked for.

Opening costs no parsing and no memory; a pickled table carries paths, not rows. Made by
`schema.readers`.
"""

import bisect
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa

from easyvideor1.schema.arrow import check_schema, from_row
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.formats import EXTRACTED
from easyvideor1.schema.records import Media, ProblemType, Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One Arrow file of samples and how its media paths are meant."""

    arrow_path: Path
    media_root: Path
    """Relative media paths start here."""
    source: Path
    """The file that the user named, for messages."""


class SampleTable(Sequence[Sample]):
    """A read-only sequence of samples; slices and selections share the mapped files.

    Attributes:
        skipped: the bad rows that `on_bad_row="skip"` left out.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        rows: Sequence[int] | None = None,
        skipped: Sequence[DataError] = (),
    ):
        self._parts = tuple(parts)
        self._batches: list[tuple[Part, pa.RecordBatch]] = [
            (part, batch) for part in self._parts for batch in _map_batches(part)
        ]
        sizes = (batch.num_rows for _, batch in self._batches)
        self._ends = list(itertools.accumulate(sizes))
        count = self._ends[-1] if self._ends else 0
        self._rows: Sequence[int] = range(count) if rows is None else rows
        self.skipped = list(skipped)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> "SampleTable": ...
    def __getitem__(self, index: int | slice) -> "Sample | SampleTable":
        if isinstance(index, slice):
            return self._view(self._rows[index])
        return self._sample(self._rows[index])

    def __iter__(self) -> Iterator[Sample]:
        for row in self._rows:
            yield self._sample(row)

    def __reduce__(self):
        """Send the paths; the other process maps the files itself."""
        return _reopen, (self._parts, self._rows, self.skipped)

    def __repr__(self) -> str:
        files = ", ".join(str(part.source) for part in self._parts)
        return f"SampleTable({len(self)} samples of {files}; {len(self.skipped)} rows skipped)"

    def select(self, indices: Iterable[int]) -> "SampleTable":
        """The samples at `indices`, in that order."""
        return self._view(array("q", (self._rows[index] for index in indices)))

    def compute(self, columns_of: Callable[[pa.RecordBatch], dict[str, pa.Array]]) -> pa.Table:
        """Columns worked out from the rows of all samples, without building the records.

        Args:
            columns_of: from a batch of rows to columns of as many values.
        """
        batches = [pa.RecordBatch.from_pydict(columns_of(batch)) for _, batch in self._batches]
        return pa.Table.from_batches(batches).take(pa.array(self._rows, pa.int64()))

    @property
    def ids(self) -> list[str]:
        """Ids of all samples, without building the records."""
        ids = self._id_column()
        return ids.take(pa.array(self._rows, pa.int64())).to_pylist()

    def shared_id(self) -> tuple[str, list[Path]] | None:
        """An id that stands for several rows of the files, and the files that hold it."""
        ids = self._id_column()
        if len(ids.unique()) == len(ids):
            return None
        shared, _ = Counter(ids.to_pylist()).most_common(1)[0]
        holders = [
            part.source for part, batch in self._batches if shared in batch.column("id").to_pylist()
        ]
        return shared, list(dict.fromkeys(holders))

    def _id_column(self) -> pa.ChunkedArray:
        return pa.chunked_array([batch.column("id") for _, batch in self._batches], pa.string())

    def _view(self, rows: Sequence[int]) -> "SampleTable":
        view = object.__new__(SampleTable)
        view._parts, view._batches, view._ends = self._parts, self._batches, self._ends
        view._rows, view.skipped = rows, self.skipped
        return view

    def _sample(self, row: int) -> Sample:
        index = bisect.bisect_right(self._ends, row)
        part, batch = self._batches[index]
        first = self._ends[index] - batch.num_rows
        sample = from_row(Sample, batch.slice(row - first, 1).to_pylist()[0])
        return replace(sample, media=tuple(_located(medium, part) for medium in sample.media))


def problem_types_of(samples: Sequence[Sample]) -> set[ProblemType]:
    """Types of all samples; of a table, without building the records."""
    if not isinstance(samples, SampleTable):
        return {sample.problem_type for sample in samples}
    types = samples.compute(lambda batch: {"problem_type": batch.column("problem_type")})
    return {ProblemType(name) for name in types.column("problem_type").unique().to_pylist()}


def values_of(samples: Sequence[Sample], field: Literal["source", "pass_rate"]) -> list[Any]:
    """A field of all samples; of a table, without building the records."""
    if not isinstance(samples, SampleTable):
        return [getattr(sample, field) for sample in samples]
    return samples.compute(lambda batch: {field: batch.column(field)})[field].to_pylist()


def _reopen(parts: Sequence[Part], rows: Sequence[int], skipped: list[DataError]) -> SampleTable:
    return SampleTable(parts, rows=rows, skipped=skipped)


def _map_batches(part: Part) -> list[pa.RecordBatch]:
    """Batches of one file; their buffers are pages of the mapped file."""
    try:
        with pa.memory_map(str(part.arrow_path)) as source:
            reader = pa.ipc.open_file(source)
            check_schema(reader.schema, Sample, part.source)
            return [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (pa.ArrowInvalid, OSError) as error:
        way_out = "restore it"
        if part.arrow_path != part.source:
            folder = part.arrow_path.parent
            way_out = f"it is a conversion of {part.source}: delete {folder}, and it is made anew"
        raise UserError(
            f"{part.arrow_path} is no whole Arrow IPC file ({error}); {way_out}"
        ) from None


def _located(medium: Media, part: Part) -> Media:
    """`medium` with absolute paths, or paths relative to where a relative root is relative to."""
    return replace(
        medium,
        path=_locate(medium.path, part) if medium.path else "",
        frames=tuple(_locate(frame, part) for frame in medium.frames),
    )


def _locate(path: str, part: Part) -> str:
    if path.startswith(EXTRACTED):
        return str(part.arrow_path.parent / path.removeprefix(EXTRACTED))
    return str(part.media_root / path)
