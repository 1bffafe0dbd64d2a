"""How much memory an update takes: what its backward pass needs, and the peak of the process.

Called by `learner.RankLearner`.
"""

import resource
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

KILOBYTE = 1024
"""Linux's unit of ru_maxrss."""


class ActivationMeter:
    """Counts what autograd saves for the backward pass, without the weights."""

    def __init__(self) -> None:
        self._bytes_by_storage: dict[int, int] = {}

    @property
    def num_bytes(self) -> int:
        """Of all storages that were saved while measuring, each once."""
        return sum(self._bytes_by_storage.values())

    @contextmanager
    def measure(self) -> Generator[None]:
        """Counts the forward passes inside. Layers that recompute count with their inputs alone.

        Measure one backward pass only: a freed storage's address may be given out again.
        """
        with saved_tensors_hooks(self._count, lambda saved: saved):
            yield

    def _count(self, saved: Tensor) -> Tensor:
        if not isinstance(saved, nn.Parameter) and not isinstance(saved._base, nn.Parameter):
            storage = saved.untyped_storage()
            self._bytes_by_storage[storage.data_ptr()] = storage.nbytes()
        # An output that kept its own history would keep itself alive.
        return saved.detach()


def reset_peak(device: torch.device) -> None:
    """Begin a new peak, where the device counts one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Peak of the tensors on a GPU since `reset_peak`; on a CPU the process's peak in memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KILOBYTE
