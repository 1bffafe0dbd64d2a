"""From the examples of a rank to its micro-batches, and back to a number per token.

Every rank yields equally many micro-batches, since all of them meet inside the model's forward.
Called by `learner.RankLearner`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from easyvideor1.train.batches import Batch, packed_batch, padded_batch
from easyvideor1.train.collectives import max_over_ranks
from easyvideor1.train.config import BatchLayout
from easyvideor1.train.failures import at_samples
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.packing import pack_padded, pack_trees
from easyvideor1.train.token_tree import (
    ClipLoader,
    Forest,
    TokenTree,
    build_trees,
    idle_forest,
)

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter


def micro_batches(
    examples: Sequence[TrainExample],
    clips: ClipLoader,
    family: "FamilyAdapter",
    *,
    layout: BatchLayout,
    max_tokens: int,
    patch_tokens: float,
    device: torch.device,
) -> Iterator[Batch]:
    """Micro-batches on `device`; a rank without work left gets idle ones until all are done.

    Args:
        examples: this rank's share.
        clips: of their samples.
        family: builds the model's inputs.
        layout: of a micro-batch.
        max_tokens: of a micro-batch, padding included.
        patch_tokens: what a patch of the media costs, in tokens.
        device: of this rank.
    """
    pad = family.eos_token_ids[0]
    trees = build_trees(examples, family, clips)
    forests = cut(trees, layout, max_tokens, patch_tokens)
    while True:
        forest = next(forests, None)
        busy = max_over_ranks(torch.tensor(float(forest is not None)), device)
        if not busy.item():
            return
        forest = forest or idle_forest(pad)
        batch = padded_batch(forest, pad) if layout.is_padded else packed_batch(forest)
        yield batch.to(device)


def cut(
    trees: Iterator[TokenTree], layout: BatchLayout, max_tokens: int, patch_tokens: float
) -> Iterator[Forest]:
    """The trees in micro-batches, as far apart as the layout computes them."""
    if layout.is_padded:
        return pack_padded(trees, max_tokens)
    if layout is BatchLayout.packed:
        return pack_trees((one for tree in trees for one in tree.apart()), max_tokens)
    return pack_trees(trees, max_tokens, patch_tokens=patch_tokens)


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


def _spread(values: list[float], mask: list[bool]) -> list[float]:
    """`values` at the places where `mask` is True, 0 elsewhere."""
    remaining = iter(values)
    return [next(remaining) if counts else 0.0 for counts in mask]
