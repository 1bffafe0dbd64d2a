"""A set of weights on its way through memory that other processes of this machine can map.

The trainer writes a bucket, every engine's worker reads it (`weights`), and it is freed before the
next one is written: a publish never needs more than one bucket besides the weights themselves.
Imports torch alone: a trainer that hands over its weights need not load vLLM.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

BUCKET_BYTES = 1024**3
_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightEntry:
    """Where one tensor lies, or a piece of one that is larger than a bucket.

    Example:
        WeightEntry(name="model.language_model.norm.weight", dtype="float32", shape=(128,),
                    start=0, offset=4096, num_bytes=512)
    """

    name: str
    """As in the checkpoint's `state_dict`."""
    dtype: str
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    """Bytes of the tensor before this piece; they came in earlier buckets."""
    offset: int
    """Of the piece in the bucket, in bytes."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightBucket:
    """A part of a set of weights."""

    path: str
    """Readable until the next bucket is asked for."""
    entries: tuple[WeightEntry, ...]


def write_buckets(
    named_tensors: Iterable[tuple[str, torch.Tensor]],
    *,
    max_bytes: int = BUCKET_BYTES,
    write: bool = True,
) -> Iterator[WeightBucket]:
    """Copy tensors to where engines on this machine can read them, one bucket after the other.

    A bucket is freed when the next one is asked for, so ask after every engine has loaded it.

    Args:
        named_tensors: items of `state_dict()`, *including* `lm_head.weight` when it is tied:
            without a GPU vLLM keeps its own copy of it, which would stay as it was.
        max_bytes: of a bucket; a larger tensor is cut.
        write: False on a rank that only has to take part in gathering the tensors. It yields as
            many buckets, at the same tensors, but empty ones.
    """
    bucket = _OpenBucket(max_bytes, write)
    for name, tensor in named_tensors:
        num_bytes = tensor.numel() * tensor.element_size()
        if num_bytes > bucket.room and num_bytes <= max_bytes:
            yield from bucket.hand_out()
        flat = _flat_bytes(tensor) if write else None
        start = 0
        while start < num_bytes:
            if bucket.room <= 0:
                yield from bucket.hand_out()
            stop = min(num_bytes, start + bucket.room)
            bucket.add(name, tensor, start, stop, flat)
            start = stop
    yield from bucket.hand_out()


def read_bucket(bucket: WeightBucket) -> Iterator[tuple[WeightEntry, torch.Tensor]]:
    """The pieces in a bucket as uint8 views of the writer's memory, which they keep alive."""
    size = os.stat(bucket.path).st_size
    memory = torch.from_file(bucket.path, shared=True, size=size, dtype=torch.uint8)
    for entry in bucket.entries:
        yield entry, memory[entry.offset : entry.offset + entry.num_bytes]


@dataclass(slots=True)
class TensorAssembly:
    """Makes tensors from the pieces in successive buckets."""

    _unfinished: dict[str, torch.Tensor] = field(default_factory=dict)

    def tensors(self, bucket: WeightBucket) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that are complete with this bucket; uncut ones are views of it."""
        for entry, piece in read_bucket(bucket):
            dtype = getattr(torch, entry.dtype)
            num_bytes = torch.Size(entry.shape).numel() * dtype.itemsize
            if entry.num_bytes < num_bytes:
                if entry.start == 0:
                    self._unfinished[entry.name] = torch.empty(num_bytes, dtype=torch.uint8)
                whole = self._unfinished[entry.name]
                whole[entry.start : entry.start + entry.num_bytes] = piece
                if entry.start + entry.num_bytes < num_bytes:
                    continue
                piece = self._unfinished.pop(entry.name)
            yield entry.name, piece.view(dtype).view(entry.shape)


class _OpenBucket:
    """The bucket being filled."""

    def __init__(self, max_bytes: int, write: bool):
        self._max_bytes = max_bytes
        self._write = write
        self._begin()

    def _begin(self) -> None:
        self._entries: list[WeightEntry] = []
        self._descriptor: int | None = None
        self._size = 0

    @property
    def room(self) -> int:
        """Bytes that still fit."""
        return self._max_bytes - self._size

    def add(
        self, name: str, tensor: torch.Tensor, start: int, stop: int, flat: memoryview | None
    ) -> None:
        if flat is not None:
            if self._descriptor is None:
                # Without a name it needs no /dev/shm (64 MB in many containers), and it is gone
                # with this process, however it ends.
                self._descriptor = os.memfd_create("evr-weights")
            _write_at(self._descriptor, flat[start:stop], self._size)
        self._entries.append(
            WeightEntry(
                name=name,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                start=start,
                offset=self._size,
                num_bytes=stop - start,
            )
        )
        self._size += -(-(stop - start) // _ALIGNMENT) * _ALIGNMENT

    def hand_out(self) -> Iterator[WeightBucket]:
        """Yield what is in it, if anything, then free it and begin the next."""
        if not self._entries:
            return
        path, entries = "", self._entries if self._write else []
        if self._descriptor is not None:
            os.truncate(self._descriptor, self._size)
            path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        try:
            yield WeightBucket(path=path, entries=tuple(entries))
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._begin()


def _flat_bytes(tensor: torch.Tensor) -> memoryview:
    return tensor.detach().contiguous().reshape(-1).cpu().view(torch.uint8).numpy().data


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)
