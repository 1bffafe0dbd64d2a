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
