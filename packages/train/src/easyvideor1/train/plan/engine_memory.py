"""What an engine needs: weights, encoded media, and the KV cache for what it is asked at once.

Called by `command`.
"""

from dataclasses import dataclass

import torch
from transformers import AutoConfig, PreTrainedConfig

from easyvideor1.train.config import TrainConfig
from easyvideor1.train.plan.activations import layer_kinds
from easyvideor1.train.plan.learner_memory import ModelSizes, Part
from easyvideor1.train.rollout import engine_config

GIB = 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class KvCache:
    """What the tokens of an engine take."""

    bytes_per_token: float
    """Keys and values of all layers with full attention."""
    needed_tokens: float
    """For the answers that are generated at the same time, the prompt of a group once."""
    longest_tokens: int
    """Of one request, which has to fit."""

    @property
    def needed_bytes(self) -> float:
        return self.bytes_per_token * self.needed_tokens

    @property
    def longest_bytes(self) -> float:
        return self.bytes_per_token * self.longest_tokens


def kv_cache(config: TrainConfig, prompt_tokens: float, dtype: torch.dtype) -> KvCache:
    """Of one engine.

    Args:
        config: of the run.
        prompt_tokens: of a long prompt of the data.
        dtype: of the engine.
    """
    rollout = config.rollout
    settings = engine_config(config, 0)
    text = AutoConfig.from_pretrained(config.model.path).get_text_config()
    per_engine = -(-rollout.batch_size * rollout.group_size // rollout.engines)
    answers = min(settings.max_num_seqs, per_engine)
    groups = -(-answers // rollout.group_size)
    return KvCache(
        bytes_per_token=_kv_bytes_per_token(text, dtype) / settings.tensor_parallel_size,
        needed_tokens=groups * prompt_tokens + answers * rollout.max_new_tokens,
        longest_tokens=settings.max_model_len or text.max_position_embeddings,
    )


def _kv_bytes_per_token(text: PreTrainedConfig, dtype: torch.dtype) -> float:
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    layers = sum(kind != "linear_attention" for kind in layer_kinds(text))
    return 2.0 * layers * text.num_key_value_heads * head_dim * dtype.itemsize


def engine_parts(
    config: TrainConfig, sizes: ModelSizes, dtype: torch.dtype, *, on_gpu: bool
) -> list[Part]:
    """Memory of one engine on each of its devices, without the KV cache."""
    settings = engine_config(config, 0)
    parallel = settings.tensor_parallel_size
    model = AutoConfig.from_pretrained(config.model.path)
    text, vision = model.get_text_config(), model.vision_config
    levels = 1 + len(getattr(vision, "deepstack_visual_indexes", None) or ())
    encoded = (settings.encoder_cache_tokens or 0) * text.hidden_size * levels * dtype.itemsize
    parts = [
        Part(name="weights", num_bytes=dtype.itemsize * sizes.base_weights / parallel),
        Part(name="encoded media", num_bytes=encoded),
    ]
    if not on_gpu:
        parts.append(Part(name="media cache", num_bytes=settings.media_cache_gb * GIB))
    return parts
