"""A trained policy as an ordinary Hugging Face folder, for transformers and vLLM to load.

Holds safetensors in the dtype of the original checkpoint, config, generation config, tokenizer and
processor. Called by `learner.RankLearner.export` on rank 0.
"""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch import Tensor
from transformers import PreTrainedModel, ProcessorMixin


def write_folder(
    folder: Path,
    model: PreTrainedModel,
    weights: dict[str, Tensor],
    processor: ProcessorMixin,
    dtype: torch.dtype,
) -> None:
    """Write `weights` with everything around them to `folder`, all of it or nothing.

    Args:
        folder: an older one of that name is replaced.
        model: gives class, config and generation config; its own weights are not read.
        weights: full tensors by their names in `model`'s state dict.
        processor: with its tokenizer.
        dtype: to store the weights in.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _shell(model, weights).to(dtype).save_pretrained(partial)
        processor.save_pretrained(partial)
        partial.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _shell(model: PreTrainedModel, weights: dict[str, Tensor]) -> PreTrainedModel:
    """An unsharded model of the same class that holds `weights`."""
    with torch.device("meta"):
        shell = type(model)(model.config)
    shell.load_state_dict(weights, assign=True)
    shell.tie_weights()
    shell.generation_config = model.generation_config
    return shell
