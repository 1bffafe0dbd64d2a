"""Qwen2-VL: a video is one grid of tokens, and nothing says when its frames are."""

from typing import TYPE_CHECKING, Any

from easyvideor1.preprocess.families.base import VIDEO, FamilyAdapter, TokenBlock
from easyvideor1.preprocess.families.mrope import Grid

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip, ClipLike


class Qwen2VLFamily(FamilyAdapter):
    """Adapter for checkpoints of model_type `qwen2_vl`."""

    def video_blocks(self, clip: "ClipLike") -> list[TokenBlock]:
        """t·h·w video tokens; the last frame of an odd number is repeated, as in the pixels."""
        height, width = self._merged_size(clip)
        grid = Grid(self._num_patch_times(clip), height, width, self.time_step(clip))
        token_ids = [self.processor.video_token_id] * (grid.time * height * width)
        return [TokenBlock(token_ids=token_ids, kind=VIDEO, grid=grid)]

    def time_step(self, clip: "ClipLike") -> float:
        """Distance in position between two temporal patches."""
        return 1.0

    def video_metadata(self, clip: "Clip") -> dict[str, Any]:
        """A video of exactly the frames shown, at the rate at which they were sampled."""
        num_frames = len(clip.frames)
        return {
            "fps": clip.metadata.sample_fps,
            "frames_indices": list(range(num_frames)),
            "total_num_frames": num_frames,
            "duration": num_frames / clip.metadata.sample_fps,
            "video_backend": clip.metadata.decoder,
            "do_sample_frames": False,
        }
