"""Qwen2.5-VL: as Qwen2-VL, with positions in time that count seconds at the rate really sampled."""

from typing import TYPE_CHECKING

from easyvideor1.preprocess.families.qwen2_vl import Qwen2VLFamily

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import ClipLike


class Qwen25VLFamily(Qwen2VLFamily):
    """Adapter for checkpoints of model_type `qwen2_5_vl`."""

    def time_step(self, clip: "ClipLike") -> float:
        """Seconds of one temporal patch times the positions that a second takes."""
        return self.seconds_per_grid(clip) * self.config.vision_config.tokens_per_second

    def seconds_per_grid(self, clip: "ClipLike") -> float:
        """Seconds of the clip that one temporal patch stands for; `second_per_grid_ts` elsewhere.

        From the rate at which the frames shown were sampled, not the one that was asked for: a cap
        on the number of frames lowers it.
        """
        import numpy as np

        # In float32, in which processor and engine hold it.
        return float(np.float32(self.rules.temporal_patch_size / clip.sample_fps))
