"""Weights cross in buckets of bounded size, unchanged, and nothing of a bucket outlives it."""

import os

import pytest
import torch

from easyvideor1.evaluate.weight_buckets import TensorAssembly, write_buckets
from tests.memory_files import memory_files

KIB = 1024


def some_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    return {
        "embedding": random(100, 64),  # 25 KiB
        "norm": random(7),
        "half": random(33, 3).bfloat16(),
        "transposed": random(40, 20).T,
        "scalar": random(),
        "large": random(50, 80),  # 16 KiB
        "last": random(3, 5),
    }


def open_buckets() -> list[int]:
    """Sizes of the buckets that this process holds open."""
    return [size for name, size in memory_files().items() if "evr-weights" in name]


@pytest.mark.parametrize("max_bytes", [4 * KIB, 20 * KIB, 1024 * KIB])
def test_tensors_arrive_unchanged_in_buckets_of_bounded_size(max_bytes):
    weights = some_weights()
    assembly, arrived, sizes = TensorAssembly(), {}, []
    for bucket in write_buckets(weights.items(), max_bytes=max_bytes):
        sizes.append(os.stat(bucket.path).st_size)
        assert open_buckets() == sizes[-1:]
        arrived |= {name: value.clone() for name, value in assembly.tensors(bucket)}
    assert list(arrived) == list(weights)
    for name, value in weights.items():
        assert arrived[name].dtype == value.dtype and torch.equal(arrived[name], value)
    assert max(sizes) <= max_bytes
    total = sum(value.numel() * value.element_size() for value in weights.values())
    assert len(sizes) >= total // max_bytes
    assert not open_buckets()


def test_a_tensor_is_cut_only_if_it_is_larger_than_a_bucket():
    pieces: dict[str, int] = {}
    for bucket in write_buckets(some_weights().items(), max_bytes=20 * KIB):
        for entry in bucket.entries:
            pieces[entry.name] = pieces.get(entry.name, 0) + 1
    assert {name for name, count in pieces.items() if count > 1} == {"embedding"}


def test_a_view_of_a_bucket_keeps_its_values_after_the_bucket_is_freed():
    """A fused layer whose parts come in two buckets is loaded with the second."""
    weights = some_weights()
    assembly = TensorAssembly()
    views = {
        name: value
        for bucket in write_buckets(weights.items(), max_bytes=4 * KIB)
        for name, value in assembly.tensors(bucket)
    }
    assert all(torch.equal(views[name], weights[name]) for name in weights)


def test_ranks_that_only_gather_cut_at_the_same_tensors():
    weights = some_weights()

    def tensors_asked_for(write: bool) -> list[int]:
        asked: list[str] = []

        def items():
            for item in weights.items():
                asked.append(item[0])
                yield item

        buckets = write_buckets(items(), max_bytes=4 * KIB, write=write)
        return [len(asked) for _ in buckets]

    assert tensors_asked_for(write=True) == tensors_asked_for(write=False)
    assert len(tensors_asked_for(write=True)) > 3
