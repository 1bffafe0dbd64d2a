"""Sums and maxima over the learner's ranks; without a process group there is one rank."""

import torch
import torch.distributed as dist
from torch import Tensor


def sum_over_ranks(value: Tensor, device: torch.device) -> Tensor:
    """The sum of every rank's `value`, on `device`; collective. `value` may be changed."""
    return _all_reduce(value, device, dist.ReduceOp.SUM)


def max_over_ranks(value: Tensor, device: torch.device) -> Tensor:
    """The element-wise maximum; collective. `value` may be changed."""
    return _all_reduce(value, device, dist.ReduceOp.MAX)


def _all_reduce(value: Tensor, device: torch.device, operation: dist.ReduceOp.RedOpType) -> Tensor:
    if dist.is_initialized():
        value = value.to(device)
        dist.all_reduce(value, op=operation)
    return value
