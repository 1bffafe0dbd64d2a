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


def frozen_prefixes(model: PreTrainedModel) -> tuple[str, ...]:
    """Name prefixes of the parts that are frozen as a whole.

    Coarse on purpose: an engine that is not sent a part keeps it, but its layers are fused ones,
    and half of a fused layer cannot be kept.
    """
    towers = {"model.language_model.": model.model.language_model, "lm_head.": model.lm_head}
    towers |= {f"model.visual.{name}.": part for name, part in model.model.visual.named_children()}
    return tuple(
        prefix
        for prefix, part in towers.items()
        if {parameter.requires_grad for parameter in part.parameters()} == {False}
    )
