"""From the examples of a rank to its micro-batches, and back to a number per token.

Every rank yields equally many micro-batches, since all of them meet inside the model's forward.
Called by `learner.RankLearner`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from easyvideor1.train.aggregation import denominator_part
from easyvideor1.train.algorithm_config import Aggregation
from easyvideor1.train.collectives import max_over_ranks, sum_over_ranks
from easyvideor1.train.failures import at_samples
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.token_tree import (
    Batch,
    ClipLoader,
    build_trees,
    idle_forest,
    loss_weights,
    pack,
    to_batch,
)

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter


def micro_batches(
    examples: Sequence[TrainExample],
    clips: ClipLoader,
    family: "FamilyAdapter",
    *,
    max_tokens: int,
    device: torch.device,
) -> Iterator[Batch]:
    """Micro-batches on `device`; a rank without work left gets idle ones until all are done.

    Args:
        examples: this rank's share.
        clips: of their samples.
        family: builds the model's inputs.
        max_tokens: of a micro-batch, padding included.
        device: of this rank.
    """
    pad = family.eos_token_ids[0]
    forests = pack(build_trees(examples, family, clips), max_tokens)
    while True:
        forest = next(forests, None)
        busy = max_over_ranks(torch.tensor(float(forest is not None)), device)
        if not busy.item():
            return
        yield to_batch(forest or idle_forest(pad), pad).to(device)


@torch.no_grad()
def per_token(
    examples: Sequence[TrainExample],
    batches: Iterable[Batch],
    values_of: Callable[[Batch], Tensor],
) -> list[list[float]]:
    """What `values_of` gives for the [N] targets of each batch, put back to their examples.

    Returns:
        Per example [L], 0 on tokens that no policy chose.
    """
    found: list[list[float]] = [[] for _ in examples]
    for batch in batches:
        with at_samples(batch.sample_ids):
            values = values_of(batch).tolist()
        for index, value in zip(batch.examples.tolist(), values, strict=True):
            if index >= 0:
                found[index].append(value)
    return [
        _spread(values, example.completion.loss_mask)
        for values, example in zip(found, examples, strict=True)
    ]


def denominator(
    examples: Sequence[TrainExample],
    aggregation: Aggregation,
    constant_length: int | None,
    device: torch.device,
) -> float | None:
    """What the losses of all tokens on all ranks are divided by, see `aggregation`.

    Args:
        examples: this rank's share of a step.
        aggregation: of the step.
        constant_length: of `aggregation=constant`.
        device: of this rank.

    Returns:
        The same on every rank; None where none has an example.

    Raises:
        ValueError: if no token of the step counts.
    """
    weights = [loss_weights(example.completion, example.token_weights) for example in examples]
    lengths = torch.tensor([len(of_tokens) for of_tokens in weights], dtype=torch.long)
    own = denominator_part(
        torch.cat([*weights, torch.zeros(0)]).double(),
        torch.arange(len(examples)).repeat_interleave(lengths),
        aggregation,
        constant_length,
    )
    counts = torch.stack([own, torch.tensor(len(examples), dtype=torch.float64)])
    total, num_examples = sum_over_ranks(counts, device).tolist()
    if not num_examples:
        return None
    if total <= 0:
        raise ValueError(f"nothing to train on: the token weights of this step sum to {total}")
    return total


def _spread(values: list[float], mask: list[bool]) -> list[float]:
    """`values` at the places where `mask` is True, 0 elsewhere."""
    remaining = iter(values)
    return [next(remaining) if counts else 0.0 for counts in mask]
