"""Random completions as the loss sees them: tokens one after another, in float64."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

LENGTHS = (5, 1, 9, 3, 7, 2, 4, 6, 8, 3, 1, 5)


@dataclass(frozen=True, kw_only=True)
class FlatTokens:
    """T tokens of some completions. Some do not count; of some the engine told no log-prob."""

    logprobs_T: Tensor
    old_logprobs_T: Tensor
    engine_logprobs_T: Tensor
    reference_logprobs_T: Tensor
    advantages_T: Tensor
    sequences_T: Tensor
    weights_T: Tensor

    def of(self, sequences: Sequence[int]) -> "FlatTokens":
        """The tokens of these completions alone, completion after completion."""
        places = torch.cat([(self.sequences_T == index).nonzero()[:, 0] for index in sequences])
        return FlatTokens(**{name: values[places] for name, values in vars(self).items()})

    def micro_batches(self, size: int, rank: int = 0, num_ranks: int = 1) -> Iterator["FlatTokens"]:
        """The completions of a rank, so many at a time."""
        own = self.sequences_T.unique().tolist()[rank::num_ranks]
        for start in range(0, len(own), size):
            yield self.of(own[start : start + size])

    def trained(self) -> "FlatTokens":
        """The same with log-probs that collect a gradient."""
        return replace(self, logprobs_T=self.logprobs_T.detach().clone().requires_grad_())


def draw(
    seed: int = 0,
    lengths: Sequence[int] = LENGTHS,
    *,
    spread: float = 0.3,
    dtype: torch.dtype = torch.float64,
) -> FlatTokens:
    """Completions of these lengths, whose policies differ by about `spread` at a token.

    Advantages are the same within a completion. Every seventh token does not count and every
    fifth has a weight of its own; of the second completion no token counts.
    """
    generator = torch.Generator().manual_seed(seed)
    total = sum(lengths)

    def normal(size: int = total) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    sequences_T = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    old_T = -normal().abs() - 0.1
    weights_T = torch.ones(total, dtype=torch.float64)
    weights_T[::5] = 0.5
    weights_T[::7] = 0.0
    weights_T[sequences_T == 1] = 0.0
    engine_T = old_T + spread * normal()
    engine_T[::11] = torch.nan
    engine_T[sequences_T == 3] = torch.nan
    floats = {
        "logprobs_T": old_T + spread * normal(),
        "old_logprobs_T": old_T,
        "engine_logprobs_T": engine_T,
        "reference_logprobs_T": old_T + spread * normal(),
        "advantages_T": normal(len(lengths))[sequences_T],
        "weights_T": weights_T,
    }
    return FlatTokens(
        sequences_T=sequences_T, **{name: value.to(dtype) for name, value in floats.items()}
    )
