"""Moves a learner between GPU and host memory, so that an engine can use the GPU in between.

Called by `learner.RankLearner`; the sequence around it is `hand_over`.
"""

import gc
from collections.abc import Iterable

import torch
from torch import nn


def move(
    models: Iterable[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device
) -> None:
    """Move parameters, gradients, buffers and optimizer state, sharded by FSDP2 or not.

    Parameters stay the objects that the optimizer knows. Memory that becomes free on a GPU is
    returned to the driver, since it is another process that will use it.
    """
    for model in models:
        model.to(device)
    for state in optimizer.state.values():
        for name, value in state.items():
            # AdamW counts its steps in a scalar on the CPU, wherever the parameter is.
            if isinstance(value, torch.Tensor) and value.ndim > 0:
                state[name] = value.to(device)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
