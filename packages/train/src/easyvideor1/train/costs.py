"""What an update of a model costs per token and per patch, by the sizes of its two parts.

For dividing work over ranks, and for weighing patches against tokens. Called by
`learner.RankLearner` and `plan.learner_memory`.
"""

from transformers import PreTrainedModel

from easyvideor1.train.balance import CostModel
from easyvideor1.train.config import BatchLayout
from easyvideor1.train.freezing import passed_in_vision


def cost_model_of(model: PreTrainedModel, layout: BatchLayout) -> CostModel:
    """Of a model as the learner trains it, on the meta device or not."""
    core = model.model
    # Rows of the embedding are looked up, not multiplied.
    embedding = {id(parameter) for parameter in core.get_input_embeddings().parameters()}
    language = [p for p in core.language_model.parameters() if id(p) not in embedding]
    vision = list(core.visual.parameters())
    return CostModel.of_sizes(
        language_weights=sum(p.numel() for p in language),
        trained_language_weights=sum(p.numel() for p in language if p.requires_grad),
        vision_weights=sum(p.numel() for p in vision),
        passed_vision_weights=sum(p.numel() for p in passed_in_vision(model)),
        trained_vision_weights=sum(p.numel() for p in vision if p.requires_grad),
        shares_prompts=layout.shares_prompts,
    )
