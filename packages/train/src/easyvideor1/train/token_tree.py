"""The learner's batch: a forest of token trees.

A tree is a prompt with the answers that continue it; separate sequences are trees with one branch.
`build_trees` makes them from examples, one group at a time; `pack` cuts them into micro-batches by
a token budget; `to_batch` lays a micro-batch out as one padded sequence per branch, which is the
executor of today: computing a shared prompt once works on the same trees. No model in here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from easyvideor1.schema.records import Completion, MediaKind, Sample, Source
from easyvideor1.train.failures import at_samples

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families.base import FamilyAdapter, PromptInputs
    from easyvideor1.train.interfaces import TrainExample


class ClipLoader(Protocol):
    """Where the clips of a sample come from; `preprocess.store.ClipStore` is one."""

    def load(self, sample: Sample) -> "list[Clip]":
        """One clip per medium, in order."""
        ...


# Legend: L tokens of a segment or a padded sequence, B branches, N tokens the loss may read.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MediaSlot:
    """One medium as the vision tower takes it. Equal keys mean equal features."""

    key: str
    kind: MediaKind
    pixel_values: Tensor
    """[patches, values per patch]"""
    grid_thw: Tensor
    """[3] patches in time, height and width."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreeSegment:
    """A run of tokens that continues its parent."""

    token_ids: Tensor
    """[L]"""
    position_ids: Tensor
    """[3, L] M-RoPE positions: time, height, width."""
    parent: int | None = None
    """Index of the segment before it in the tree; None for the root."""
    media: tuple[MediaSlot, ...] = ()
    """Media whose placeholders stand in it, in order."""
    trainable: bool = False
    """Whether a policy chose these tokens, so that they have log-probs."""
    weights: Tensor | None = None
    """[L] weight of each token in the loss, where trainable."""
    sampler_logprobs: Tensor | None = None
    """[L] log-probs as the engine that sampled them computed them, where known."""
    old_logprobs: Tensor | None = None
    """[L] log-probs as the learner computes them under the weights that sampled; None where those
    are the current ones."""
    advantages: Tensor | None = None
    """[L] advantage of each token, where trainable."""
    source: Source = Source.policy
    example: int | None = None
    """Which of the caller's examples it belongs to; None for a prompt."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenTree:
    """A prompt and its continuations. Parents stand before their children."""

    segments: tuple[TreeSegment, ...]
    sample_id: str = ""
    """Of the sample that the prompt asks about; empty in an idle forest."""

    def leaves(self) -> list[int]:
        """Indices of the segments that nothing continues, in order."""
        parents = {segment.parent for segment in self.segments}
        return [index for index in range(len(self.segments)) if index not in parents]

    def path(self, leaf: int) -> list[int]:
        """Segment indices from the root to `leaf`."""
        path, index = [], leaf
        while index is not None:
            path.append(index)
            index = self.segments[index].parent
        return path[::-1]

    def branch(self, leaf: int) -> list[TreeSegment]:
        """The segments from the root to `leaf`."""
        return [self.segments[index] for index in self.path(leaf)]

    def branch_tokens(self, leaf: int) -> int:
        """Length of the sequence that ends in `leaf`."""
        return sum(len(segment.token_ids) for segment in self.branch(leaf))

    def keep(self, leaves: Sequence[int]) -> "TokenTree":
        """The same tree with only these branches."""
        kept = sorted({index for leaf in leaves for index in self.path(leaf)})
        new_index = {old: new for new, old in enumerate(kept)}
        return replace(
            self,
            segments=tuple(
                replace(
                    self.segments[old],
                    parent=None
                    if (parent := self.segments[old].parent) is None
                    else new_index[parent],
                )
                for old in kept
            ),
        )


Forest = tuple[TokenTree, ...]


def by_prompt(examples: Sequence["TrainExample"]) -> list[list[int]]:
    """Indices of the examples that share a prompt, in order of first appearance."""
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for index, example in enumerate(examples):
        key = example.prompt.sample.id, tuple(example.prompt.token_ids)
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def build_trees(
    examples: Sequence["TrainExample"],
    family: "FamilyAdapter",
    clip_store: ClipLoader,
) -> Iterator[TokenTree]:
    """One tree per prompt, in order of first appearance; media are loaded when it is reached.

    Args:
        examples: completions with their prompts; those of one prompt may lie apart.
        family: expands prompts and lays out positions.
        clip_store: gives the clips.
    """
    for indices in by_prompt(examples):
        with at_samples([examples[indices[0]].prompt.sample.id]):
            tree = _build_tree(examples, indices, family, clip_store)
        yield tree


def _build_tree(
    examples: Sequence["TrainExample"],
    indices: list[int],
    family: "FamilyAdapter",
    clip_store: ClipLoader,
) -> TokenTree:
    asked = examples[indices[0]].prompt
    clips = clip_store.load(asked.sample)
    prompt = family.learner_inputs(asked.token_ids, clips, sample_id=asked.sample.id)
    root = TreeSegment(
        token_ids=torch.as_tensor(prompt.token_ids, dtype=torch.long),
        position_ids=torch.as_tensor(prompt.position_ids, dtype=torch.long),
        media=_media_slots(prompt, clips, asked.sample.id),
    )
    segments = [root]
    for index in indices:
        segments += _answer(examples[index], index, root, family, parent=len(segments))
    return TokenTree(segments=tuple(segments), sample_id=asked.sample.id)


def _media_slots(
    prompt: "PromptInputs", clips: "Sequence[Clip]", sample_id: str
) -> tuple[MediaSlot, ...]:
    """Splits the concatenated pixel values of each kind into one slot per clip, in clip order."""
    pixels = {
        MediaKind.image: _split(prompt.pixel_values, prompt.image_grid_thw),
        MediaKind.video: _split(prompt.pixel_values_videos, prompt.video_grid_thw),
    }
    slots = []
    for number, clip in enumerate(clips):
        pixel_values, grid_thw = next(pixels[clip.kind])
        # A clip without a key is shared within its sample only.
        key = clip.key or f"{sample_id}#{number}"
        slots.append(
            MediaSlot(key=key, kind=clip.kind, pixel_values=pixel_values, grid_thw=grid_thw)
        )
    return tuple(slots)


def _split(pixel_values: Tensor | None, grids: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    if pixel_values is None or grids is None:
        return iter(())
    return zip(pixel_values.split(grids.prod(-1).tolist()), grids, strict=True)


def _answer(
    example: "TrainExample",
    index: int,
    root: TreeSegment,
    family: "FamilyAdapter",
    parent: int,
) -> list[TreeSegment]:
    """The chain of segments of one completion; the first hangs on the root."""
    completion = example.completion
    num_tokens = len(completion.token_ids)
    position_ids = torch.as_tensor(family.position_ids_after(root.position_ids, num_tokens))
    if len(example.advantages) != num_tokens:
        raise ValueError(f"{num_tokens} tokens but {len(example.advantages)} advantages")
    advantages = torch.tensor(example.advantages, dtype=torch.float32)
    old = None
    if example.old_logprobs is not None:
        old = torch.tensor(example.old_logprobs, dtype=torch.float32)
    weights = loss_weights(completion, example.token_weights)
    chain: list[TreeSegment] = []
    start = 0
    for segment in completion.segments:
        if not segment.token_ids:
            continue
        stop = start + len(segment.token_ids)
        chain.append(
            TreeSegment(
                token_ids=torch.tensor(segment.token_ids, dtype=torch.long),
                position_ids=position_ids[:, start:stop],
                parent=parent + len(chain) - 1 if chain else 0,
                trainable=segment.trainable,
                weights=weights[start:stop],
                sampler_logprobs=None
                if segment.logprobs is None
                else torch.tensor(segment.logprobs, dtype=torch.float32),
                old_logprobs=None if old is None else old[start:stop],
                advantages=advantages[start:stop],
                source=completion.source,
                example=index,
            )
        )
        start = stop
    return chain


def loss_weights(completion: Completion, token_weights: Sequence[float] | None) -> Tensor:
    """[L] weight of each token in the loss: 0 where no policy chose it."""
    weights = torch.tensor(completion.loss_mask, dtype=torch.float32)
    if token_weights is None:
        return weights
    if len(token_weights) != len(weights):
        raise ValueError(f"{len(weights)} tokens but {len(token_weights)} weights")
    return weights * torch.tensor(token_weights, dtype=torch.float32)


def pack(trees: Iterable[TokenTree], max_tokens: int) -> Iterator[Forest]:
    """Micro-batches of at most `max_tokens` tokens, padding included; a longer branch goes alone.

    Branches of a tree stay together as far as they fit, shortest first, so that its media are
    computed once and little is padded. Lazy: holds one micro-batch.
    """
    kept: list[tuple[TokenTree, list[int]]] = []
    longest, count = 0, 0
    for tree in trees:
        kept.append((tree, []))
        for leaf in sorted(tree.leaves(), key=tree.branch_tokens):
            length = tree.branch_tokens(leaf)
            if count and max(longest, length) * (count + 1) > max_tokens:
                yield _forest(kept)
                kept, longest, count = [(tree, [])], 0, 0
            kept[-1][1].append(leaf)
            longest, count = max(longest, length), count + 1
    if count:
        yield _forest(kept)


def _forest(kept: list[tuple[TokenTree, list[int]]]) -> Forest:
    return tuple(tree.keep(leaves) for tree, leaves in kept if leaves)


def idle_forest(token_id: int) -> Forest:
    """A forest without weight, for a rank that has no work left while others do."""
    segment = TreeSegment(
        token_ids=torch.tensor([token_id]), position_ids=torch.zeros(3, 1, dtype=torch.long)
    )
    answer = TreeSegment(
        token_ids=torch.tensor([token_id]),
        position_ids=torch.ones(3, 1, dtype=torch.long),
        parent=0,
        trainable=True,
        weights=torch.zeros(1),
    )
    return (TokenTree(segments=(segment, answer)),)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """A micro-batch as tensors: one right-padded sequence per branch.

    The N `target` tokens are those of trainable segments, branch after branch.
    """

    input_ids: Tensor
    """[B, L]"""
    position_ids: Tensor
    """[3, B, L]"""
    media: tuple[MediaSlot, ...]
    """Each distinct medium once."""
    branch_media: tuple[tuple[int, ...], ...]
    """Per branch, the media of its placeholders in order, as indices into `media`."""
    target_rows: Tensor
    """[N] branch of each target."""
    target_columns: Tensor
    """[N] column of the hidden state that predicts it: the one before it."""
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
    """Tokens without padding."""
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


def to_batch(forest: Forest, pad_token_id: int) -> Batch:
    """Lays out every branch as a sequence of its own, padded on the right.

    No attention mask is needed: attention is causal, so no real token ever sees the padding behind
    it, and targets are gathered by index.

    Args:
        forest: the micro-batch.
        pad_token_id: any id that is no media placeholder.
    """
    branches = [tree.branch(leaf) for tree in forest for leaf in tree.leaves()]
    lengths = [sum(len(segment.token_ids) for segment in branch) for branch in branches]
    input_ids = torch.full((len(branches), max(lengths)), pad_token_id)
    position_ids = torch.zeros(3, len(branches), max(lengths), dtype=torch.long)
    slots: dict[tuple[MediaKind, str], int] = {}
    media: list[MediaSlot] = []
    branch_media = []
    targets = []
    for row, (branch, length) in enumerate(zip(branches, lengths, strict=True)):
        input_ids[row, :length] = torch.cat([segment.token_ids for segment in branch])
        position_ids[:, row, :length] = torch.cat([s.position_ids for s in branch], dim=1)
        used = []
        for slot in (slot for segment in branch for slot in segment.media):
            index = slots.setdefault((slot.kind, slot.key), len(media))
            if index == len(media):
                media.append(slot)
            used.append(index)
        branch_media.append(tuple(used))
        targets += _targets(branch, row)
    names = (
        "rows",
        "columns",
        "ids",
        "weights",
        "advantages",
        "logprobs",
        "old_logprobs",
        "offline",
        "examples",
    )
    columns = {
        name: torch.cat(parts)
        for name, parts in zip(names, zip(*targets, strict=True), strict=True)
    }
    return Batch(
        input_ids=input_ids,
        position_ids=position_ids,
        media=tuple(media),
        branch_media=tuple(branch_media),
        target_rows=columns["rows"],
        target_columns=columns["columns"],
        target_ids=columns["ids"],
        weights=columns["weights"],
        advantages=columns["advantages"],
        sampler_logprobs=columns["logprobs"],
        old_logprobs=columns["old_logprobs"],
        is_offline=columns["offline"],
        examples=columns["examples"],
        num_tokens=sum(lengths),
        sample_ids=tuple(tree.sample_id for tree in forest if tree.sample_id),
    )


def _targets(branch: list[TreeSegment], row: int) -> Iterator[tuple[Tensor, ...]]:
    start = 0
    for segment in branch:
        count = len(segment.token_ids)
        if segment.trainable:
            unknown = torch.full((count,), torch.nan)
            yield (
                torch.full((count,), row),
                torch.arange(start, start + count) - 1,
                segment.token_ids,
                torch.zeros(count) if segment.weights is None else segment.weights,
                torch.zeros(count) if segment.advantages is None else segment.advantages,
                unknown if segment.sampler_logprobs is None else segment.sampler_logprobs,
                unknown if segment.old_logprobs is None else segment.old_logprobs,
                torch.full((count,), segment.source is Source.offline),
                torch.full((count,), -1 if segment.example is None else segment.example),
            )
        start += count
