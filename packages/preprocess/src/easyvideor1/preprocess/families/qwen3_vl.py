"""Qwen3-VL: a video is a row of timestamped one-step grids, each within its own vision markers."""

import re
from typing import TYPE_CHECKING, Any

from easyvideor1.preprocess.families.base import TEXT, VIDEO, FamilyAdapter, TokenBlock
from easyvideor1.preprocess.families.mrope import Grid

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip, ClipLike


_TOLD_TIME = re.compile(r"<(\d+\.\d+) seconds>")


class Qwen3VLFamily(FamilyAdapter):
    """Adapter for checkpoints of model_type `qwen3_vl`."""

    def video_blocks(self, clip: "ClipLike") -> list[TokenBlock]:
        """Per temporal patch: `<1.5 seconds>`, vision start, h·w video tokens, vision end."""
        start, end = self.processor.vision_start_token_id, self.processor.vision_end_token_id
        height, width = self._merged_size(clip)
        blocks: list[TokenBlock] = []
        closing: list[int] = []
        for seconds in self.patch_times_s(clip):
            label = self.text_token_ids(f"<{seconds:.1f} seconds>")
            blocks.append(TokenBlock(token_ids=[*closing, *label, start]))
            blocks.append(
                TokenBlock(
                    token_ids=[self.processor.video_token_id] * (height * width),
                    kind=VIDEO,
                    grid=Grid(1, height, width),
                )
            )
            closing = [end]
        return [*blocks, TokenBlock(token_ids=closing)]

    def told_times_s(self, clip: "ClipLike") -> tuple[list[float], list[float]]:
        """The times read back from the tokens, and those of the temporal patches."""
        text = [block.token_ids for block in self.video_blocks(clip) if block.kind == TEXT]
        spelled = self.tokenizer.decode([token for ids in text for token in ids])
        told_s = [float(seconds) for seconds in _TOLD_TIME.findall(spelled)]
        return told_s, self.patch_times_s(clip)

    def patch_times_s(self, clip: "ClipLike") -> list[float]:
        """Seconds of each temporal patch: the mean of its first and last frame.

        An incomplete last patch repeats the last frame, as the processor does with the pixels.
        """
        size = self.rules.temporal_patch_size
        times = list(clip.timestamps_s)
        times += times[-1:] * (-len(times) % size)
        return [(times[i] + times[i + size - 1]) / 2 for i in range(0, len(times), size)]

    def video_metadata(self, clip: "Clip") -> dict[str, Any]:
        """Frame numbers in a video of one frame a second are seconds, so that times stay exact."""
        times = list(clip.metadata.timestamps_s)
        return {
            "fps": 1.0,
            "frames_indices": times,
            "total_num_frames": len(times),
            "duration": clip.metadata.duration_s,
            "video_backend": clip.metadata.decoder,
            "do_sample_frames": False,
        }
