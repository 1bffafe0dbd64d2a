"""Where the segments of a packed forest lie in its one sequence.

Roots come first, then the branches of one tree after another:

    [root 1 | root 2 | branch 1a | branch 1b | branch 2a | …]

so that all roots, and all branches, are one slice each. Attention and recurrence need no more than
these lengths; read by `tree_attention` and `tree_delta_rule`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Lengths in tokens.

    Example:
        TreeShape(roots=(1800, 60), branches=((64, 80),)): two answers to a prompt of 1800 tokens,
        and a sequence of its own with 60.
    """

    roots: tuple[int, ...]
    """Those that have branches first; a root without is a whole sequence."""
    branches: tuple[tuple[int, ...], ...]
    """Per root that has branches, in order."""

    @property
    def segments(self) -> tuple[int, ...]:
        """Of all segments, in the order of the sequence."""
        return self.roots + tuple(length for tree in self.branches for length in tree)

    @property
    def prefixes(self) -> tuple[int, ...]:
        """Of the roots that have branches."""
        return self.roots[: len(self.branches)]

    @property
    def continuations(self) -> tuple[int, ...]:
        """Of all branches of a root together."""
        return tuple(map(sum, self.branches))

    @property
    def num_root_tokens(self) -> int:
        """Where the branches begin."""
        return sum(self.roots)

    @property
    def num_prefix_tokens(self) -> int:
        """Where the roots begin that have no branches."""
        return sum(self.prefixes)
