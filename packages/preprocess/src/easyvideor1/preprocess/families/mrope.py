"""M-RoPE: the position rows (time, height, width) of the Qwen-VL families, as a pure function.

Equal to vLLM's computation and to the original Qwen rule; the families say which blocks a prompt
consists of.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Grid(NamedTuple):
    """The tokens of one visual block: `time`·`height`·`width` of them, width running fastest."""

    time: int
    height: int
    width: int
    time_step: float = 1.0
    """Distance in position between two steps in time; their positions are rounded down."""


Block = int | Grid
"""A run of n text tokens, or one visual block."""


def mrope_positions(blocks: Sequence[Block]) -> "Tensor":
    """Positions of a prompt made of text runs and visual grids, int64 [3, P].

    Every block starts at (largest position so far) + 1. Text counts up alike in all three rows; in
    a grid each row counts along its own axis. Source: Qwen2-VL (arXiv 2409.12191), section 2.1; the
    step in time: Qwen2.5-VL (arXiv 2502.13923), section 2.1.2.

    Example:
        >>> mrope_positions([2, Grid(1, 2, 2), 1]).tolist()
        [[0, 1, 2, 2, 2, 2, 4], [0, 1, 2, 2, 3, 3, 4], [0, 1, 2, 3, 2, 3, 4]]
    """
    import torch

    parts = []
    start = 0
    for block in blocks:
        if isinstance(block, int):
            rows = torch.arange(block).expand(3, block)
            length = block
        else:
            # In float64, as vLLM computes it: the product may lie just below a whole number.
            times = (torch.arange(block.time).double() * block.time_step).long()
            axes = (times, torch.arange(block.height), torch.arange(block.width))
            rows = torch.stack(torch.meshgrid(*axes, indexing="ij")).reshape(3, -1)
            length = int(rows.max()) + 1
        parts.append(rows + start)
        start += length
    return torch.cat(parts, dim=1)


def positions_after(positions: "Tensor", num_tokens: int) -> "Tensor":
    """Positions of `num_tokens` text tokens that follow `positions`, int64 [3, num_tokens]."""
    import torch

    start = int(positions.max()) + 1
    return torch.arange(start, start + num_tokens).expand(3, num_tokens)
