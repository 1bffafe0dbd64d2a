"""A set of weights in memory that other processes of this machine can map.

The trainer writes it, an engine's worker reads it (`weights`). Imports torch alone: a trainer that
hands over its weights need not load vLLM.
"""

import functools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightEntry:
    """Where one tensor lies.

    Example:
        WeightEntry(name="model.language_model.norm.weight", dtype="float32", shape=(128,),
                    offset=4096, num_bytes=512)
    """

    name: str
    """As in the checkpoint's `state_dict`."""
    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightManifest:
    """One complete set of weights in memory that other processes of this machine can map."""

    path: str
    """Readable while the process that wrote it lives."""
    entries: tuple[WeightEntry, ...]
    version: int
    """Stamped on every completion sampled with these weights; grows with each publish."""


@functools.cache
def _memory_file() -> int:
    """A file in memory without a name: it needs no /dev/shm (64 MB in many containers) and is
    gone with this process, however it ends.
    """
    return os.memfd_create("evr-weights")


def write_manifest(
    named_tensors: Iterable[tuple[str, torch.Tensor]], version: int
) -> WeightManifest:
    """Copy tensors to where an engine on this machine can read them.

    The memory is reused: a manifest is valid until the next call in this process, so call again
    only after the publish of the last one has returned.

    Args:
        named_tensors: all of `state_dict()`, *including* `lm_head.weight` when it is tied: without
            a GPU vLLM keeps its own copy of it, which would stay as it was.
        version: above that of the last publish.
    """
    descriptor, offset = _memory_file(), 0
    entries: list[WeightEntry] = []
    for name, tensor in named_tensors:
        flat = tensor.detach().contiguous().reshape(-1).cpu().view(torch.uint8).numpy()
        _write_at(descriptor, flat.data, offset)
        entries.append(
            WeightEntry(
                name=name,
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                offset=offset,
                num_bytes=flat.nbytes,
            )
        )
        offset += -(-flat.nbytes // _ALIGNMENT) * _ALIGNMENT
    os.truncate(descriptor, offset)
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    return WeightManifest(path=path, entries=tuple(entries), version=version)


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def read_manifest(path: str, entries: Iterable[WeightEntry]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors behind a manifest, as views of the writer's memory."""
    memory = torch.from_file(path, shared=True, size=os.stat(path).st_size, dtype=torch.uint8)
    for entry in entries:
        raw = memory[entry.offset : entry.offset + entry.num_bytes]
        yield entry.name, raw.view(getattr(torch, entry.dtype)).view(entry.shape)
