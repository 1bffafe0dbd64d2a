"""Schema and defaults of `evr-train`. Composed and checked before torch is imported.

`LearnerConfig` and `OptimizerConfig` are what the learner reads, the rest is the loop's. The
`algorithm` group is in `algorithm_config`, groups of the lower packages are imported from there.
"""

import importlib.util
import os
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from omegaconf import MISSING

from easyvideor1.evaluate.config import EngineConfig, check_reshaping
from easyvideor1.preprocess.config import (
    CacheConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    RayConfig,
)
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.errors import UserError
from easyvideor1.train.algorithm_config import (
    MAX_KL_ERROR,
    AdvantageName,
    AlgorithmConfig,
    KlController,
    OfflineTreatment,
)

NEEDS_NO_GROUP = (AdvantageName.reinforce_pp, AdvantageName.remax)
"""Estimators whose baseline is not the group."""


NO_CRITIC = (
    "there is no critic; use algorithm=grpo (the baseline is the group), algorithm=remax (the "
    "greedy answer) or algorithm=reinforce_pp (the whole step), all of them with PPO's clip"
)


class Schedule(StrEnum):
    """Course of the learning rate after the warm-up."""

    constant = "constant"
    cosine = "cosine"


class PlacementStrategy(StrEnum):
    """How the places of learner ranks are chosen among the nodes of a cluster."""

    pack = "pack"
    """On as few nodes as hold them."""
    spread = "spread"
    """On as many nodes as there are."""


class Attention(StrEnum):
    """Attention kernel of the model library."""

    sdpa = "sdpa"
    eager = "eager"
    flash_attention_2 = "flash_attention_2"


class FrozenPart(StrEnum):
    """A part of the model that may be kept as it is; together they are the whole model."""

    vision = "vision"
    """The vision tower without its mergers."""
    merger = "merger"
    """What carries its features into the language model: the merger and DeepStack's mergers."""
    language = "language"
    """The language model with its embedding and head."""


class LoraInit(StrEnum):
    """How the matrix A begins; B begins as zero, so that the model is unchanged."""

    kaiming = "kaiming"
    """Uniform, as a linear layer of torch."""
    gaussian = "gaussian"
    """Normal, with a deviation of 1 / rank."""


@dataclass(kw_only=True, slots=True)
class LoraConfig:
    """Low-rank adapters (arXiv 2106.09685): W + scale·BA, of which only A and B are trained."""

    rank: int = 0
    """Of each adapter; 0 trains the weights themselves."""
    alpha: int = 32
    """scale = alpha / rank."""
    use_rslora: bool = False
    """scale = alpha / √rank (arXiv 2312.03732), for large ranks."""
    parts: list[FrozenPart] = field(default_factory=lambda: [FrozenPart.language])
    """Parts of the model whose linear layers get an adapter. Everything else stays as it is."""
    modules: list[str] | None = None
    """Only linear layers of the parts whose name ends in one of these, from a dot on; `*` stands
    for anything, e.g. `[q_proj, v_proj]` or `[layers.1?.mlp.*]`. null: all, but for the head."""
    init: LoraInit = LoraInit.kaiming
    dropout: float = 0.0
    """Only 0: with dropout an update would train another policy than the one that sampled."""

    def __post_init__(self) -> None:
        if self.rank < 0 or self.alpha <= 0:
            raise UserError(
                "learner.lora needs rank >= 0 and alpha > 0, "
                f"got rank={self.rank} alpha={self.alpha}"
            )
        if self.dropout != 0:
            raise UserError(
                f"learner.lora.dropout={self.dropout} is not there: log-probs of an update would "
                "be those of another policy than the one that sampled, and the reference would be "
                "noise; leave it at 0, and use learner.optimizer.weight_decay against overfitting"
            )
        if not self.parts:
            raise UserError(
                "learner.lora.parts is empty; name parts out of "
                f"{', '.join(FrozenPart)}, or set learner.lora.rank=0"
            )
        if self.modules is not None and not self.modules:
            raise UserError("learner.lora.modules is empty; null adapts all layers of the parts")

    @property
    def is_on(self) -> bool:
        """Whether adapters are trained and not the weights themselves."""
        return self.rank > 0


@dataclass(kw_only=True, slots=True)
class OptimizerConfig:
    """AdamW on fp32 weights, with a warm-up and an optional cosine decay."""

    lr: float = 1e-6
    """Reached after the warm-up."""
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
        if self.lr <= 0:
            raise UserError(f"optimizer.lr must be above 0, got {self.lr}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(
                f"optimizer.betas must be two numbers in [0, 1), got {list(self.betas)}"
            )
        if self.eps <= 0 or self.weight_decay < 0 or self.max_grad_norm <= 0:
            raise UserError(
                "optimizer needs eps > 0, weight_decay >= 0 and max_grad_norm > 0, got "
                f"eps={self.eps} weight_decay={self.weight_decay} "
                f"max_grad_norm={self.max_grad_norm}"
            )
        if self.warmup_updates < 0 or not 0 <= self.min_lr_ratio <= 1:
            raise UserError(
                "optimizer needs warmup_updates >= 0 and 0 <= min_lr_ratio <= 1, got "
                f"warmup_updates={self.warmup_updates} min_lr_ratio={self.min_lr_ratio}"
            )


class BatchLayout(StrEnum):
    """How the answers of a micro-batch lie side by side. The update is the same."""

    shared_prefix = "shared_prefix"
    """The prompt once, then all its answers; several prompts one after another."""
    packed = "packed"
    """The prompt with each answer anew, one sequence after another without padding."""
    padded = "padded"
    """The same as rows that are padded to the longest, with any attention of transformers."""

    @property
    def is_padded(self) -> bool:
        """Whether branches are rows."""
        return self is BatchLayout.padded

    @property
    def shares_prompts(self) -> bool:
        """Whether a prompt is computed once for all of its answers."""
        return self is BatchLayout.shared_prefix


@dataclass(kw_only=True, slots=True)
class LearnerConfig:
    """The `learner` group: the optimizer, and how the update is computed."""

    ranks: int = 1
    """Processes that share the weights; one per GPU, or per core group on a CPU."""
    shard_size: int | None = None
    """Ranks that together hold one copy of the weights; null: all of them. A divisor of `ranks`,
    e.g. the GPUs of a node: the weights are then gathered within it, and only gradients cross."""
    process_group_timeout_s: float = 1_800.0
    """A rank that waits longer in a collective for the others fails. They wait for each other's
    micro-batches there, never for a rollout."""
    sequence_parallel_size: int = 1
    """Ranks that share one sequence; only 1 so far."""
    critic: bool = False
    """A value model for advantages per token; not there so far."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    updates_per_rollout: int = 1
    """Optimizer steps per rollout: its completions are cut into as many parts, then each part is
    divided over the ranks."""
    layout: BatchLayout = BatchLayout.shared_prefix
    micro_batch_tokens: int = 16_384
    """Tokens per forward and rank, those that `layout` computes and, where prompts are shared, what
    the vision tower costs beside; a prompt longer than half of it takes further answers up to half
    of it, and one longer sequence runs alone."""
    logits_mb: int = 256
    """Memory of the logits that are alive at once, in all their copies; whatever is left of an
    answer is computed after it."""
    freeze: list[FrozenPart] = field(default_factory=list)
    """Parts of the model that stay as they are."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    activation_checkpointing: bool = False
    """Recompute each layer in the backward pass: less memory, about a third more time."""
    attention: Attention = Attention.sdpa
    """Of the vision tower; of the language model with `layout=padded` alone."""
    allow_slow_kernels: bool = False
    """Train on a GPU although a part of the model would run on a slow fallback."""
    threads: int | None = None
    """CPU threads per rank; None: as `OMP_NUM_THREADS` says, which is 1 on a machine without GPU.
    More only pay on idle cores."""
    timeout_s: float = 3_600.0
    """An update, save or export that takes longer ends the run."""
    max_skipped_updates: int = 5
    """Optimizer steps in a row without a finite loss and gradient; one more ends the run."""
    keep_last: int = 2
    """Newest checkpoints kept."""
    keep_best: int = 1
    """Checkpoints with the best validation score whose weights are kept besides."""
    async_save: bool = False
    """Write checkpoints while training goes on: an update stops only for a copy of weights and
    optimizer in host memory, which has to have room for it."""

    def __post_init__(self) -> None:
        for name in ("ranks", "updates_per_rollout", "micro_batch_tokens", "logits_mb"):
            if getattr(self, name) < 1:
                raise UserError(f"learner.{name} must be at least 1, got {getattr(self, name)}")
        if set(self.freeze) == set(FrozenPart):
            raise UserError(
                f"learner.freeze={[part.value for part in self.freeze]} leaves nothing to train; "
                "leave out at least one part"
            )
        both = [str(part) for part in self.freeze if part in self.lora.parts]
        if self.lora.is_on and both:
            raise UserError(
                f"learner.freeze={both} names what learner.lora.parts adapts; take it out of one "
                "of them (with adapters all weights of the model itself stay as they are)"
            )
        self._check_ranks()
        if self.max_skipped_updates < 0:
            raise UserError(
                f"learner.max_skipped_updates must be at least 0, got {self.max_skipped_updates}"
            )
        if self.threads is not None and self.threads < 1:
            raise UserError(f"learner.threads must be at least 1 or null, got {self.threads}")
        if self.timeout_s <= 0:
            raise UserError(f"learner.timeout_s must be above 0, got {self.timeout_s}")
        if self.keep_last < 1 or self.keep_best < 0:
            raise UserError(
                "learner.keep_last must be at least 1 and keep_best at least 0, "
                f"got keep_last={self.keep_last} keep_best={self.keep_best}"
            )

    def _check_ranks(self) -> None:
        if self.shard_size is not None and (
            self.shard_size < 1 or self.ranks % self.shard_size != 0
        ):
            raise UserError(
                f"learner.shard_size must divide learner.ranks={self.ranks}, got "
                f"{self.shard_size}; null spreads one copy of the weights over all ranks"
            )
        if self.process_group_timeout_s <= 0:
            raise UserError(
                "learner.process_group_timeout_s must be above 0, "
                f"got {self.process_group_timeout_s}"
            )
        if self.sequence_parallel_size != 1:
            raise UserError(
                f"learner.sequence_parallel_size={self.sequence_parallel_size} is not there: every "
                "sequence runs on one rank; for long ones lower learner.micro_batch_tokens, set "
                "learner.activation_checkpointing=true and raise learner.ranks"
            )
        if self.critic:
            raise UserError(
                f"learner.critic=true is not there: {NO_CRITIC}; raise rollout.group_size for a "
                "better baseline"
            )


class MixingMode(Enum):  # not a StrEnum: str has a method `replace`
    """Where offline trajectories enter a group."""

    none = "none"
    replace = "replace"
    """They take slots of the group; so many completions fewer are sampled."""
    gated = "gated"
    """They take slots where the sampled group turned out too poor."""
    append = "append"
    """They come on top of a full group."""


@dataclass(kw_only=True, slots=True)
class MixingConfig:
    """The `mixing` group: how offline trajectories join sampled completions.

    What the loss makes of them is `algorithm.offline`.
    """

    mode: MixingMode = MixingMode.none
    num_offline: int = 1
    """Trajectories in a group, as far as its sample has usable ones; another step takes others."""
    accuracy_below: float = 0.5
    """`gated`: groups whose mean accuracy is below this get them."""

    def __post_init__(self) -> None:
        if self.num_offline < 1:
            raise UserError(f"mixing.num_offline must be at least 1, got {self.num_offline}")
        if not 0 < self.accuracy_below <= 1:
            raise UserError(
                "mixing.accuracy_below must be above 0, which no accuracy is below, and at most 1, "
                f"got {self.accuracy_below}"
            )


class Seeding(StrEnum):
    """Where the randomness of an answer comes from."""

    request = "request"
    """A seed per prompt and step: an answer does not depend on what else the engine is asked."""
    engine = "engine"
    """The engine's own stream, which costs nothing: a seeded request needs a generator of its own,
    drawn from one after the other. Two runs differ as soon as their requests arrive otherwise."""


class WeightTransferName(StrEnum):
    """How new weights reach the engines."""

    auto = "auto"
    """`shared_memory` without GPUs, `ipc` where engines and learner share them, else `nccl`."""
    shared_memory = "shared_memory"
    """Through host memory of one machine."""
    ipc = "ipc"
    """From GPU memory that the learner shares with the engine on the same GPU."""
    nccl = "nccl"
    """From GPU to GPU, also between machines."""


@dataclass(kw_only=True, slots=True)
class RolloutConfig:
    """The `rollout` group: what is sampled in a step, and by which engines.

    The sampling law: with `top_p`, `top_k`, `min_p` and both penalties off, completions are drawn
    from the policy that the learner trains, softmax(logits / temperature) over the tokens that may
    be sampled. Each of these five makes it another distribution: the first three leave out unlikely
    tokens and share their probability among the rest, the penalties move probability away from
    tokens that were written before. The engine's log-probs are those of that other distribution;
    the gradient is that of the policy and so no longer the gradient of the expected reward.
    """

    batch_size: int = 32
    """Prompts per step."""
    group_size: int = 8
    """Completions per prompt; the group is the baseline of its members."""
    temperature: float = 1.0
    """The learner divides its logits by the same."""
    top_p: float = 1.0
    """Sample from the likeliest tokens that together have so much of the probability; 1: off."""
    top_k: int = -1
    """Sample from so many likeliest tokens; -1: off."""
    min_p: float = 0.0
    """Leave out tokens below so many times the probability of the likeliest; 0: off."""
    presence_penalty: float = 0.0
    """Taken from the logit of every token that the completion holds already; 0: off."""
    repetition_penalty: float = 1.0
    """Divides the positive logit, and multiplies the negative one, of every token that prompt or
    completion hold already; 1: off."""
    max_new_tokens: int = 1_024
    """Longest completion, its end token included."""
    max_prompt_tokens: int = 16_384
    """Longest prompt after its media are expanded; longer ones are dropped and counted."""
    engines: int = 1
    """vLLM engines; prompts about the same media go to the same one."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """Of each engine. `max_model_len: null` becomes max_prompt_tokens + max_new_tokens,
    `encoder_cache_tokens: null` four times max_prompt_tokens."""
    seeding: Seeding | None = None
    """null: `request` on a CPU, `engine` on a GPU."""
    deterministic: bool = False
    """Sample the same tokens again in a run that is repeated or continued: the prompts of a step
    reach the engine in one order and before its first computation, with empty caches, so that no
    timing decides which of them are computed, and rounded, together. Slower: nothing is prepared
    while the engine works. On a CPU with as many threads; kernels of a GPU may differ all the same.
    """
    colocated: bool = False
    """Engines and learner take turns on the same GPUs: the engines give their memory away during an
    update, the learner gives its own away during a rollout. Each engine is on one GPU, with one
    rank."""
    weight_transfer: WeightTransferName = WeightTransferName.auto
    publish_bucket_mb: int = 1_024
    """Weights under way to the engines at a time, beside the weights themselves."""
    start_timeout_s: float = 900.0
    """A start-up that takes longer ends the run."""
    timeout_s: float = 1_800.0
    """A rollout, publish or validation that takes longer ends the run."""
    max_engine_restarts: int = 3
    """Engines that die are started anew so many times in all, and what they were asked is asked
    again; where weights go through shared memory, elsewhere the death of one ends the run."""

    def __post_init__(self) -> None:
        for name in (
            "batch_size",
            "group_size",
            "max_new_tokens",
            "max_prompt_tokens",
            "engines",
            "publish_bucket_mb",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"rollout.{name} must be at least 1, got {getattr(self, name)}")
        if self.temperature <= 0:
            raise UserError(
                f"rollout.temperature must be above 0, got {self.temperature}; greedy samples of a "
                "prompt would all be equal"
            )
        if self.max_engine_restarts < 0:
            raise UserError(
                f"rollout.max_engine_restarts must be at least 0, got {self.max_engine_restarts}"
            )
        check_reshaping(
            "rollout",
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
        )
        if self.deterministic and self.seeding is Seeding.engine:
            raise UserError(
                "rollout.deterministic=true needs rollout.seeding=request: the engine's own stream "
                "goes on where it is, also in a run that is continued"
            )
        if self.colocated and self.engine.tensor_parallel_size > 1:
            raise UserError(
                "rollout.colocated=true needs rollout.engine.tensor_parallel_size=1, got "
                f"{self.engine.tensor_parallel_size}; use more rollout.engines, one per GPU"
            )
        if self.weight_transfer is WeightTransferName.ipc and not self.colocated:
            raise UserError(
                "rollout.weight_transfer=ipc needs rollout.colocated=true: memory is shared by "
                "processes of one GPU; use nccl where engines have GPUs of their own"
            )
        if self.weight_transfer is WeightTransferName.nccl and self.colocated:
            raise UserError(
                "rollout.weight_transfer=nccl needs rollout.colocated=false: two processes of one "
                "GPU cannot be in one NCCL group; use ipc"
            )
        if self.start_timeout_s <= 0 or self.timeout_s <= 0:
            raise UserError(
                "rollout.start_timeout_s and timeout_s must be above 0, "
                f"got {self.start_timeout_s} and {self.timeout_s}"
            )

    @property
    def reshaped_by(self) -> list[str]:
        """The settings that make the sampling law another than the policy, as `name=value`."""
        off = {
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "repetition_penalty": 1.0,
        }
        return [
            f"rollout.{name}={getattr(self, name):g}"
            for name, value in off.items()
            if getattr(self, name) != value
        ]


@dataclass(kw_only=True, slots=True)
class WarmStartConfig:
    """Supervised updates on offline trajectories before reinforcement learning."""

    steps: int = 0
    """Updates; 0 for none."""
    batch_size: int = 32
    """Trajectories per update."""
    answer_weight: float = 1.0
    """Weight in the loss of the tokens between `<answer>` and `</answer>`; all others weigh 1."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """Of the warm start alone; reinforcement learning starts with a fresh one."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch_size < 1:
            raise UserError(
                "train.warm_start needs steps >= 0 and batch_size >= 1, "
                f"got steps={self.steps} batch_size={self.batch_size}"
            )
        if self.answer_weight <= 0:
            raise UserError(
                f"train.warm_start.answer_weight must be above 0, got {self.answer_weight}"
            )


@dataclass(kw_only=True, slots=True)
class TrainSection:
    """How long to train, and how often what happens."""

    steps: int = 100
    """Reinforcement-learning steps; 0 with a warm start is supervised training alone."""
    save_every: int = 50
    """Steps, warm-start updates likewise; the last one is always saved."""
    validate_every: int = 10
    """Steps; the first and the last weights are always validated."""
    resume: str = "auto"
    """`auto`: from this run's newest checkpoint, if any. `never`: refuse a folder that holds one.
    Otherwise a checkpoint folder, or a run's folder for its newest checkpoint."""
    export_checkpoints: bool = False
    """Write a Hugging Face model folder `export` into every checkpoint, not only at the end."""
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UserError(f"train.steps must not be negative, got {self.steps}")
        if self.save_every < 1 or self.validate_every < 1:
            raise UserError(
                "train.save_every and train.validate_every must be at least 1, "
                f"got {self.save_every} and {self.validate_every}"
            )


@dataclass(kw_only=True, slots=True)
class ValidationConfig:
    """The `validation` group: benchmarks that are run every `train.validate_every` steps."""

    benchmarks: list[str] = field(default_factory=list)
    """Names as of `evr-evaluate benchmark=…`; beside `data.validation`, or in its place."""
    overrides: list[str] = field(default_factory=list)
    """As on the command line of `evr-evaluate`, e.g.
    `[benchmarks.mvbench.data.media_root=/videos]`."""
    best_by: str | None = None
    """What rates checkpoints and what a sweep maximises: `accuracy` of `data.validation`, or a
    benchmark, by its first official number; null: the former where there is one, else the first."""

    def __post_init__(self) -> None:
        if self.best_by not in (None, "accuracy", *self.benchmarks):
            raise UserError(
                f"validation.best_by={self.best_by} is none of accuracy"
                + "".join(f", {name}" for name in self.benchmarks)
            )


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Where metrics go. Console and `metrics.jsonl` in the run's folder are always written."""

    mlflow: bool = True
    mlflow_uri: str | None = None
    """Tracking store; null: `outputs/mlflow.db`."""
    mlflow_experiment: str = "easyvideor1"
    tensorboard: bool = False
    """Event files in `tensorboard/` of the run's folder; needs the extra of that name."""
    wandb: bool = False
    """Weights & Biases, by its own variables, e.g. WANDB_MODE=offline; needs the extra `wandb`."""
    wandb_project: str = "easyvideor1"
    peak_tflops: float | None = None
    """Of a rank's device, for `learner/mfu`; null: of its GPU in bfloat16, where that is known."""
    samples_every: int = 10
    """Steps between tables of sampled completions."""
    samples_groups: int = 4
    """Groups per table; 0 for no tables."""
    samples_frames: int = 8
    """Frames of each medium on the page that goes with a table; 0 for no page."""

    def __post_init__(self) -> None:
        for name in ("tensorboard", "wandb"):
            if getattr(self, name) and importlib.util.find_spec(name) is None:
                raise UserError(
                    f"tracking.{name}=true needs the package {name}, which is not installed: "
                    f"install it (pip install 'easyvideor1-train[{name}]'), or set "
                    f"tracking.{name}=false"
                )
        if self.peak_tflops is not None and self.peak_tflops <= 0:
            raise UserError(f"tracking.peak_tflops must be above 0, got {self.peak_tflops}")
        if self.samples_every < 1 or self.samples_groups < 0 or self.samples_frames < 0:
            raise UserError(
                "tracking needs samples_every >= 1, samples_groups >= 0 and samples_frames >= 0, "
                f"got {self.samples_every}, {self.samples_groups} and {self.samples_frames}"
            )


@dataclass(kw_only=True, slots=True)
class TrainRayConfig(RayConfig):
    """The processes a run is spread over."""

    object_store_mb: int = 256
    """Shared memory of our own Ray; only records pass through it."""
    engine_gpus: float | None = None
    """GPUs an engine reserves; null: its tensor_parallel_size where there are GPUs, half of one if
    `rollout.colocated`, else 0."""
    rank_gpus: float | None = None
    """GPUs a learner rank reserves; null: 1 where there are GPUs, half of one if
    `rollout.colocated`, else 0."""
    placement: PlacementStrategy = PlacementStrategy.pack
    """Where ranks and engines run on a cluster of several nodes, as far as they may be apart."""
    placement_timeout_s: float = 300.0
    """A cluster without room for all of them by then is refused; time for one that grows."""

    def __post_init__(self) -> None:
        if self.placement_timeout_s <= 0:
            raise UserError(
                f"ray.placement_timeout_s must be above 0, got {self.placement_timeout_s}"
            )


class Job(StrEnum):
    train = "train"
    conformance = "conformance"
    """Check that processor, engine and learner agree on `model`; trains nothing."""
    export = "export"
    """Write a checkpoint as a Hugging Face folder; trains nothing."""
    plan = "plan"
    """Say what a run will take, and refuse what cannot fit; trains and decodes nothing."""
    collect = "collect"
    """Let a model answer the training samples and keep good answers as trajectories."""


@dataclass(kw_only=True, slots=True)
class PlanConfig:
    """Where `job=plan` is to see the run; null: on this machine."""

    gpu_gb: float | None = None
    """Memory of a GPU in GB (10^9), e.g. 80; null: of this machine's; without one all is planned
    for host memory."""
    host_gb: float | None = None
    """Host memory of all nodes together; null: what is available here."""
    disk_gb: float | None = None
    """Free where the run writes; null: what is free here."""

    def __post_init__(self) -> None:
        for name in ("gpu_gb", "host_gb", "disk_gb"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UserError(f"plan.{name} must be above 0 or null, got {value}")


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """What `job=export` writes."""

    checkpoint: str = "newest"
    """`newest` or `best` (by validation accuracy) of `output_dir`, or the folder of a checkpoint of
    any run."""
    folder: str | None = None
    """Where to; null: `exports/<checkpoint>` in the run's folder. Must not be there yet."""
    model: str | None = None
    """Where the model that the run began with lies; null: where the run found it."""
    adapter: bool = False
    """Write the adapters of a LoRA run besides, in peft's format, into `adapter` in the folder."""


@dataclass(kw_only=True, slots=True)
class EndpointConfig:
    """An OpenAI-compatible endpoint whose model answers in place of `model.path`."""

    base_url: str | None = None
    """E.g. `http://127.0.0.1:8000/v1`; null: no endpoint."""
    model: str | None = None
    """Name under which it serves the model."""
    api_key_env: str | None = None
    """Environment variable that holds the key; null where it asks for none."""
    timeout_s: float = 600.0
    """Of one request."""
    max_retries: int = 4
    """After a lost connection, a time-out and the statuses 408, 409, 429 and 5xx."""

    def __post_init__(self) -> None:
        if self.base_url is not None and self.model is None:
            raise UserError(
                "collect.endpoint.base_url is set and collect.endpoint.model is not; name the "
                "model as the endpoint serves it"
            )
        if self.timeout_s <= 0 or self.max_retries < 0:
            raise UserError(
                "collect.endpoint needs timeout_s > 0 and max_retries >= 0, got "
                f"timeout_s={self.timeout_s} max_retries={self.max_retries}"
            )
        if self.api_key_env is not None and not os.environ.get(self.api_key_env):
            raise UserError(
                f"collect.endpoint.api_key_env={self.api_key_env}: this environment variable is "
                "not set"
            )


@dataclass(kw_only=True, slots=True)
class CollectConfig:
    """What `job=collect` asks and keeps. How answers are drawn is in `rollout`."""

    endpoint: EndpointConfig = field(default_factory=EndpointConfig)
    answers: int = 8
    """To each sample."""
    min_score: float = 1.0
    """Answers that earn less are not kept as trajectories."""
    keep: int = 1
    """Trajectories per sample at most: the best, of equally good ones the shortest."""
    source: str | None = None
    """Name of who answered, in the trajectories; null: that of the model."""
    concurrency: int = 16
    """Samples that are asked about at a time."""
    folder: str | None = None
    """Where to; null: `trajectories` in `output_dir`."""

    def __post_init__(self) -> None:
        for name in ("answers", "keep", "concurrency"):
            if getattr(self, name) < 1:
                raise UserError(f"collect.{name} must be at least 1, got {getattr(self, name)}")


@dataclass(kw_only=True, slots=True)
class TrainConfig:
    """Everything `evr-train` reads."""

    job: Job = Job.train
    seed: int = 0
    run_name: str = "dev"
    output_dir: str = MISSING
    """The run's folder."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    budget: Budgets = field(default_factory=Budgets)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    mixing: MixingConfig = field(default_factory=MixingConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    train: TrainSection = field(default_factory=TrainSection)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    ray: TrainRayConfig = field(default_factory=TrainRayConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    export: ExportConfig = field(default_factory=ExportConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)

    def __post_init__(self) -> None:
        if self.rollout.colocated and self.rollout.engines != self.learner.ranks:
            raise UserError(
                "rollout.colocated=true needs as many engines as ranks, got "
                f"rollout.engines={self.rollout.engines} and learner.ranks={self.learner.ranks}"
            )
        if self.train.steps == 0 and self.train.warm_start.steps == 0:
            raise UserError("nothing to train: train.steps and train.warm_start.steps are both 0")
        self._check_group_size()
        self._check_kl_horizon()
        self._check_sampling_law()
        self._check_mixing()
        self._check_reward_parts()

    def _check_kl_horizon(self) -> None:
        kl, mixing, group_size = self.algorithm.kl, self.mixing, self.rollout.group_size
        if mixing.mode is MixingMode.append:
            group_size += mixing.num_offline
        num_completions = self.rollout.batch_size * group_size
        least = int(MAX_KL_ERROR * num_completions) + 1
        if kl.controller is KlController.adaptive and kl.horizon < least:
            raise UserError(
                f"algorithm.kl.horizon={kl.horizon} is too short for the {num_completions} "
                "completions of a step (rollout.batch_size times group_size, and the offline ones "
                "of mixing=append): the coefficient could fall to 0 in one; it must be at least "
                f"{least}, 10000 is usual"
            )

    def _check_group_size(self) -> None:
        """A group is the baseline of its members, and must have spread."""
        size, advantage = self.rollout.group_size, self.algorithm.advantage
        if size == 1 and advantage.name not in NEEDS_NO_GROUP:
            raise UserError(
                f"algorithm.advantage.name={advantage.name} needs rollout.group_size of at least "
                f"2, so that a group has a baseline, got {size}"
            )
        if size == 1 and self.algorithm.dynamic_sampling.enabled:
            raise UserError(
                "algorithm.dynamic_sampling.enabled=true needs rollout.group_size of at least 2: "
                "a group of one has no spread and would always be drawn again"
            )
        if advantage.name is AdvantageName.pass_at_k and advantage.k > size:
            raise UserError(
                f"algorithm.advantage.k={advantage.k} is above rollout.group_size={size}"
            )

    def _check_mixing(self) -> None:
        """Offline completions leave enough sampled ones; a loss for them needs some."""
        offline, mixing = self.algorithm.offline, self.mixing
        if mixing.mode is MixingMode.none:
            if offline.treatment is not OfflineTreatment.as_policy:
                raise UserError(
                    f"algorithm.offline.treatment={offline.treatment} is about offline completions "
                    "and mixing=none has none; set mixing=replace, gated or append, or "
                    "algorithm.offline.treatment=as_policy"
                )
            return
        if mixing.mode is MixingMode.append:
            return
        size = self.rollout.group_size
        needed = 1 if offline.in_baseline else 2
        if size - mixing.num_offline < needed:
            raise UserError(
                f"mixing={mixing.mode.value} with mixing.num_offline={mixing.num_offline} leaves "
                f"{size - mixing.num_offline} sampled completions of "
                f"rollout.group_size={size} and needs {needed}; raise the group size, or set "
                "mixing=append"
            )

    def _check_sampling_law(self) -> None:
        """A correction compares the engine's log-probs with those of the policy."""
        reshaped_by = self.rollout.reshaped_by
        if reshaped_by and self.algorithm.correction.is_on:
            raise UserError(
                f"algorithm.correction cannot go with {' and '.join(reshaped_by)}: the engine's "
                "log-probs are then those of a reshaped distribution and not of the policy, so the "
                "ratio would correct what is no error; turn these off, or set "
                "algorithm.correction.weight=none and algorithm.correction.reject=none"
            )

    def _check_reward_parts(self) -> None:
        """Parts that are named must be there; a reward function of one's own says so later."""
        algorithm, parts = self.algorithm, self.reward.parts
        named: dict[str, str] = {}
        if algorithm.advantage.name is AdvantageName.gdpo:
            named = {key: "algorithm.advantage.keys" for key in algorithm.advantage.keys}
            named.pop("kl", None)
        if algorithm.dynamic_sampling.enabled:
            named[algorithm.dynamic_sampling.key] = "algorithm.dynamic_sampling.key"
        if self.mixing.mode is MixingMode.gated:
            named["accuracy"] = "mixing=gated"
        for key, where in named.items():
            if key not in parts and self.reward.function is None:
                raise UserError(
                    f"{where} names {key!r}, which is no part of this reward; it has "
                    f"{', '.join(parts)}; penalties are parts where they are on "
                    "(reward.overlong.max_tokens, reward.repetition.weight)"
                )
        if algorithm.advantage.name is AdvantageName.gdpo:
            self._check_penalties_have_keys()

    def _check_penalties_have_keys(self) -> None:
        """GDPO reads the parts it is told, and not the reward that penalties are added to."""
        off = {
            "overlong": "reward.overlong.max_tokens=null",
            "repetition": "reward.repetition.weight=0",
        }
        for part in self.reward.parts:
            if part in off and part not in self.algorithm.advantage.keys:
                raise UserError(
                    f"the penalty {part} is on and algorithm.advantage.name=gdpo would not see it: "
                    "it normalises the parts that algorithm.advantage.keys names; name it "
                    f"(+algorithm.advantage.keys.{part}=1), or set {off[part]}"
                )


def register() -> None:
    """Make the schema known to Hydra as `train_schema`."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="train_schema", node=TrainConfig)
