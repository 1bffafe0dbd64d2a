"""AdamW with its parameter groups, the learning rate as a pure function, and gradient clipping."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import OptimizerConfig, Schedule


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; only those with two or more axes decay."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    beta1, beta2 = config.betas
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(beta1, beta2),
        eps=config.eps,
        fused=True,
    )


def learning_rate(config: OptimizerConfig, update: int, total_updates: int | None) -> float:
    """Learning rate of the update number `update`, counted from 0.

    Linear warm-up to `lr`: lr (update + 1) / warmup_updates. Then constant, or the cosine
    lr (m + (1 - m) (1 + cos(pi t)) / 2) with t from 0 at the end of the warm-up to 1 at
    `total_updates` and m = `min_lr_ratio` (SGDR, arXiv 1608.03983, without restarts).

    Raises:
        UserError: for a cosine without a total.
    """
    if update < config.warmup_updates:
        return config.lr * (update + 1) / config.warmup_updates
    if config.schedule is Schedule.constant:
        return config.lr
    if total_updates is None:
        raise UserError(
            "optimizer.schedule=cosine needs the total number of updates; use schedule=constant"
        )
    rest = max(1, total_updates - config.warmup_updates)
    share = min(1.0, (update - config.warmup_updates) / rest)
    floor = config.min_lr_ratio
    return config.lr * (floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2)


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> float:
    """Scales all gradients so that their global L2 norm is at most `max_norm`.

    Returns:
        The norm before, the same on every rank; infinite or NaN if any gradient is.
    """
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    norm: Tensor = get_total_norm([p.grad for p in trained if p.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    if math.isfinite(norm.item()):
        clip_grads_with_norm_(trained, max_norm, norm)
    return norm.item()
