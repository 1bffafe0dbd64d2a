"""What a backward pass keeps per token and per patch, counted on a shallow copy of the model.

Layers of a kind are alike, so one more of them tells what each keeps, and two lengths what one more
token does. The copy has the real widths and runs the learner's own forward on a CPU, for a few
tokens; its weights are pages that nothing is ever written to. No formula per family, and nothing to
keep up to date when a layer changes. Called by `learner_memory`.
"""

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel

from easyvideor1.schema.records import MediaKind
from easyvideor1.train import sharding
from easyvideor1.train.activation_memory import ActivationMeter
from easyvideor1.train.batches import packed_batch, padded_batch
from easyvideor1.train.config import LearnerConfig
from easyvideor1.train.model_forward import PolicyModel
from easyvideor1.train.token_tree import MediaSlot, TokenTree, TreeSegment
from easyvideor1.train.tree_attention import TREE_ATTENTION


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationCosts:
    """Bytes that autograd keeps."""

    per_token: float
    """Of the language model, over all layers."""
    per_patch: float
    """Of the vision tower, over all layers."""
    per_layer_token: float
    """Of the costliest layer of the language model alone."""
    per_target: float = 0.0
    """Of the head: the hidden state that a token is predicted from."""

    def of(self, num_tokens: float, num_patches: float, num_targets: float) -> float:
        """Of a micro-batch."""
        return (
            self.per_token * num_tokens
            + self.per_patch * num_patches
            + self.per_target * num_targets
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Of a copy and of what it is shown."""

    layers: tuple[str, ...]
    """Kinds of the language model's layers, e.g. `("full_attention", "linear_attention")`."""
    depth: int
    """Of the vision tower."""
    tokens: int
    """Of text, beside the image's."""
    side: int
    """Of the image, in patches."""

    @property
    def patches(self) -> int:
        return self.side**2

    @property
    def length(self) -> int:
        """Of the sequence."""
        return self.tokens + self.patches // 4


def measure(model_path: str, config: LearnerConfig, dtype: torch.dtype) -> ActivationCosts:
    """Count on shallow copies of the model at `model_path`.

    Args:
        model_path: folder or hub id that is at hand; only its configuration is read.
        config: of the learner: layout, frozen parts, adapters, recomputation.
        dtype: of the computation.
    """
    full = AutoConfig.from_pretrained(model_path)
    text, vision = full.get_text_config(), full.vision_config
    kinds = layer_kinds(text)
    counts = Counter(kinds)
    num_levels = len(getattr(vision, "deepstack_visual_indexes", None) or ())
    # DeepStack's levels need as many layers and blocks to go into and to come from.
    filling = kinds[:1] * max(0, num_levels - len(counts))
    base = Size(layers=(*counts, *filling), depth=max(2, num_levels), tokens=60, side=4)

    def kept(size: Size) -> float:
        return _kept_bytes(_shallow(model_path, size, config, dtype), size)

    at_base = kept(base)
    # All lengths are multiples of 64, a chunk of recurrent layers, which pad to it, or just below.
    more_tokens = kept(replace(base, tokens=base.tokens + 128))
    per_token = (more_tokens - at_base) / 128
    wider = replace(base, side=4 * base.side)
    # Four patches make one token.
    per_patch = (kept(wider) - at_base) / (wider.patches - base.patches) - per_token / 4

    per_layer: dict[str, float] = {}
    for kind, count in counts.items():
        deeper = kept(replace(base, layers=(*base.layers, kind)))
        per_layer[kind] = (deeper - at_base) / base.length
        per_token += (count - base.layers.count(kind)) * per_layer[kind]
    taller = kept(replace(base, depth=base.depth + 1))
    per_patch += (vision.depth - base.depth) * (taller - at_base) / base.patches
    return ActivationCosts(
        per_token=per_token,
        per_patch=per_patch,
        per_layer_token=max(per_layer.values()),
        per_target=text.hidden_size * dtype.itemsize,
    )


def layer_kinds(text: PreTrainedConfig) -> tuple[str, ...]:
    """Of the layers of a language model, in order."""
    one_kind = ["full_attention"] * text.num_hidden_layers
    return tuple(getattr(text, "layer_types", None) or one_kind)


def _shallow(
    model_path: str, size: Size, learner: LearnerConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """A model of real width and few layers, whose weights take no memory."""
    config = AutoConfig.from_pretrained(model_path)
    text, vision = config.get_text_config(), config.vision_config
    text.num_hidden_layers, vision.depth = len(size.layers), size.depth
    if getattr(text, "layer_types", None):
        text.layer_types = list(size.layers)
    if levels := getattr(vision, "deepstack_visual_indexes", None):
        vision.deepstack_visual_indexes = list(range(len(levels)))
    if getattr(vision, "fullatt_block_indexes", None):
        vision.fullatt_block_indexes = [size.depth - 1]
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(
            config, attn_implementation=sharding.attention_of(learner), dtype=dtype
        )
    model.to_empty(device="cpu")
    sharding.prepare(model, learner)
    return model.to(dtype)


def _kept_bytes(model: PreTrainedModel, size: Size) -> float:
    policy = PolicyModel(model, temperature=1.0, forbidden_token_ids=[], logits_mb=1)
    batch = packed_batch((_tree(model.config, size),))
    if model.model.language_model.config._attn_implementation != TREE_ATTENTION:
        batch = padded_batch((_tree(model.config, size),), pad_token_id=0)
    meter = ActivationMeter()
    with meter.measure():
        policy.target_states(batch)
    return float(meter.num_bytes)


def _tree(config: PreTrainedConfig, size: Size) -> TokenTree:
    """An image and text, and an answer of one token."""
    vision = config.vision_config
    merged = size.patches // 4
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    image = MediaSlot(
        key="image",
        kind=MediaKind.image,
        pixel_values=torch.zeros(size.patches, values),
        grid_thw=torch.tensor([1, size.side, size.side]),
    )
    ids = torch.tensor([config.image_token_id] * merged + [0] * (size.tokens - 1))
    root = TreeSegment(token_ids=ids, position_ids=_positions(0, len(ids)), media=(image,))
    answer = TreeSegment(
        token_ids=torch.zeros(1, dtype=torch.long),
        position_ids=_positions(len(ids), 1),
        parent=0,
        trainable=True,
    )
    return TokenTree(segments=(root, answer))


def _positions(start: int, count: int) -> Tensor:
    return torch.arange(start, start + count).expand(3, -1)
