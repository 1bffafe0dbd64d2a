"""LoRA (arXiv 2106.09685): adapters beside frozen layers, and the weights with them merged in.

peft puts the adapters into the model, where they are called `<layer>.lora_A` and `lora_B` and the
layer itself `<layer>.base_layer`. Engines and exports know neither: they are given W + scale·BA
under the layer's own name. Called by `sharding.load_model` and `learner.RankLearner`; peft is
imported by runs that use it.
"""

import hashlib
import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedModel

from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import LoraConfig, LoraInit
from easyvideor1.train.freezing import parameters_by_part

POLICY = "default"
"""Name of the adapters that are trained; peft's own default."""
REFERENCE = "reference"
"""Name of those that a KL divergence is measured from."""
_BASE = ".base_layer."
_SAMPLED_VALUES = 1_024
"""Of each tensor, in its fingerprint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterFacts:
    """What is needed to use saved adapters; stored beside them."""

    rank: int
    scale: float
    """What BA is multiplied by."""
    base: str
    """`fingerprint` of the model that they belong to."""

    @classmethod
    def of(cls, config: LoraConfig, base: str) -> "AdapterFacts":
        """Of the adapters that a config makes."""
        return cls(rank=config.rank, scale=scale_of(config), base=base)


def add_adapters(model: PreTrainedModel, config: LoraConfig, *, with_reference: bool) -> None:
    """Freeze the model and give the layers that `config` chooses an adapter that changes nothing.

    On several ranks the random halves are those of rank 0.

    Args:
        model: whole, on the CPU, before layers are wrapped.
        config: with a rank above 0.
        with_reference: also add adapters that are never trained, see `reference`.

    Raises:
        UserError: if a pattern matches no layer.
    """
    import peft

    layers = adapted_layers(model, config)
    for name in (POLICY, REFERENCE) if with_reference else (POLICY,):
        settings = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            use_rslora=config.use_rslora,
            init_lora_weights="gaussian" if config.init is LoraInit.gaussian else True,
            target_modules=layers,
        )
        with warnings.catch_warnings():
            # Two kinds of adapters in one model are meant.
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            peft.inject_adapter_in_model(settings, model, adapter_name=name)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(f".{POLICY}." in name and is_adapter(name))
        if is_adapter(name) and dist.is_initialized():
            dist.broadcast(parameter.data, src=0)
    activate(model, POLICY)


def adapted_layers(model: PreTrainedModel, config: LoraConfig) -> list[str]:
    """Names of the layers that get an adapter: linear ones of `config.parts`, but for the head.

    Raises:
        UserError: if a pattern matches none of them.
    """
    parts = {id(parameter): part for part, parameter in parameters_by_part(model)}
    head = model.get_output_embeddings()
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and module is not head
        and parts[id(module.weight)] in config.parts
    ]
    if config.modules is None:
        return linear
    for pattern in config.modules:
        if not any(_matches(name, pattern) for name in linear):
            kinds = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise UserError(
                f"learner.lora.modules: {pattern!r} matches no linear layer of "
                f"{', '.join(config.parts)}; they end in {', '.join(kinds)}"
            )
    return [name for name in linear if any(_matches(name, p) for p in config.modules)]


def _matches(name: str, pattern: str) -> bool:
    """Whether the pattern is the name or its end, from a dot on."""
    return fnmatchcase(f".{name}", f"*.{pattern}")


def scale_of(config: LoraConfig) -> float:
    """What BA is multiplied by: alpha / r, or alpha / √r (rsLoRA, arXiv 2312.03732)."""
    return config.alpha / (math.sqrt(config.rank) if config.use_rslora else config.rank)


def activate(model: nn.Module, name: str) -> None:
    """Have the model computed with the adapters of this name."""
    from peft.tuners.lora import LoraLayer

    for module in model.modules():
        if isinstance(module, LoraLayer):
            # Not `set_adapter`, which would also freeze the other adapters.
            module._active_adapter = [name]


@contextmanager
def active(model: nn.Module, name: str) -> Generator[None]:
    """Inside, the model is computed with the adapters of this name; then with the trained ones."""
    activate(model, name)
    try:
        yield
    finally:
        activate(model, POLICY)


def is_adapter(name: str) -> bool:
    """Whether a weight of this name is one that LoRA has added."""
    return ".lora_A." in name or ".lora_B." in name


def plain_name(name: str) -> str:
    """The name of a base weight in the model without adapters."""
    return name.replace(_BASE, ".")


def adapter_names(name: str, adapter: str = POLICY) -> tuple[str, str]:
    """Names of A and B beside the weight of a layer, which is given by its plain name.

    Example:
        adapter_names("q_proj.weight") == (
            "q_proj.lora_A.default.weight", "q_proj.lora_B.default.weight")
    """
    layer = name.removesuffix(".weight")
    return f"{layer}.lora_A.{adapter}.weight", f"{layer}.lora_B.{adapter}.weight"


def merged(weight: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float) -> Tensor:
    """[O, I] W + scale·BA as a new tensor; W stays as it is, so that nothing drifts."""
    return torch.addmm(weight, b_OR, a_RI, alpha=scale)


def merged_weights(
    base: Mapping[str, Tensor], adapters: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """Whole weights by their plain names, where both kinds are at hand.

    Args:
        base: float32 weights of the model without adapters.
        adapters: by the name in the model with adapters.
        scale: what BA is multiplied by.
    """
    weights = dict(base)
    for name, weight in base.items():
        a_name, b_name = adapter_names(name)
        if a_name in adapters:
            weights[name] = merged(weight, adapters[a_name], adapters[b_name], scale)
    return weights


def write_in_peft_format(
    folder: Path, adapters: Mapping[str, Tensor], facts: AdapterFacts, model_path: str
) -> None:
    """Write adapters as a folder that peft loads beside the model, and vLLM with `--enable-lora`.

    Args:
        folder: is made.
        adapters: by the name in the model with adapters.
        facts: of them.
        model_path: of the base, which the folder names.
    """
    import peft
    from safetensors.torch import save_file

    settings: dict[str, Any] = {
        "r": facts.rank,
        "lora_alpha": facts.scale * facts.rank,
        "target_modules": sorted({name.split(".lora_")[0] for name in adapters}),
        "base_model_name_or_path": model_path,
        "inference_mode": True,
    }
    weights = {
        f"base_model.model.{name.replace(f'.{POLICY}.', '.')}": value.contiguous()
        for name, value in adapters.items()
    }
    folder.mkdir()
    peft.LoraConfig(**settings).save_pretrained(str(folder))
    save_file(weights, folder / "adapter_model.safetensors")


def own_state(model: nn.Module, adapter: str) -> dict[str, Tensor]:
    """The live weights of the adapters of this name, by their full names."""
    return {
        name: value
        for name, value in model.state_dict().items()
        if is_adapter(name) and f".{adapter}." in name
    }


def fingerprint(state: Mapping[str, Tensor]) -> str:
    """Tells models apart by names, shapes and evenly spread values of their base weights.

    Args:
        state: whole weights; those of adapters are left out.

    Returns:
        Hexadecimal, the same in whatever files and dtype the same values were stored.
    """
    digest = hashlib.sha256()
    base = {plain_name(name): value for name, value in state.items() if not is_adapter(name)}
    for name in sorted(base):
        value = base[name].detach().reshape(-1)
        step = max(1, value.numel() // _SAMPLED_VALUES)
        digest.update(f"{name} {tuple(base[name].shape)}".encode())
        digest.update(value[::step].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def refuse_other(
    found: AdapterFacts | None, own: AdapterFacts | None, *, folder: Path, model_path: str
) -> None:
    """Raise where a checkpoint does not belong to the model that is to go on from it.

    Args:
        found: of the checkpoint; None if it holds whole weights.
        own: of the model; None if its weights themselves are trained.
        folder: of the checkpoint.
        model_path: that the run has loaded.

    Raises:
        UserError: with what differs and the way out.
    """
    if found == own:
        return
    if found is None or own is None:
        holds = "whole weights" if found is None else f"adapters of rank {found.rank}"
        rank = 0 if own is None else own.rank
        raise UserError(
            f"{folder} holds {holds}, but learner.lora.rank={rank}: use the learner.lora of the "
            "run that wrote it, or export it (job=export) and begin from that with model.path=…"
        )
    if found.base != own.base:
        raise another_base(folder, model_path)
    raise UserError(
        f"{folder} holds adapters of rank {found.rank} with a scale of {found.scale:g}, but "
        f"learner.lora makes rank {own.rank} and {own.scale:g}; use the settings of the run that "
        "wrote it"
    )


def another_base(folder: Path, model_path: str) -> UserError:
    """What to say where adapters meet weights that they were not trained on."""
    return UserError(
        f"{folder} holds adapters of another model than model.path={model_path}: its weights are "
        "not those that they were trained on; give the model that the run began with"
    )


def num_base_weights(named_parameters: Sequence[tuple[str, nn.Parameter]]) -> int:
    """How many weights the model has without adapters."""
    return sum(parameter.numel() for name, parameter in named_parameters if not is_adapter(name))
