"""Schema and defaults of `evr-train`. Composed and checked before torch is imported.

`LearnerConfig`, `OptimizerConfig` and `AlgorithmConfig` are what the learner reads.
"""

from dataclasses import dataclass, field
from enum import Enum

from easyvideor1.schema.errors import UserError


class AdvantageName(str, Enum):
    """How rewards of a group become advantages; the functions are in `advantages.ADVANTAGES`."""

    grpo = "grpo"


class ObjectiveName(str, Enum):
    """How the policy loss uses advantages; the functions are in `objectives.OBJECTIVES`."""

    clip = "clip"


class Schedule(str, Enum):
    """Course of the learning rate after the warm-up."""

    constant = "constant"
    cosine = "cosine"


class Attention(str, Enum):
    """Attention kernel of the model library."""

    sdpa = "sdpa"
    eager = "eager"
    flash_attention_2 = "flash_attention_2"


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    """The `algorithm` group: what is optimised. Defaults are GRPO with DAPO's clip bounds."""

    name: str = "grpo"
    """Of the recipe; it names the run's folder."""
    advantage: AdvantageName = AdvantageName.grpo
    objective: ObjectiveName = ObjectiveName.clip
    clip_low: float = 0.2
    """The probability ratio is held above 1 - clip_low where that would lower the loss further."""
    clip_high: float = 0.28
    """The probability ratio is held below 1 + clip_high."""
    advantage_epsilon: float = 1e-6
    """Added to a group's standard deviation before dividing."""

    def __post_init__(self) -> None:
        if not 0 < self.clip_low < 1:
            raise UserError(
                f"algorithm.clip_low must lie between 0 and 1, got {self.clip_low}; PPO uses 0.2"
            )
        if self.clip_high <= 0:
            raise UserError(
                f"algorithm.clip_high must be above 0, got {self.clip_high}; DAPO uses 0.28"
            )
        if self.advantage_epsilon <= 0:
            raise UserError(
                f"algorithm.advantage_epsilon must be above 0, got {self.advantage_epsilon}"
            )


@dataclass(kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW on fp32 weights, with a warm-up and an optional cosine decay."""

    lr: float = 1e-6
    """Reached after the warm-up."""
    warm_start_lr: float | None = None
    """Learning rate of the SFT warm start; None: as `lr`."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    weight_decay: float = 0.0
    """Applied to matrices; vectors (norms, biases) are never decayed."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this global L2 norm."""
    warmup_updates: int = 0
    """The learning rate rises linearly over this many updates."""
    schedule: Schedule = Schedule.constant
    min_lr_ratio: float = 0.0
    """The cosine ends at this share of `lr`."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or (self.warm_start_lr is not None and self.warm_start_lr <= 0):
            raise UserError(
                "learner.optimizer.lr and warm_start_lr must be above 0, "
                f"got lr={self.lr} warm_start_lr={self.warm_start_lr}"
            )
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(
                f"learner.optimizer.betas must be two numbers in [0, 1), got {list(self.betas)}"
            )
        if self.eps <= 0 or self.weight_decay < 0 or self.max_grad_norm <= 0:
            raise UserError(
                "learner.optimizer needs eps > 0, weight_decay >= 0 and max_grad_norm > 0, got "
                f"eps={self.eps} weight_decay={self.weight_decay} "
                f"max_grad_norm={self.max_grad_norm}"
            )
        if self.warmup_updates < 0 or not 0 <= self.min_lr_ratio <= 1:
            raise UserError(
                "learner.optimizer needs warmup_updates >= 0 and 0 <= min_lr_ratio <= 1, got "
                f"warmup_updates={self.warmup_updates} min_lr_ratio={self.min_lr_ratio}"
            )


@dataclass(kw_only=True, slots=True)
class LearnerConfig:
    """The `learner` group: how the update is computed. It changes speed and memory, not results."""

    ranks: int = 1
    """Processes that share the weights; one per GPU, or per core group on a CPU."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    updates_per_rollout: int = 1
    """Optimizer steps per `update` call: the examples are cut into as many parts."""
    micro_batch_tokens: int = 16_384
    """Padded tokens per forward and rank; one longer sequence runs alone."""
    logits_chunk_tokens: int = 1_024
    """Answer tokens whose logits are alive at once."""
    freeze_vision: bool = False
    """Train the language model alone; the vision tower with its mergers stays as it is."""
    activation_checkpointing: bool = False
    """Recompute each layer in the backward pass: less memory, about a third more time."""
    attention: Attention = Attention.sdpa
    threads: int | None = None
    """CPU threads per rank; None: the machine's cores shared by the ranks."""
    keep_last: int = 2
    """Newest checkpoints kept."""
    keep_best: int = 1
    """Checkpoints with the best validation score kept besides."""

    def __post_init__(self) -> None:
        for name in ("ranks", "updates_per_rollout", "micro_batch_tokens", "logits_chunk_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"learner.{name} must be at least 1, got {getattr(self, name)}")
        if self.threads is not None and self.threads < 1:
            raise UserError(f"learner.threads must be at least 1 or null, got {self.threads}")
        if self.keep_last < 1 or self.keep_best < 0:
            raise UserError(
                "learner.keep_last must be at least 1 and keep_best at least 0, "
                f"got keep_last={self.keep_last} keep_best={self.keep_best}"
            )
