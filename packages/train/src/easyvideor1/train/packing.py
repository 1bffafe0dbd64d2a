"""Cutting trees into the micro-batches of a rank, by a budget of tokens.

One way per layout of `batches`: what a tree takes differs by how often its prompt is computed.
Lazy: no more than one micro-batch is held. Called by `micro_batches`.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from easyvideor1.train.token_tree import Forest, TokenTree


def pack_trees(
    trees: Iterable[TokenTree], max_tokens: float, *, patch_tokens: float = 0.0
) -> Iterator[Forest]:
    """Micro-batches of at most `max_tokens` tokens where each root counts once.

    A tree that fits into a micro-batch stays whole. A larger one is cut into as few parts as
    possible, of similar length, each with the root. Where a root leaves less than half of the
    budget to its branches they get that half all the same: each further part would compute a long
    root anew. A branch that is longer goes with its root alone.

    Args:
        trees: of a rank.
        max_tokens: of a micro-batch.
        patch_tokens: what a patch of the root's media costs, in tokens of the language model.
    """
    kept: list[TokenTree] = []
    room = max_tokens
    for tree in trees:
        for part in _parts(tree, max_tokens, patch_tokens):
            size = tree_tokens(part, patch_tokens)
            if kept and size > room:
                yield tuple(kept)
                kept, room = [], max_tokens
            kept.append(part)
            room -= size
    if kept:
        yield tuple(kept)


def tree_tokens(tree: TokenTree, patch_tokens: float = 0.0) -> float:
    """Tokens of a tree, each segment once, and its patches at their cost."""
    return _root_tokens(tree, patch_tokens) + sum(map(tree.own_tokens, tree.leaves()))


def _root_tokens(tree: TokenTree, patch_tokens: float) -> float:
    root = tree.segments[0]
    num_patches = sum(len(slot.pixel_values) for slot in root.media)
    return len(root.token_ids) + patch_tokens * num_patches


def _parts(tree: TokenTree, max_tokens: float, patch_tokens: float) -> list[TokenTree]:
    """The tree, or its branches in as few trees as possible."""
    room = max(max_tokens - _root_tokens(tree, patch_tokens), max_tokens / 2)
    leaves = sorted(tree.leaves(), key=tree.own_tokens, reverse=True)
    for count in range(ceil(sum(map(tree.own_tokens, leaves)) / room), len(leaves)):
        parts = _spread(leaves, tree, count)
        if all(sum(map(tree.own_tokens, part)) <= room for part in parts):
            return [tree.keep(sorted(part)) for part in parts]
    return list(tree.apart())


def _spread(leaves: Sequence[int], tree: TokenTree, count: int) -> list[list[int]]:
    """Leaves over `count` parts, the longest first, each to the shortest part (LPT)."""
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for leaf in leaves:
        least = loads.index(min(loads))
        parts[least].append(leaf)
        loads[least] += tree.own_tokens(leaf)
    return parts


def pack_padded(trees: Iterable[TokenTree], max_tokens: int) -> Iterator[Forest]:
    """Micro-batches of branches side by side: at most `max_tokens`, padding included.

    A longer branch goes alone. Branches of a tree stay together as far as they fit, shortest first,
    so that its media are computed once and little is padded.
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
