"""The architectures of the tiny models: small numbers in each family's own configuration.

What sets a family apart is kept: Qwen2.5-VL's window attention, Qwen3-VL's DeepStack levels,
Qwen3.5's linear attention in all but every fourth layer, patch sizes and normalisation.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families.tiny_tokenizer import (
    CHAT_TEMPLATE,
    CONTROL_TOKENS,
    build_tokenizer,
)

LINEAR_HEAD_DIM = 128  # smaller ones are refused by vLLM's kernel
LINEAR_HEADS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Blueprint:
    """One family in the terms of transformers."""

    name: str
    """Prefix of its classes, as in `Qwen3VLForConditionalGeneration`."""
    processor: str
    video_processor: str
    patch_size: int
    mean_and_std: float | None
    """Of every channel; None for CLIP's, the classes' own."""


BLUEPRINTS = {
    "qwen2_vl": Blueprint(
        name="Qwen2VL",
        processor="Qwen2VLProcessor",
        video_processor="Qwen2VLVideoProcessor",
        patch_size=14,
        mean_and_std=None,
    ),
    "qwen2_5_vl": Blueprint(
        name="Qwen2_5_VL",
        processor="Qwen2_5_VLProcessor",
        video_processor="Qwen2VLVideoProcessor",
        patch_size=14,
        mean_and_std=None,
    ),
    "qwen3_vl": Blueprint(
        name="Qwen3VL",
        processor="Qwen3VLProcessor",
        video_processor="Qwen3VLVideoProcessor",
        patch_size=16,
        mean_and_std=0.5,
    ),
    "qwen3_5": Blueprint(
        name="Qwen3_5",
        processor="Qwen3VLProcessor",
        video_processor="Qwen3VLVideoProcessor",
        patch_size=16,
        mean_and_std=0.5,
    ),
}
"""By `model_type`."""


def write_model(config: TinyModelConfig, folder: Path) -> None:
    """Write a randomly initialised model of `config.family` with its processor to `folder`."""
    import torch
    import transformers

    blueprint = BLUEPRINTS[config.family]
    tokenizer = build_tokenizer(config.vocab_size)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in CONTROL_TOKENS}
    model_config = getattr(transformers, f"{blueprint.name}Config")(
        text_config=_text(config, len(tokenizer), ids),
        vision_config=_vision(config, blueprint),
        tie_word_embeddings=True,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    model_class = getattr(transformers, f"{blueprint.name}ForConditionalGeneration")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = model_class(model_config).to(torch.float32)
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    model.save_pretrained(folder)
    _processor(blueprint, tokenizer).save_pretrained(folder)


def _processor(blueprint: Blueprint, tokenizer: Any) -> Any:
    import transformers

    # Both processors normalise alike: vLLM applies the image processor's mean to videos too.
    value = blueprint.mean_and_std
    normalise = {} if value is None else {"image_mean": [value] * 3, "image_std": [value] * 3}
    patches = {"patch_size": blueprint.patch_size, "temporal_patch_size": 2, "merge_size": 2}
    video_processor = getattr(transformers, blueprint.video_processor)
    return getattr(transformers, blueprint.processor)(
        image_processor=transformers.Qwen2VLImageProcessor(**patches, **normalise),
        tokenizer=tokenizer,
        video_processor=video_processor(**patches, **normalise),
        chat_template=CHAT_TEMPLATE,
    )


def _text(config: TinyModelConfig, vocab_size: int, ids: dict[str, int]) -> dict[str, Any]:
    common = {
        "vocab_size": vocab_size,
        "hidden_size": config.text_hidden,
        "intermediate_size": 2 * config.text_hidden,
        "num_hidden_layers": config.text_layers,
        "num_attention_heads": config.text_heads,
        "num_key_value_heads": max(1, config.text_heads // 2),
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "rope_parameters": _rope(config.head_dim),
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    if config.family in ("qwen2_vl", "qwen2_5_vl"):
        return common  # their head_dim is hidden_size / num_attention_heads
    if config.family == "qwen3_vl":
        rope = _rope(config.head_dim) | {"mrope_interleaved": True}
        return common | {"head_dim": config.head_dim, "rope_parameters": rope}
    rope = _rope(config.head_dim // 4) | {"mrope_interleaved": True, "partial_rotary_factor": 0.25}
    last = config.text_layers - 1
    return common | {
        "head_dim": config.head_dim,
        "rope_parameters": rope,
        "layer_types": [
            "full_attention" if index % 4 == 3 or index == last else "linear_attention"
            for index in range(config.text_layers)
        ],
        "linear_num_key_heads": LINEAR_HEADS,
        "linear_num_value_heads": LINEAR_HEADS,
        "linear_key_head_dim": LINEAR_HEAD_DIM,
        "linear_value_head_dim": LINEAR_HEAD_DIM,
        "linear_conv_kernel_dim": 4,
    }


def _rope(rotary_dim: int) -> dict[str, Any]:
    """Halves of the rotated part of a head: time, height, width. vLLM checks their sum."""
    quarter = max(1, rotary_dim // 8)
    return {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [rotary_dim // 2 - 2 * quarter, quarter, quarter],
    }


def _vision(config: TinyModelConfig, blueprint: Blueprint) -> dict[str, Any]:
    common = {
        "depth": config.vision_depth,
        "num_heads": config.vision_heads,
        "patch_size": blueprint.patch_size,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
    }
    if config.family == "qwen2_vl":
        # Here hidden_size is what the merger gives out.
        widths = {"embed_dim": config.vision_hidden, "hidden_size": config.text_hidden}
        return common | widths | {"mlp_ratio": 2}
    common |= {
        "hidden_size": config.vision_hidden,
        "intermediate_size": 2 * config.vision_hidden,
        "out_hidden_size": config.text_hidden,
    }
    if config.family == "qwen2_5_vl":
        return common | {
            "window_size": 8 * blueprint.patch_size,
            "fullatt_block_indexes": [config.vision_depth - 1],
            "tokens_per_second": 2,
        }
    common |= {"num_position_embeddings": 256}
    if config.family == "qwen3_vl":
        levels = list(range(config.vision_depth))[: config.text_layers]
        return common | {"deepstack_visual_indexes": levels}
    return common
