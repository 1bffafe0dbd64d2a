"""A trained policy as an ordinary Hugging Face folder, for transformers and vLLM to load.

Holds safetensors in the dtype of the original checkpoint, config, generation config, tokenizer and
processor. Called by `learner.RankLearner.export` on rank 0.
"""

import shutil
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, ProcessorMixin

from easyvideor1.schema.files import new_folder


def write_folder(
    folder: Path,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    processor: ProcessorMixin,
    dtype: torch.dtype,
) -> None:
    """Write `weights` with everything around them to `folder`.

    Args:
        folder: an older one of that name is replaced.
        model: gives class, config and generation config; its own weights are not read.
        weights: full tensors by their names in `model`'s state dict.
        processor: with its tokenizer.
        dtype: to store the weights in.
    """
    with new_folder(folder) as draft:
        _shell(model, weights).to(dtype).save_pretrained(draft)
        processor.save_pretrained(draft)
        if folder.exists():
            shutil.rmtree(folder)


def _shell(model: PreTrainedModel, weights: dict[str, Tensor]) -> PreTrainedModel:
    """An unsharded model of the same class that holds `weights`."""
    with torch.device("meta"):
        shell = type(model)(model.config)
    shell.load_state_dict(weights, assign=True)
    shell.tie_weights()
    shell.generation_config = model.generation_config
    return shell
