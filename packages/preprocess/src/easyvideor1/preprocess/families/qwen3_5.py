"""Qwen3.5: media as in Qwen3-VL; most layers of the language model are linear attention."""

from typing import ClassVar

from easyvideor1.preprocess.families.qwen3_vl import Qwen3VLFamily


class Qwen35Family(Qwen3VLFamily):
    """Adapter for checkpoints of model_type `qwen3_5`."""

    has_linear_attention: ClassVar[bool] = True
