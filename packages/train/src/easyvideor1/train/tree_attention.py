"""Attention in which many answers share one prompt, as an attention function of transformers.

Each token attends to what precedes it in its own segment, and a token of a branch to the whole root
of its tree besides: two calls of a kernel, merged by their log-sum-exp (the cascade of Hydragen,
arXiv 2402.05099, with a backward). No mask is ever made. `PolicyModel` hands the shape of the batch
through the model's keyword arguments.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from easyvideor1.train.attention_kernels import Attended, kernel_for
from easyvideor1.train.tree_shape import TreeShape

# Legend: H query heads, K key heads, L tokens of the packed sequence, D dimensions of a head.

TREE_ATTENTION = "token_tree"
"""Name under which transformers knows it; one with `flash` in it would get that package's rules."""


class TreeAttention(torch.autograd.Function):
    """softmax(scale · q kᵀ) v over the keys that a token may see in its tree."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, shape: TreeShape, scale: float
    ) -> Tensor:
        """[H, L, D] from query [H, L, D], key and value [K, L, D]."""
        kernel = kernel_for(query.device, query.dtype)
        lengths = shape.segments
        attended = kernel.forward(query, key, value, lengths, lengths, causal=True, scale=scale)
        if shape.branches:
            branches, prefixes = slices(shape)
            to_root = kernel.forward(
                query[:, branches],
                key[:, prefixes],
                value[:, prefixes],
                shape.continuations,
                shape.prefixes,
                causal=False,
                scale=scale,
            )
            _merge_into(attended, to_root, branches)
        ctx.save_for_backward(query, key, value, *attended)
        ctx.shape, ctx.scale, ctx.kernel = shape, scale, kernel
        return attended.output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Each call's gradients by the output and log-sum-exp of the merged softmax.

        With them a score's weight is its share of the whole, exp(score − log-sum-exp), so that the
        gradients of the two calls add up to those of one softmax.
        """
        query, key, value, output, logsumexp = ctx.saved_tensors
        shape: TreeShape = ctx.shape
        (grad,) = grads
        lengths = shape.segments
        d_query, d_key, d_value = ctx.kernel.backward(
            grad, query, key, value, Attended(output, logsumexp), lengths, lengths,
            causal=True, scale=ctx.scale,
        )  # fmt: skip
        if shape.branches:
            branches, prefixes = slices(shape)
            d_query_2, d_key_2, d_value_2 = ctx.kernel.backward(
                grad[:, branches], query[:, branches], key[:, prefixes], value[:, prefixes],
                Attended(output[:, branches], logsumexp[:, branches]),
                shape.continuations, shape.prefixes, causal=False, scale=ctx.scale,
            )  # fmt: skip
            d_query[:, branches] += d_query_2
            d_key[:, prefixes] += d_key_2
            d_value[:, prefixes] += d_value_2
        return d_query, d_key, d_value, None, None


def slices(shape: TreeShape) -> tuple[slice, slice]:
    """Where all branches lie, and the roots that they continue."""
    return slice(shape.num_root_tokens, None), slice(0, shape.num_prefix_tokens)


def _merge_into(attended: Attended, other: Attended, where: slice) -> None:
    """Let the queries at `where` attend to the other call's keys as well, in place."""
    output, logsumexp = attended.output[:, where], attended.logsumexp[:, where]
    both = torch.logaddexp(logsumexp, other.logsumexp)
    merged = output * (logsumexp - both).exp()[..., None]
    merged += other.output * (other.logsumexp - both).exp()[..., None]
    output.copy_(merged)
    logsumexp.copy_(both)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    tree: TreeShape,
    **_: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers: [1, L, H, D] from query [1, H, L, D] and so on."""
    output = TreeAttention.apply(query[0], key[0], value[0], tree, scaling)
    return output.transpose(0, 1)[None], None


def _no_mask(*_: Any, **__: Any) -> None:
    """What to see is in the shape of the tree."""


def register() -> None:
    """Make it known to transformers."""
    AttentionInterface.register(TREE_ATTENTION, tree_attention)
    AttentionMaskInterface.register(TREE_ATTENTION, _no_mask)
