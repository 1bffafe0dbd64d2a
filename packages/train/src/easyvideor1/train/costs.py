"""What an update of a model costs per token and per patch, by the sizes of its two parts.

For dividing work over ranks, and for weighing patches against tokens. Called by
`learner.RankLearner` and `plan.learner_memory`.
"""

from torch import nn
from transformers import PreTrainedModel

from easyvideor1.train.balance import CostModel
from easyvideor1.train.config import BatchLayout, FrozenPart
from easyvideor1.train.freezing import parameters_by_part, passed_in_vision


def cost_model_of(model: PreTrainedModel, layout: BatchLayout) -> CostModel:
    """Of a model as the learner trains it, on the meta device or not."""
    core = model.model
    # Rows of the embedding are looked up, not multiplied.
    embedding = {id(parameter) for parameter in core.get_input_embeddings().parameters()}
    language = [p for p in core.language_model.parameters() if id(p) not in embedding]
    passed = {id(parameter) for parameter in passed_in_vision(model)}
    vision = _patch_shares(model)
    return CostModel.of_sizes(
        language_weights=sum(p.numel() for p in language),
        trained_language_weights=sum(p.numel() for p in language if p.requires_grad),
        vision_weights=sum(share * p.numel() for p, share, _ in vision),
        passed_vision_weights=sum(
            share * p.numel() for p, share, is_first in vision if id(p) in passed and not is_first
        ),
        trained_vision_weights=sum(share * p.numel() for p, share, _ in vision if p.requires_grad),
        shares_prompts=layout.shares_prompts,
    )


def _patch_shares(model: PreTrainedModel) -> list[tuple[nn.Parameter, float, bool]]:
    """Weights of the vision tower that a patch is multiplied with.

    Each with how often: those of a merger once per merged token; and whether it is of the patch
    embedding, whose input is no weight's output and needs no gradient. Positions are looked up.
    """
    tower = model.model.visual
    looked_up = {
        id(p) for m in tower.modules() if isinstance(m, nn.Embedding) for p in m.parameters()
    }
    first = {id(p) for p in tower.patch_embed.parameters()}
    once_merged = 1 / model.config.vision_config.spatial_merge_size**2
    return [
        (p, once_merged if part is FrozenPart.merger else 1.0, id(p) in first)
        for part, p in parameters_by_part(model)
        if part is not FrozenPart.language and id(p) not in looked_up
    ]
