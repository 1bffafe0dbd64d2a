"""Which kernels compute the model, told in one line at start-up; slow ones are refused on a GPU.

What a model falls back to when a package is missing gives the same numbers and costs many times the
time, which nothing else would show. Called by `learner.RankLearner`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from easyvideor1.schema.errors import UserError
from easyvideor1.train.tree_attention import TREE_ATTENTION

DELTA_RULE = "chunk_gated_delta_rule"
"""Of the `fla` package: where transformers looks for it, and its name in there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """What computes one part of the model."""

    part: str
    name: str
    way_out: str = ""
    """What to do about a slow one; empty for any other."""


def kernels_of(model: PreTrainedModel) -> list[Kernel]:
    """The kernels that the forward and backward of `model` run on."""
    found = [
        _attention("language attention", model.model.language_model),
        *_linear_attention(model),
        _attention("vision attention", model.model.visual),
    ]
    convolutions = [name for name, m in model.named_modules() if isinstance(m, nn.Conv3d)]
    embedding = Kernel(part="patch embedding", name="matrix product")
    if convolutions:
        embedding = Kernel(
            part="patch embedding",
            name=f"three-dimensional convolution in {', '.join(convolutions)}",
            way_out="use a checkpoint whose patches neither overlap nor leave gaps",
        )
    return [*found, embedding]


def told(kernels: Sequence[Kernel]) -> str:
    """One line about all of them.

    Example:
        kernels: language attention sdpa, vision attention sdpa, patch embedding matrix product
    """
    return "kernels: " + ", ".join(
        f"{kernel.part} {kernel.name}{' (slow)' if kernel.way_out else ''}" for kernel in kernels
    )


def refuse_slow(kernels: Sequence[Kernel], device: torch.device, *, allowed: bool) -> None:
    """Raise if a slow kernel would keep a GPU waiting.

    Args:
        kernels: of the model.
        device: that it runs on; a CPU takes any kernel.
        allowed: as `learner.allow_slow_kernels` says.

    Raises:
        UserError: with the way out for each slow kernel.
    """
    slow = [kernel for kernel in kernels if kernel.way_out]
    if not slow or allowed or device.type == "cpu":
        return
    reasons = "; ".join(f"{kernel.part} runs on {kernel.name}: {kernel.way_out}" for kernel in slow)
    raise UserError(
        f"{reasons}. learner.allow_slow_kernels=true trains all the same, many times slower"
    )


def _attention(part: str, module: nn.Module) -> Kernel:
    config: Any = module.config
    name = config._attn_implementation
    if name == TREE_ATTENTION:
        name = "flash over token trees"
    way_out = "set learner.attention=sdpa or flash_attention_2" if name == "eager" else ""
    return Kernel(part=part, name=name, way_out=way_out)


def _linear_attention(model: PreTrainedModel) -> list[Kernel]:
    """Of a hybrid language model: the recurrence, and the short convolution before it."""
    layers = getattr(model.config.get_text_config(), "layer_types", None) or []
    if "linear_attention" not in layers:
        return []
    # transformers takes these functions from the same places, and torch's wherever that fails.
    delta_rule = _import_error("fla.ops.gated_delta_rule", DELTA_RULE)
    convolution = _import_error("causal_conv1d", "causal_conv1d_fn")
    recurrence = Kernel(part="linear attention", name=f"flash-linear-attention's {DELTA_RULE}")
    if delta_rule:
        recurrence = Kernel(
            part="linear attention",
            name="torch's reference",
            way_out=f"install flash-linear-attention, as make setup does on a GPU ({delta_rule})",
        )
    name = "torch" if convolution else "causal_conv1d"
    return [recurrence, Kernel(part="its convolution", name=name)]


def _import_error(module: str, function: str) -> str:
    """Why a function cannot be imported; empty if it can."""
    try:
        getattr(import_module(module), function)
    except Exception as error:
        # Compiled packages fail with whatever their libraries raise.
        return f"{type(error).__name__}: {error}"
    return ""
