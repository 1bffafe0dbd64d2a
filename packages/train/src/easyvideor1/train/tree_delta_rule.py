"""Linear attention in which many answers continue one prompt: its state is forked.

The recurrence and the short convolution of a gated delta net know no mask. They run over a root
once; its last state and its last inputs of the convolution are where each branch begins, and the
gradients of all branches flow back through them. For the hybrid models of Qwen3.5's structure;
called in the place of the layer's own forward.
"""

import sys
from collections.abc import Sequence
from types import MethodType, ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from easyvideor1.train.tree_shape import TreeShape

# Legend: L tokens, C channels of the convolution, B sequences side by side, V value heads,
# D dimensions of a value head.


def fork_states(model: nn.Module) -> None:
    """Let all gated delta nets in `model` compute on packed forests."""
    for module in model.modules():
        if is_gated_delta_net(module):
            module.forward = MethodType(forward, module)


def is_gated_delta_net(module: nn.Module) -> bool:
    """Whether it is a layer of the structure that `forward` computes."""
    return all(hasattr(module, name) for name in ("in_proj_qkv", "in_proj_z", "conv1d", "A_log"))


def forward(self: Any, hidden_states: Tensor, *, tree: TreeShape, **unused: Any) -> Tensor:
    """[1, L, hidden] of a packed forest, on each branch as the layer's own forward would."""
    segments = split(self, hidden_states[0], tree.segments)
    roots, branches = segments[: len(tree.roots)], iter(segments[len(tree.roots) :])
    of_roots, of_branches = [], []
    for number, root in enumerate(roots):
        (output,), state = run(self, [root])
        of_roots.append(output)
        if number < len(tree.branches):
            own = [next(branches) for _ in tree.branches[number]]
            outputs, _ = run(self, own, after=root, state=state)
            of_branches += outputs
    mixed = torch.cat([*of_roots, *of_branches])
    z = self.in_proj_z(hidden_states[0]).view(-1, self.head_v_dim)
    normed = self.norm(mixed.reshape(-1, self.head_v_dim), z)
    return self.out_proj(normed.view(1, len(mixed), -1))


class Segment(NamedTuple):
    """What the recurrence takes of one segment."""

    channels: Tensor
    """[L, C] query, key and value before the convolution."""
    decay: Tensor
    """[L, V] in log space."""
    beta: Tensor
    """[L, V]"""


def split(layer: Any, hidden: Tensor, lengths: tuple[int, ...]) -> list[Segment]:
    """Projects hidden states [L, hidden], and cuts them into segments."""
    channels = layer.in_proj_qkv(hidden)
    beta = layer.in_proj_b(hidden).sigmoid()
    # In float32, where exp of a large A is finite.
    rate = F.softplus(layer.in_proj_a(hidden).float() + layer.dt_bias)
    decay = -layer.A_log.float().exp() * rate
    parts = (tensor.split(lengths) for tensor in (channels, decay, beta))
    return [Segment(*of_one) for of_one in zip(*parts, strict=True)]


def run(
    layer: Any,
    segments: Sequence[Segment],
    *,
    after: Segment | None = None,
    state: Tensor | None = None,
) -> tuple[list[Tensor], Tensor]:
    """Convolution and recurrence over segments, side by side.

    Args:
        layer: with the weights.
        segments: run each for itself; padded on the right to the longest, which causal layers do
            not see.
        after: the segment that all of them continue; None where they begin a sequence.
        state: [1, V, key dimensions, D] that it left.

    Returns:
        Per segment [L, V * D]; and the state [B, V, key dimensions, D] behind the padding, which
        for one segment alone is the state at its end.
    """
    functions = _functions(layer)
    channels = _convolved(layer, functions, [s.channels for s in segments], after)
    query, key, value = channels.split([layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
    repeats = layer.num_v_heads // layer.num_k_heads
    query, key = (
        heads.unflatten(-1, (-1, layer.head_k_dim)).repeat_interleave(repeats, dim=2)
        for heads in (query, key)
    )
    output, last_state = functions.torch_chunk_gated_delta_rule(
        query,
        key,
        value.unflatten(-1, (-1, layer.head_v_dim)),
        g=pad_sequence([s.decay for s in segments], batch_first=True),
        beta=pad_sequence([s.beta for s in segments], batch_first=True),
        initial_state=None if state is None else state.repeat(len(segments), 1, 1, 1),
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    rows = zip(output.flatten(2), segments, strict=True)
    return [row[: len(segment.channels)] for row, segment in rows], last_state


def _convolved(
    layer: Any, functions: ModuleType, channels: Sequence[Tensor], after: Segment | None
) -> Tensor:
    """[B, longest, C] of the short convolution, which looks back into `after`."""
    num_before = 0
    if after is not None:
        before = after.channels[-(layer.conv_kernel_size - 1) :]
        num_before = len(before)
        channels = [torch.cat([before, own]) for own in channels]
    convolved = functions.causal_conv1d_fn(
        pad_sequence(list(channels), batch_first=True).transpose(1, 2),
        layer.conv1d.weight.squeeze(1),
        layer.conv1d.bias,
        activation=layer.activation,
    )
    return convolved.transpose(1, 2)[:, num_before:]


def _functions(layer: Any) -> ModuleType:
    """Where the layer's class finds its kernels: transformers puts the installed ones in there."""
    return sys.modules[type(layer).__module__]
