"""From a forest to the tensors of a micro-batch, in one of two forms.

Packed, all trees are one sequence in which each segment stands once, laid out as `tree_shape` says;
padded, each branch is a row of its own, which any attention of transformers computes. Called by
`micro_batches`; read by `model_forward` and the loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from easyvideor1.schema.records import MediaKind, Source
from easyvideor1.train.token_tree import Forest, MediaSlot, TokenTree, TreeSegment
from easyvideor1.train.tree_shape import TreeShape

# Legend: B rows, L columns, N tokens that the loss may read.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """A micro-batch as tensors.

    The N `target` tokens are those of trainable segments, branch after branch.
    """

    input_ids: Tensor
    """[B, L] B padded branches, or one packed sequence."""
    position_ids: Tensor
    """[3, B, L]"""
    tree: TreeShape | None
    """Of a packed sequence; None where branches are padded."""
    media: tuple[MediaSlot, ...]
    """Each distinct medium once."""
    row_media: tuple[tuple[int, ...], ...]
    """[B] media of the placeholders in a row, in order, as indices into `media`."""
    target_rows: Tensor
    """[N] row of each target."""
    target_columns: Tensor
    """[N] column of the hidden state that predicts it: that of the token before it."""
    target_ids: Tensor
    """[N]"""
    weights: Tensor
    """[N]"""
    advantages: Tensor
    """[N]"""
    sampler_logprobs: Tensor
    """[N] NaN where nobody knows them."""
    old_logprobs: Tensor
    """[N] NaN where the current weights are those that sampled."""
    is_offline: Tensor
    """[N] True for tokens that another policy chose."""
    examples: Tensor
    """[N] index of the example of each target; -1 in an idle forest."""
    num_tokens: int
    """Tokens of all branches, each with its prompt; whatever the form."""
    num_computed: int
    """Tokens that run through the model, padding left out."""
    num_pairs: int
    """Pairs of a token and one that it attends to, itself included."""
    sample_ids: tuple[str, ...]
    """Samples whose prompts are in it."""

    def to(self, device: torch.device) -> "Batch":
        """The same batch with all tensors on `device`."""
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in self.__dataclass_fields__
            if isinstance(getattr(self, name), Tensor)
        }
        media = tuple(
            replace(slot, pixel_values=slot.pixel_values.to(device, non_blocking=True))
            for slot in self.media
        )
        return replace(self, media=media, **moved)


def padded_batch(forest: Forest, pad_token_id: int) -> Batch:
    """Lays out every branch as a sequence of its own, padded on the right.

    No attention mask is needed: attention is causal, so no real token ever sees the padding behind
    it, and targets are gathered by index.

    Args:
        forest: the micro-batch.
        pad_token_id: any id that is no media placeholder.
    """
    branches = [tree.branch(leaf) for tree in forest for leaf in tree.leaves()]
    lengths = [_num_tokens(branch) for branch in branches]
    input_ids = torch.full((len(branches), max(lengths)), pad_token_id)
    position_ids = torch.zeros(3, len(branches), max(lengths), dtype=torch.long)
    targets = []
    for row, (branch, length) in enumerate(zip(branches, lengths, strict=True)):
        input_ids[row, :length] = torch.cat([segment.token_ids for segment in branch])
        position_ids[:, row, :length] = torch.cat([s.position_ids for s in branch], dim=1)
        targets += _targets(branch, row, torch.arange(length))
    return _batch(
        forest,
        input_ids,
        position_ids,
        rows=branches,
        targets=targets,
        num_computed=sum(lengths),
        num_pairs=sum(map(_causal_pairs, lengths)),
        tree=None,
    )


def packed_batch(forest: Forest) -> Batch:
    """Lays all trees out as one sequence, in which the root of a tree stands once.

    A tree with one branch is a sequence of its own, root and branch together.

    Args:
        forest: trees whose branches part at the root.

    Raises:
        ValueError: for a tree whose branches part further down.
    """
    paths = [[tree.branch(leaf) for leaf in tree.leaves()] for tree in forest]
    for tree, of_tree in zip(forest, paths, strict=True):
        _refuse_forks(tree, of_tree)
    paths.sort(key=lambda of_tree: len(of_tree) == 1)  # stable: trees with branches first
    roots = [of_tree[0] if len(of_tree) == 1 else of_tree[0][:1] for of_tree in paths]
    forks = [of_tree for of_tree in paths if len(of_tree) > 1]
    shape = TreeShape(
        roots=tuple(map(_num_tokens, roots)),
        branches=tuple(tuple(_num_tokens(path[1:]) for path in of_tree) for of_tree in forks),
    )
    starts = torch.tensor([0, *shape.segments]).cumsum(0).tolist()
    spans = [torch.arange(*bounds) for bounds in pairwise(starts)]
    targets = [
        target
        for (path,), span in zip(paths[len(forks) :], spans[len(forks) : len(roots)], strict=True)
        for target in _targets(path, 0, span)
    ]
    own_spans = iter(spans[len(roots) :])
    for of_tree, root_span in zip(forks, spans, strict=False):
        for path in of_tree:
            targets += _targets(path, 0, torch.cat([root_span, next(own_spans)]))
    segments = [s for root in roots for s in root]
    segments += [s for of_tree in forks for path in of_tree for s in path[1:]]
    return _batch(
        forest,
        torch.cat([segment.token_ids for segment in segments])[None],
        torch.cat([segment.position_ids for segment in segments], dim=1)[:, None],
        rows=[segments],
        targets=targets,
        num_computed=sum(shape.segments),
        num_pairs=sum(map(_causal_pairs, shape.segments))
        + sum(p * c for p, c in zip(shape.prefixes, shape.continuations, strict=True)),
        tree=shape,
    )


def _refuse_forks(tree: TokenTree, paths: Sequence[Sequence[TreeSegment]]) -> None:
    if sum(len(path) - 1 for path in paths) != len(tree.segments) - 1:
        raise ValueError(
            f"the branches of sample {tree.sample_id} part below the root, which no layout computes"
        )


def _num_tokens(segments: Sequence[TreeSegment]) -> int:
    return sum(len(segment.token_ids) for segment in segments)


def _causal_pairs(length: int) -> int:
    return length * (length + 1) // 2


_TARGET_FIELDS = (
    "target_rows",
    "target_columns",
    "target_ids",
    "weights",
    "advantages",
    "sampler_logprobs",
    "old_logprobs",
    "is_offline",
    "examples",
)


def _batch(
    forest: Forest,
    input_ids: Tensor,
    position_ids: Tensor,
    *,
    rows: Sequence[Sequence[TreeSegment]],
    targets: Sequence[tuple[Tensor, ...]],
    num_computed: int,
    num_pairs: int,
    tree: TreeShape | None,
) -> Batch:
    """Puts the parts together; each distinct medium of the rows' segments once."""
    slots: dict[tuple[MediaKind, str], int] = {}
    media: list[MediaSlot] = []
    row_media = []
    for segments in rows:
        used = []
        for slot in (slot for segment in segments for slot in segment.media):
            index = slots.setdefault((slot.kind, slot.key), len(media))
            if index == len(media):
                media.append(slot)
            used.append(index)
        row_media.append(tuple(used))
    fields = zip(_TARGET_FIELDS, zip(*targets, strict=True), strict=True)
    return Batch(
        input_ids=input_ids,
        position_ids=position_ids,
        tree=tree,
        media=tuple(media),
        row_media=tuple(row_media),
        num_tokens=sum(one.branch_tokens(leaf) for one in forest for leaf in one.leaves()),
        num_computed=num_computed,
        num_pairs=num_pairs,
        sample_ids=tuple(one.sample_id for one in forest if one.sample_id),
        **{name: torch.cat(parts) for name, parts in fields},
    )


def _targets(
    branch: Sequence[TreeSegment], row: int, columns: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """The target fields of each trainable segment.

    Args:
        branch: from the root on.
        row: that it stands in.
        columns: [L] of its tokens in that row.
    """
    start = 0
    for segment in branch:
        count = len(segment.token_ids)
        if segment.trainable:
            unknown = torch.full((count,), torch.nan)
            yield (
                torch.full((count,), row),
                columns[start - 1 : start - 1 + count],
                segment.token_ids,
                torch.zeros(count) if segment.weights is None else segment.weights,
                torch.zeros(count) if segment.advantages is None else segment.advantages,
                unknown if segment.sampler_logprobs is None else segment.sampler_logprobs,
                unknown if segment.old_logprobs is None else segment.old_logprobs,
                torch.full((count,), segment.source is Source.offline),
                torch.full((count,), -1 if segment.example is None else segment.example),
            )
        start += count
