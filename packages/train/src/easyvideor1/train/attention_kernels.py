"""Attention over ragged sequences that also tells its log-sum-exp, forward and backward.

What `tree_attention` is written over. Both kernels are PyTorch's own flash attention: on a CPU one
call per sequence, on a GPU one for all (varlen). Their backward takes output and log-sum-exp as
arguments, so that a part of a larger softmax gets its gradients from those of the whole.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError

# Legend: H query heads, K key heads (a divisor of H), T tokens, D dimensions of a head.

Lengths = tuple[int, ...]
"""Of the sequences that lie one after another in a tensor, in tokens."""

HALF = (torch.bfloat16, torch.float16)


class Attended(NamedTuple):
    """What a query reads, and what its softmax was divided by."""

    output: Tensor
    """[H, T, D]"""
    logsumexp: Tensor
    """[H, T] of the scaled scores, in float32 or better."""


class AttentionKernel(Protocol):
    """Attention of the queries of each sequence to its own keys.

    All calls take the scaled scores' `scale`, and `causal` for sequences whose queries and keys
    are the same tokens.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """Of query [H, T, D] to key and value [K, T', D]."""
        ...

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attended: Attended,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value, given that of the output.

        Args:
            grad: [H, T, D].
            query: as in `forward`, and so on.
            attended: of the whole softmax that these keys are a part of.
        """
        ...


class CpuKernel:
    """Flash attention of PyTorch on a CPU."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """See `AttentionKernel`."""
        outputs, sums = [], []
        for queries, keys in _spans(query_lengths, key_lengths):
            output, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                query[None, :, queries], key[None, :, keys], value[None, :, keys],
                0.0, causal, scale=scale,
            )  # fmt: skip
            outputs.append(output[0])
            sums.append(logsumexp[0])
        return Attended(torch.cat(outputs, 1), torch.cat(sums, 1))

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attended: Attended,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `AttentionKernel`."""
        gradients = [
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad[None, :, queries], query[None, :, queries], key[None, :, keys],
                value[None, :, keys], attended.output[None, :, queries],
                attended.logsumexp[None, :, queries], 0.0, causal, scale=scale,
            )
            for queries, keys in _spans(query_lengths, key_lengths)
        ]  # fmt: skip
        d_query, d_key, d_value = (torch.cat(parts, 2)[0] for parts in zip(*gradients, strict=True))
        return d_query, d_key, d_value


class GpuKernel:
    """Flash attention of PyTorch on a GPU, over all sequences at once; in bfloat16 or float16."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """See `AttentionKernel`."""
        output, logsumexp, *_ = torch.ops.aten._flash_attention_forward(
            query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1),
            _starts(query_lengths, query.device), _starts(key_lengths, query.device),
            max(query_lengths), max(key_lengths), 0.0, causal, False, scale=scale,
        )  # fmt: skip
        return Attended(output.transpose(0, 1), logsumexp)

    def backward(
        self,
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attended: Attended,
        query_lengths: Lengths,
        key_lengths: Lengths,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `AttentionKernel`."""
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=query.device)
        gradients = torch.ops.aten._flash_attention_backward(
            grad.transpose(0, 1), query.transpose(0, 1), key.transpose(0, 1),
            value.transpose(0, 1), attended.output.transpose(0, 1).contiguous(),
            attended.logsumexp.contiguous(),
            _starts(query_lengths, query.device), _starts(key_lengths, query.device),
            max(query_lengths), max(key_lengths), 0.0, causal, no_dropout, no_dropout[:0],
            scale=scale,
        )  # fmt: skip
        d_query, d_key, d_value = (part.transpose(0, 1) for part in gradients)
        return d_query, d_key, d_value


def kernel_for(device: torch.device, dtype: torch.dtype) -> AttentionKernel:
    """The kernel that computes on `device` in `dtype`.

    Raises:
        UserError: on a GPU, for a dtype that its flash attention does not compute in.
    """
    if device.type == "cpu":
        return CpuKernel()
    if dtype not in HALF:
        raise UserError(
            f"learner.layout packs sequences, which a GPU computes in bfloat16, not in "
            f"{str(dtype).removeprefix('torch.')}; set model.dtype=bfloat16, or "
            "learner.layout=padded"
        )
    return GpuKernel()


def _spans(query_lengths: Lengths, key_lengths: Lengths) -> Iterator[tuple[slice, slice]]:
    """Where each sequence lies among the queries and among the keys."""
    query_stops, key_stops = accumulate(query_lengths), accumulate(key_lengths)
    for length, stop, key_length, key_stop in zip(
        query_lengths, query_stops, key_lengths, key_stops, strict=True
    ):
        yield slice(stop - length, stop), slice(key_stop - key_length, key_stop)


@lru_cache(maxsize=64)  # each layer asks for the same ones
def _starts(lengths: Lengths, device: torch.device) -> Tensor:
    """[sequences + 1] where each begins, and where the last ends."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
