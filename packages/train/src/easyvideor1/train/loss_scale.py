"""By how much each token's loss enters an optimizer step, over all micro-batches and ranks.

A step is one sum divided by one number (`aggregation`); CHORD's is two of them, one over sampled
tokens and one over offline ones, weighed against each other. Called by `learner.RankLearner`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from easyvideor1.schema.records import Source
from easyvideor1.train.aggregation import denominator_part, token_shares
from easyvideor1.train.algorithm_config import Aggregation, AlgorithmConfig, OfflineTreatment
from easyvideor1.train.batches import Batch
from easyvideor1.train.interfaces import Objective, TrainExample
from easyvideor1.train.offline_objectives import imitation_share
from easyvideor1.train.tally import Tally
from easyvideor1.train.token_tree import loss_weights

# Legend: T tokens of a micro-batch, or of all of a rank's examples.


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A sum over tokens with a denominator of its own."""

    aggregation: Aggregation
    factor: float = 1.0
    """Its share in the step."""
    offline: bool | None = None
    """Whether it is over offline tokens or over sampled ones; None for all."""

    def weights(self, weights_T: Tensor, is_offline_T: Tensor) -> Tensor:
        """[T] the weights of its own tokens, 0 elsewhere."""
        if self.offline is None:
            return weights_T
        return weights_T.masked_fill(is_offline_T != self.offline, 0.0)


def parts_of(objective: Objective, algorithm: AlgorithmConfig, num_updates: int) -> list[Part]:
    """The sums that a step is made of.

    Args:
        objective: the algorithm's, or imitation of every example (`sft`).
        algorithm: what is optimised.
        num_updates: optimizer updates done before, which CHORD's schedule follows.
    """
    if objective == "sft":
        return [Part(aggregation=Aggregation.token_mean)]
    if algorithm.offline.treatment is not OfflineTreatment.chord:
        return [Part(aggregation=algorithm.aggregation)]
    mu = imitation_share(num_updates, algorithm.offline)
    return [
        Part(aggregation=algorithm.aggregation, factor=1 - mu, offline=False),
        Part(aggregation=Aggregation.token_mean, factor=mu, offline=True),
    ]


class LossScale:
    """The sums of a step with their denominators over all ranks."""

    def __init__(self, parts: Sequence[Part], denominators: Sequence[float]):
        self._parts = list(zip(parts, denominators, strict=True))

    def shares(self, batch: Batch) -> Tensor:
        """[T] what the loss of each token is multiplied by; the step's loss is then a sum."""
        shares_T = torch.zeros_like(batch.weights)
        for part, denominator in self._parts:
            if denominator > 0:
                weights_T = part.weights(batch.weights, batch.is_offline)
                own_T = token_shares(weights_T, batch.examples, part.aggregation)
                shares_T = shares_T + own_T * part.factor / denominator
        return shares_T

    def count(self, tally: Tally) -> None:
        """Tells the share of imitation, where there is one."""
        for part, _ in self._parts:
            if part.offline:
                tally.add_max("imitation_share", torch.tensor([part.factor]))


def scale_of(
    parts: Sequence[Part],
    examples: Sequence[TrainExample],
    constant_length: int | None,
    sum_over_ranks: Callable[[Tensor], Tensor],
) -> LossScale | None:
    """The scale of a step; every rank calls it.

    Args:
        parts: of the step.
        examples: this rank's.
        constant_length: of `aggregation=constant`.
        sum_over_ranks: adds up a tensor.

    Returns:
        None where no rank has an example.

    Raises:
        ValueError: if all weights are 0.
    """
    weights = [loss_weights(example.completion, example.token_weights) for example in examples]
    lengths = torch.tensor([len(w) for w in weights], dtype=torch.long)
    sequences_T = torch.arange(len(examples)).repeat_interleave(lengths)
    weights_T = torch.cat([*weights, torch.zeros(0)]).double()
    from_elsewhere = [example.completion.source is Source.offline for example in examples]
    is_offline_T = torch.tensor(from_elsewhere, dtype=torch.bool).repeat_interleave(lengths)
    own = [
        denominator_part(
            part.weights(weights_T, is_offline_T), sequences_T, part.aggregation, constant_length
        )
        for part in parts
    ]
    counts = torch.stack([*own, torch.tensor(len(examples), dtype=torch.float64)])
    *denominators, num_examples = sum_over_ranks(counts).tolist()
    if not num_examples:
        return None
    if max(denominators) <= 0:
        raise ValueError("nothing to train on: the token weights of this step sum to 0")
    return LossScale(parts, denominators)
