"""Loading the model, and spreading its weights over the ranks with FSDP2.

One FSDP unit per transformer block of both towers, one for the rest of the vision tower, one for
the rest: the collectives of the vision tower run in one order as long as every rank calls it
equally often, which `model_forward` sees to. With `learner.shard_size` below the number of ranks,
several groups of ranks hold a copy each and average their gradients (hybrid sharding).
"""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from transformers import AutoModelForImageTextToText, PreTrainedModel

from easyvideor1.schema.errors import UserError
from easyvideor1.train import tree_attention
from easyvideor1.train.adapters import add_adapters
from easyvideor1.train.attention_kernels import kernel_for
from easyvideor1.train.config import LearnerConfig
from easyvideor1.train.freezing import freeze
from easyvideor1.train.model_forward import PolicyModel
from easyvideor1.train.patch_projection import replace_patch_convolutions
from easyvideor1.train.tree_delta_rule import fork_states

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def join_process_group(
    *, rank: int, world_size: int, host: str, port: int, timeout_s: float
) -> None:
    """Meet the other ranks; before a `RankLearner` is made. One rank needs it on a GPU only.

    Args:
        rank: of this process.
        world_size: number of ranks.
        host: of rank 0, as all of them reach it.
        port: free on that host.
        timeout_s: of the meeting and of every collective after it.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group(
        BACKENDS[device],
        init_method=f"tcp://{host}:{port}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )


def default_device() -> torch.device:
    """The current GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def load_model(
    model_path: str,
    config: LearnerConfig,
    *,
    trust_remote_code: bool,
    reference_adapters: bool = False,
) -> PreTrainedModel:
    """The model in float32 on the CPU, with what `config` freezes, adapts and recomputes.

    Args:
        model_path: folder or hub id.
        config: of the learner.
        trust_remote_code: run code that comes with the checkpoint.
        reference_adapters: with LoRA, add the adapters of a reference.

    Raises:
        UserError: for a model with dropout, or a pattern of LoRA that fits no layer.
    """
    model = AutoModelForImageTextToText.from_pretrained(
        model_path,
        dtype=torch.float32,
        attn_implementation=attention_of(config),
        trust_remote_code=trust_remote_code,
    )
    _refuse_dropout(model, model_path)
    prepare(model, config, reference_adapters=reference_adapters)
    return model


def prepare(
    model: PreTrainedModel, config: LearnerConfig, *, reference_adapters: bool = False
) -> None:
    """Change a model of transformers into what `config` trains, in place."""
    replace_patch_convolutions(model.model.visual)
    if not config.layout.is_padded:
        fork_states(model.model.language_model)
    freeze(model, config.freeze)
    if config.lora.is_on:
        add_adapters(model, config.lora, with_reference=reference_adapters)
    if config.activation_checkpointing:
        for parent, name in blocks_of(model):
            parent.register_module(name, checkpoint_wrapper(parent.get_submodule(name)))


def attention_of(config: LearnerConfig) -> str | dict[str, str]:
    """By part of the model where they differ, as transformers takes it."""
    if config.layout.is_padded:
        return config.attention.value
    tree_attention.register()
    return {
        "text_config": tree_attention.TREE_ATTENTION,
        "vision_config": config.attention.value,
    }


def shard(
    model: PolicyModel,
    device: torch.device,
    dtype: str,
    config: LearnerConfig,
    *,
    backward: bool = True,
) -> None:
    """Put the model on its device, sharded over the process group if there is one.

    Args:
        model: in float32, on the CPU.
        device: where it computes.
        dtype: of the computation, as in the config.
        config: of the learner.
        backward: whether a backward follows each forward; without one nothing stays gathered.

    Raises:
        UserError: for a dtype that needs a process group without one, or an unknown dtype.
    """
    compute_dtype = computation_dtype(dtype, device)
    if not config.layout.is_padded:
        kernel_for(device, compute_dtype)  # refused here, and not in the first update
    if not dist.is_initialized():
        if compute_dtype is not torch.float32:
            raise UserError(
                f"the learner computes in {dtype} only within a process group, which keeps the "
                "float32 weights apart; set model.dtype=float32 or join a group first"
            )
        model.to(device)
        return
    mesh = _mesh(device, config)
    policy = MixedPrecisionPolicy()
    if compute_dtype is not torch.float32:
        policy = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=torch.float32)
    blocks = [parent.get_submodule(name) for parent, name in blocks_of(model.hf)]
    for module in [*blocks, model.hf.model.visual]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    # None is the library's own way: the root stays gathered for the backward.
    reshard = None if backward else True
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    register_fsdp_forward_method(model, "distribution")


def _mesh(device: torch.device, config: LearnerConfig) -> DeviceMesh:
    """All ranks in a row; or, as [copies, ranks of a copy], neighbours holding a copy together."""
    world_size = dist.get_world_size()
    shard_size = config.shard_size or world_size
    if shard_size == world_size:
        return init_device_mesh(device.type, (world_size,))
    ranks = torch.arange(world_size).view(-1, shard_size)
    # Made here, since groups that a mesh makes have the time-out of the library.
    timeout = timedelta(seconds=config.process_group_timeout_s)
    groups = []
    for rows in (ranks.T, ranks):
        own, _ = dist.new_subgroups_by_enumeration(rows.tolist(), timeout=timeout)
        assert isinstance(own, dist.ProcessGroup)  # every rank is in one of the rows
        groups.append(own)
    return DeviceMesh.from_group(
        groups, device.type, mesh=ranks, mesh_dim_names=("replicate", "shard")
    )


def computation_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """What `model.dtype` means on `device`.

    Raises:
        UserError: for a dtype that cannot be trained in.
    """
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if dtype not in known:
        raise UserError(f"model.dtype={dtype} cannot be trained; use auto, float32 or bfloat16")
    return known[dtype]


def blocks_of(model: PreTrainedModel) -> list[tuple[nn.Module, str]]:
    """Each transformer block as (parent, name); the model's own list says which classes those are.

    A block that stands inside a checkpoint wrapper is found as the wrapper.
    """
    classes = set(model._no_split_modules or ())
    found = []
    for parent in model.modules():
        for name, child in parent.named_children():
            inner = getattr(child, "_checkpoint_wrapped_module", child)
            if type(inner).__name__ in classes and name != "_checkpoint_wrapped_module":
                found.append((parent, name))
    return found


def _refuse_dropout(model: PreTrainedModel, model_path: str) -> None:
    """With dropout the log-probs of the update would be those of another policy than sampled."""
    parts = {
        "text_config": model.config.get_text_config(),
        "vision_config": model.config.vision_config,
    }
    for part, values in parts.items():
        for name, value in values.to_dict().items():
            if "drop" in name and isinstance(value, float) and value > 0:
                raise UserError(
                    f"model.path={model_path}: {part}.{name} is {value}, but training needs 0; "
                    "set it to 0 in the checkpoint's config.json"
                )
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p > 0:
            raise UserError(
                f"model.path={model_path}: {name} drops out with p={module.p}; training needs 0"
            )
