"""Which weights `learner.freeze` keeps as they are. Called by `sharding.load_model`.

The parts cover the model: every weight belongs to exactly one of them, a tied head to the language
model.
"""

from collections.abc import Collection, Iterator

from torch import nn
from transformers import PreTrainedModel

from easyvideor1.train.config import FrozenPart


def freeze(model: PreTrainedModel, parts: Collection[FrozenPart]) -> None:
    """Exclude the weights of `parts` from training."""
    for part, parameter in parameters_by_part(model):
        parameter.requires_grad_(part not in parts)


def parameters_by_part(model: PreTrainedModel) -> Iterator[tuple[FrozenPart, nn.Parameter]]:
    """Every weight once, with the part that it belongs to."""
    vision = model.model.visual
    mergers = {
        id(parameter)
        for name, child in vision.named_children()
        if "merger" in name
        for parameter in child.parameters()
    }
    in_vision = {id(parameter) for parameter in vision.parameters()}
    for parameter in model.parameters():
        if id(parameter) in mergers:
            yield FrozenPart.merger, parameter
        elif id(parameter) in in_vision:
            yield FrozenPart.vision, parameter
        else:
            yield FrozenPart.language, parameter


def passed_in_vision(model: PreTrainedModel) -> list[nn.Parameter]:
    """Weights of the vision tower that a backward pass runs through.

    The mergers come last; where nothing before them is trained, it ends there.
    """
    vision = [(part, p) for part, p in parameters_by_part(model) if part is not FrozenPart.language]
    trained = {part for part, parameter in vision if parameter.requires_grad}
    passed = set(FrozenPart) if FrozenPart.vision in trained else trained
    return [parameter for part, parameter in vision if part in passed]


def frozen_prefixes(model: PreTrainedModel) -> tuple[str, ...]:
    """Name prefixes of what is frozen as a whole: towers, or of others the parts they consist of.

    Coarse on purpose: an engine that is not sent a part keeps it, but its layers are fused ones,
    and half of a fused layer cannot be kept. None is fused beyond a transformer block.
    """
    core = model.model
    language = {"model.language_model.": core.language_model}
    if not _is_frozen(core.language_model):
        language = _children("model.language_model.", core.language_model)
        blocks = language.pop("model.language_model.layers.")
        language |= _children("model.language_model.layers.", blocks)
    vision = _children("model.visual.", core.visual)
    parts = {**language, "lm_head.": model.lm_head, **vision}
    return tuple(prefix for prefix, part in parts.items() if _is_frozen(part))


def _children(prefix: str, module: nn.Module) -> dict[str, nn.Module]:
    return {f"{prefix}{name}.": child for name, child in module.named_children()}


def _is_frozen(module: nn.Module) -> bool:
    """Whether it has weights, and none of them is trained."""
    return {parameter.requires_grad for parameter in module.parameters()} == {False}
