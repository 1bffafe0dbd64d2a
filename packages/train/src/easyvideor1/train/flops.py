"""Floating-point operations of an update, and the share of a GPU's peak that it reaches (MFU).

Model FLOPs as in PaLM, arXiv 2204.02311, appendix B: what the mathematics asks for, forward and
backward, without what is computed anew to save memory. A prompt that answers share counts once,
since it is computed once. The recurrence of linear attention is left out: it is small beside the
projections around it. Called by `learner.RankLearner` and `loop`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from easyvideor1.train.balance import CostModel
from easyvideor1.train.batches import Batch

PEAK_TFLOPS = {
    "B200": 2_250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "H800": 989.0,
    "H20": 148.0,
    "A100": 312.0,
    "A800": 312.0,
    "L40S": 362.0,
    "A10": 125.0,
    "RTX 4090": 165.0,
}
"""Dense bfloat16 on tensor cores, from NVIDIA's data sheets, by what a device's name holds. The
first that fits counts."""

FORWARD, TRAINED = 1, 3
"""A backward does twice what its forward does."""
PER_PAIR = 4
"""Of a query and a key it attends to, per dimension of all heads: the score, and the value."""
WINDOW_PATCHES = 64
"""Patches that one of Qwen2.5-VL's window layers attends to: 8 x 8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FlopModel:
    """FLOPs of an update per unit of its input."""

    costs: CostModel
    """Of the weights, but for the head."""
    per_target: float
    """Of the head, per token it predicts."""
    per_pair: float
    """Of the language model's attention, over all layers."""
    per_patch_pair: float
    """Of the vision tower's layers that see a whole frame."""
    per_windowed_patch: float
    """Of those that see a window, per patch."""

    @classmethod
    def of(cls, model: PreTrainedModel, costs: CostModel) -> "FlopModel":
        """Of a model as the learner trains it."""
        text, vision = model.config.get_text_config(), model.config.vision_config
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        kinds = getattr(text, "layer_types", None) or ["full"] * text.num_hidden_layers
        num_attending = sum(kind != "linear_attention" for kind in kinds)
        head = model.get_output_embeddings().weight
        width = getattr(vision, "embed_dim", None) or vision.hidden_size
        is_passed = any(p.requires_grad for p in model.model.visual.blocks.parameters())
        per_layer = PER_PAIR * width * (TRAINED if is_passed else FORWARD)
        whole = getattr(vision, "fullatt_block_indexes", None)
        num_whole = vision.depth if whole is None else len(whole)
        return cls(
            costs=costs,
            per_target=2.0 * head.numel() * (TRAINED if head.requires_grad else 2),
            per_pair=PER_PAIR * TRAINED * text.num_attention_heads * head_dim * num_attending,
            per_patch_pair=per_layer * num_whole,
            per_windowed_patch=per_layer * (vision.depth - num_whole) * WINDOW_PATCHES,
        )

    def of_batch(self, batch: Batch) -> float:
        """FLOPs of a micro-batch."""
        grids = [slot.grid_thw.tolist() for slot in batch.media]
        num_patches = sum(t * h * w for t, h, w in grids)
        return (
            self.costs.flops_per_token * batch.num_computed
            + self.costs.flops_per_patch * num_patches
            + self.per_target * len(batch.target_ids)
            + self.per_pair * batch.num_pairs
            + self.per_patch_pair * sum(t * (h * w) ** 2 for t, h, w in grids)
            + self.per_windowed_patch * num_patches
        )


def peak_tflops(device: torch.device) -> float | None:
    """Of a device in bfloat16; None where it is not known."""
    if device.type != "cuda":
        return None
    return peak_of(torch.cuda.get_device_name(device))


def peak_of(device_name: str) -> float | None:
    """Of a GPU by its name, e.g. `NVIDIA H100 80GB HBM3`."""
    words = device_name.replace("-", " ").split()
    for name, peak in PEAK_TFLOPS.items():
        if all(part in words for part in name.split()):
            return peak
    return None


def utilization(
    learned: Mapping[str, float], seconds: Mapping[str, float], *, num_ranks: int
) -> dict[str, float]:
    """`learner/mfu`: reached over peak; empty where either is not known.

    Args:
        learned: what `Learner.update` told.
        seconds: of the step, by phase.
        num_ranks: that shared the update.
    """
    if not {"learner/tflops", "learner/peak_tflops"} <= learned.keys():
        return {}
    reached = learned["learner/tflops"] / seconds["seconds/update"]
    return {"learner/mfu": reached / (learned["learner/peak_tflops"] * num_ranks)}
