"""What a learner rank needs: weights, what training adds to them, and its largest micro-batch.

Sizes come from the model's classes on the meta device, activations from `activations`. Called by
`command`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from easyvideor1.train import adapters, checkpoint, export, sharding
from easyvideor1.train.algorithm_config import KlPlace
from easyvideor1.train.config import LearnerConfig, TrainConfig
from easyvideor1.train.costs import cost_model_of
from easyvideor1.train.head import COPIES
from easyvideor1.train.interfaces import CheckpointBytes
from easyvideor1.train.plan.activations import ActivationCosts
from easyvideor1.train.plan.samples import PromptSize

FLOAT = torch.float32.itemsize
"""Of weights, gradients and moments."""
MB = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A line of a table of memory."""

    name: str
    num_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """Numbers of weights, and what a checkpoint of them takes."""

    weights: int
    base_weights: int
    """Without adapters."""
    trained: int
    head: int
    """Of the head."""
    vocabulary: int
    is_head_trained: bool
    largest_block: int
    """Of the largest transformer block."""
    outside_blocks: int
    """Of what stays gathered through a forward and its backward."""
    patch_tokens: float
    """What a patch costs to compute, in tokens."""
    checkpoint: CheckpointBytes


def model_sizes(config: TrainConfig) -> ModelSizes:
    """By the configuration of `model.path` alone."""
    model = meta_model(config.model.path, config.learner)
    blocks = [
        sum(p.numel() for p in parent.get_submodule(name).parameters())
        for parent, name in sharding.blocks_of(model)
    ]
    weights = sum(p.numel() for p in model.parameters())
    head = model.get_output_embeddings().weight
    return ModelSizes(
        weights=weights,
        base_weights=adapters.num_base_weights(list(model.named_parameters())),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        head=head.numel(),
        vocabulary=len(head),
        is_head_trained=head.requires_grad,
        largest_block=max(blocks),
        outside_blocks=weights - sum(blocks),
        patch_tokens=cost_model_of(model, config.learner.layout).patch_tokens,
        checkpoint=_checkpoint_bytes(model, config),
    )


def meta_model(model_path: str, learner: LearnerConfig) -> PreTrainedModel:
    """What the learner trains, without memory."""
    model_config = AutoConfig.from_pretrained(model_path)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(
            model_config, attn_implementation=sharding.attention_of(learner), dtype=torch.float32
        )
        sharding.prepare(model, learner)
    return model


def _checkpoint_bytes(model: PreTrainedModel, config: TrainConfig) -> CheckpointBytes:
    ranks = config.learner.ranks
    wrapped = nn.ModuleDict({"hf": model})
    weights = model.state_dict()
    if config.learner.lora.is_on:
        weights = adapters.own_state(wrapped, adapters.POLICY)
    keeps_reference = (
        config.algorithm.kl.place is not KlPlace.none and config.train.warm_start.steps > 0
    )
    reference = checkpoint.stored_bytes(weights.values(), ranks) if keeps_reference else 0
    exported = adapters.num_base_weights(list(wrapped.named_parameters()))
    return CheckpointBytes(
        weights=checkpoint.stored_bytes(weights.values(), ranks),
        training=checkpoint.optimizer_bytes(model, ranks) + reference,
        export=exported * export.stored_dtype(model.config).itemsize,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    """The largest one of a data set."""

    num_tokens: float
    num_patches: float
    num_targets: float
    """Of its tokens, those of answers."""


def largest_micro_batch(
    prompts: Sequence[PromptSize],
    config: TrainConfig,
    *,
    patch_tokens: float,
    costs: ActivationCosts,
) -> MicroBatch:
    """The micro-batch that keeps most, if every answer is as long as it may be.

    As `packing` cuts them: of equal groups as many as fit, or of a group that does not fit the part
    that it is cut into.
    """
    found = [_micro_batch_of(prompt, config, patch_tokens) for prompt in prompts]
    return max(
        found,
        key=lambda one: costs.of(one.num_tokens, one.num_patches, one.num_targets),
        default=MicroBatch(num_tokens=0.0, num_patches=0.0, num_targets=0.0),
    )


def _micro_batch_of(prompt: PromptSize, config: TrainConfig, patch_tokens: float) -> MicroBatch:
    learner, rollout = config.learner, config.rollout
    answer, budget = rollout.max_new_tokens, learner.micro_batch_tokens
    num_groups = -(-rollout.batch_size // learner.ranks)
    if not learner.layout.shares_prompts:
        sequence = prompt.num_tokens + answer
        count = min(max(1, budget // sequence), num_groups * rollout.group_size)
        shown = -(-count // rollout.group_size)
        return MicroBatch(
            num_tokens=count * sequence,
            num_patches=shown * prompt.num_patches,
            num_targets=count * answer,
        )
    root = prompt.num_tokens + patch_tokens * prompt.num_patches
    answers = rollout.group_size * answer
    whole = min(max(1, int(budget // (root + answers))), num_groups)
    # A group that does not fit is cut, and its parts hold so much of answers, or one.
    own = answers if root + answers <= budget else max(budget - root, budget / 2, answer)
    own = min(own, answers)
    return MicroBatch(
        num_tokens=whole * (prompt.num_tokens + own),
        num_patches=whole * prompt.num_patches,
        num_targets=whole * own,
    )


def rank_parts(
    config: TrainConfig,
    sizes: ModelSizes,
    costs: ActivationCosts,
    batch: MicroBatch,
    *,
    dtype: torch.dtype,
    has_group: bool,
) -> list[Part]:
    """Memory of one rank at its peak: the backward of a micro-batch that is not the first.

    Args:
        config: of the run.
        sizes: of its model.
        costs: of a forward.
        batch: the largest micro-batch.
        dtype: of the computation.
        has_group: whether ranks form a process group, in which FSDP gathers weights.
    """
    learner = config.learner
    share = 1 / (learner.shard_size or learner.ranks)
    has_reference = config.algorithm.kl.place is not KlPlace.none
    parts = [
        Part(name="weights", num_bytes=FLOAT * sizes.weights * share),
        Part(name="gradients", num_bytes=FLOAT * sizes.trained * share),
        Part(name="optimizer", num_bytes=2 * FLOAT * sizes.trained * share),
    ]
    if has_reference and not learner.lora.is_on:
        parts.append(Part(name="reference", num_bytes=dtype.itemsize * sizes.weights * share))
    if has_group:
        # The root, two blocks (one comes while the other computes) and the gradients of one.
        gathered = sizes.outside_blocks + 3 * sizes.largest_block
        parts.append(Part(name="gathered weights", num_bytes=dtype.itemsize * gathered))
    # The head's gradient is summed beside the logits.
    logits = min(learner.logits_mb * MB, COPIES * FLOAT * sizes.vocabulary * batch.num_targets)
    head = FLOAT * sizes.head if sizes.is_head_trained else 0
    return [
        *parts,
        Part(
            name="activations",
            num_bytes=costs.of(batch.num_tokens, batch.num_patches, batch.num_targets),
        ),
        Part(name="a layer's backward", num_bytes=costs.per_layer_token * batch.num_tokens),
        Part(name="logits", num_bytes=logits + head),
    ]
