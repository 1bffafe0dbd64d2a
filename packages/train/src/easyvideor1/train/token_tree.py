"""What the learner computes on: a forest of token trees.

A tree is a prompt with the answers that continue it; separate sequences are trees with one branch.
`build_trees` makes them from examples, one group at a time; `packing` cuts them into micro-batches
and `batches` lays these out as tensors. No model in here.
"""

from collections.abc import Iterator, Sequence
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


# Legend: L tokens of a segment.


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

    def own_tokens(self, leaf: int) -> int:
        """Tokens of the branch that ends in `leaf`, without the root."""
        return self.branch_tokens(leaf) - len(self.segments[0].token_ids)

    def apart(self) -> Iterator["TokenTree"]:
        """Each branch as a tree of its own."""
        for leaf in self.leaves():
            yield self.keep([leaf])

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
