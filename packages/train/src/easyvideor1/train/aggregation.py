"""How the losses of tokens become one number, exactly, however the batch is cut.

The loss of a step is a sum over all tokens of all micro-batches of all ranks, divided by one number
that they add up to as well: `sum token_shares * loss / sum denominator_part`. No micro-batch and no
rank divides by anything of its own, so neither their sizes nor their number can matter; only a
completion must lie in one micro-batch as a whole.
"""

import torch
from torch import Tensor

from easyvideor1.train.algorithm_config import Aggregation
from easyvideor1.train.sequences import count_sequences, sequence_sum

# Legend: T tokens, of all completions of a micro-batch, one after another.


def token_shares(weights_T: Tensor, sequences_T: Tensor, aggregation: Aggregation) -> Tensor:
    """By how much the loss of each token enters the sum over the step.

    With weights w, |o_i| the sum of the weights of completion i, N completions and a constant L:

    - `token_mean`: w, for sum w l / sum w. Source: DAPO, arXiv 2503.14476, section
      3.3.
    - `sequence_mean`: w / |o_i|, for 1/N sum_i 1/|o_i| sum_t w l. Source: GRPO, arXiv 2402.03300,
      equation 3; GSPO, arXiv 2507.18071, equation 5, whose loss is the same at all tokens of a
      completion and therefore its own mean.
    - `constant`: w, for 1/(N L) sum w l. Source: Dr. GRPO, arXiv 2503.20783, whose L is the budget
      of tokens to generate.

    Args:
        weights_T: [T] weight of each token, not negative; 0 where it does not count.
        sequences_T: [T] index of each token's completion.
        aggregation: which of them.

    Returns:
        [T] without gradient, 0 where the weight is 0.
    """
    weights_T = weights_T.detach()
    if aggregation is not Aggregation.sequence_mean:
        return weights_T
    totals_T = sequence_sum(weights_T, sequences_T)
    return weights_T / totals_T.masked_fill(totals_T == 0, 1.0)


def denominator_part(
    weights_T: Tensor, sequences_T: Tensor, aggregation: Aggregation, constant_length: int | None
) -> Tensor:
    """What a micro-batch adds to the number that the step's sum is divided by.

    `token_mean`: its weights; `sequence_mean`: its completions; `constant`: its completions times
    the constant. A completion of which no token counts is not one of them.

    Args:
        weights_T: [T] weight of each token, not negative.
        sequences_T: [T] index of each token's completion, each in one micro-batch alone.
        aggregation: which of them.
        constant_length: L of `constant`, in tokens; the others do without.

    Returns:
        Scalar in float64, in which counts of tokens stay exact when added up.
    """
    if aggregation is Aggregation.token_mean:
        return weights_T.detach().sum(dtype=torch.float64)
    num_sequences = count_sequences(sequences_T, weights_T > 0).double()
    if aggregation is Aggregation.sequence_mean:
        return num_sequences
    assert constant_length is not None, "aggregation=constant needs a length"
    return num_sequences * constant_length
