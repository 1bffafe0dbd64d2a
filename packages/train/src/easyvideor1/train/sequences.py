"""Sums and means over the tokens of each completion, told back to every one of its tokens.

For objectives, aggregation and correction. Tokens of all completions of a micro-batch lie one after
another; `sequences_T` says whose each one is. A completion lies in one micro-batch as a whole, so
that none of these depends on how a batch is cut.
"""

import torch
from torch import Tensor

# Legend: T tokens, of all completions of a micro-batch; S completions.


def sequence_sum(values_T: Tensor, sequences_T: Tensor) -> Tensor:
    """Sum over the completion of each token.

    Args:
        values_T: [T] a number per token.
        sequences_T: [T] index of each token's completion; any integers do.

    Returns:
        [T] of `values_T`'s type.
    """
    index_S, place_T = sequences_T.unique(return_inverse=True)
    sums_S = values_T.new_zeros(len(index_S)).index_add(0, place_T, values_T)
    return sums_S[place_T]


def sequence_mean(values_T: Tensor, sequences_T: Tensor, counted_T: Tensor) -> Tensor:
    """Mean over those tokens of each token's completion that count, each as much as the others.

    Args:
        values_T: [T] a number per token; where it does not count it may be anything, even NaN.
        sequences_T: [T] index of each token's completion.
        counted_T: [T] bool, which tokens the mean is over.

    Returns:
        [T] of `values_T`'s type; 0 for completions of which no token counts.
    """
    sums_T = sequence_sum(values_T.masked_fill(~counted_T, 0.0), sequences_T)
    return sums_T / sequence_sum(counted_T.to(values_T.dtype), sequences_T).clamp(min=1.0)


def count_sequences(sequences_T: Tensor, counted_T: Tensor) -> Tensor:
    """Number of completions of which at least one token counts; a scalar integer tensor."""
    return torch.tensor(len(sequences_T[counted_T].unique()), device=sequences_T.device)
