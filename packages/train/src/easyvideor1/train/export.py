"""A trained policy as an ordinary Hugging Face folder, for transformers and vLLM to load.

Holds safetensors in the dtype of the original checkpoint, config, tokenizer and processor, and a
generation config that samples as training did. Called by `learner.RankLearner.export` on rank 0,
and by `export_command` for a checkpoint.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForImageTextToText,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
)

from easyvideor1.schema.files import new_folder
from easyvideor1.train.config import RolloutConfig

INNER = "hf."
"""Prefix of the model's own weights in a `PolicyModel`."""


def write_folder(
    folder: Path,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    processor: ProcessorMixin,
    dtype: torch.dtype,
    sampling: Mapping[str, Any],
) -> None:
    """Write `weights` with everything around them to `folder`.

    Args:
        folder: an older one of that name is replaced.
        model: gives class, config and generation config; its own weights are not read.
        weights: full tensors by their names in `model`'s state dict.
        processor: with its tokenizer.
        dtype: to store the weights in.
        sampling: settings of the generation config that take the place of the model's own.
    """
    with new_folder(folder) as draft:
        shell = _shell(model, weights).to(dtype)
        shell.generation_config = _generation_config(model, sampling)
        shell.save_pretrained(draft)
        processor.save_pretrained(draft)
        if folder.exists():
            shutil.rmtree(folder)


def sampling_settings(rollout: RolloutConfig, forbidden_token_ids: Sequence[int]) -> dict[str, Any]:
    """The sampling law of training as a generation config says it.

    It is what the rewards were earned with, whatever the original model recommends. Tokens that
    training never samples have no trained logits. transformers knows no presence penalty.
    """
    return {
        "do_sample": True,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": max(0, rollout.top_k),  # 0 is off, in transformers and in vLLM
        "min_p": rollout.min_p or None,
        "repetition_penalty": rollout.repetition_penalty,
        "suppress_tokens": list(forbidden_token_ids),
    }


def stored_dtype(config: PretrainedConfig) -> torch.dtype:
    """That of the original checkpoint, and so of an export."""
    return config.dtype or torch.float32


def unloaded_model(model_path: str, *, trust_remote_code: bool) -> PreTrainedModel:
    """The model of a folder or hub id without its weights."""
    config = AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, trust_remote_code=trust_remote_code)
    with suppress(OSError):  # a checkpoint need not have one
        model.generation_config = GenerationConfig.from_pretrained(model_path)
    return model


def base_weights(model_path: str, *, trust_remote_code: bool) -> dict[str, Tensor]:
    """The weights of a folder or hub id in float32, as the learner begins with them."""
    model = AutoModelForImageTextToText.from_pretrained(
        model_path, dtype=torch.float32, trust_remote_code=trust_remote_code
    )
    return dict(model.state_dict())


def model_weights(saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a `PolicyModel` by their names in the model inside it."""
    return {name.removeprefix(INNER): value for name, value in saved.items()}


def _generation_config(model: PreTrainedModel, sampling: Mapping[str, Any]) -> GenerationConfig:
    """The model's own, which knows its end tokens, with other sampling settings."""
    own = model.generation_config
    return GenerationConfig.from_dict({**(own.to_dict() if own else {}), **sampling})


def _shell(model: PreTrainedModel, weights: dict[str, Tensor]) -> PreTrainedModel:
    """An unsharded model of the same class that holds `weights`."""
    with torch.device("meta"):
        shell = type(model)(model.config)
    shell.load_state_dict(weights, assign=True)
    shell.tie_weights()
    return shell
