"""The libraries that our frame rules are held beside, made for a budget.

The video processors of the four families as their checkpoints configure them, and `fetch_video` of
qwen-vl-utils on sources that exist on paper only: the library's own code runs on frames of the
meta device, which have a shape and no pixels.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from qwen_vl_utils import vision_process
from transformers import Qwen2VLVideoProcessor, Qwen3VLVideoProcessor
from transformers.image_utils import PILImageResampling

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget

QWEN2 = FamilyRules(name="qwen2_vl", patch_size=14, merge_size=2, temporal_patch_size=2)
QWEN3 = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
FAMILIES = {"Qwen2-VL and Qwen2.5-VL": QWEN2, "Qwen3-VL and Qwen3.5": QWEN3}
"""Two families each have the same rules and the same processor; `test_rules` holds them to it."""

PROCESSORS = {"qwen2_vl": Qwen2VLVideoProcessor, "qwen3_vl": Qwen3VLVideoProcessor}


def video_processor(rules: FamilyRules, budget: FrameBudget, num_frames: int = 1) -> Any:
    """The family's processor; Qwen3-VL's takes the limits of a clip of `num_frames`."""
    smallest, largest = budget.min_pixels, budget.max_pixels
    if rules is QWEN3:
        smallest, largest = smallest * num_frames, largest * num_frames
        if budget.total_pixels is not None:
            largest = min(largest, budget.total_pixels)
            smallest = min(smallest, largest)
    return PROCESSORS[rules.name](
        patch_size=rules.patch_size,
        merge_size=rules.merge_size,
        temporal_patch_size=rules.temporal_patch_size,
        min_frames=budget.min_frames,
        max_frames=budget.max_frames,
        fps=budget.fps,
        size={"shortest_edge": smallest, "longest_edge": largest},
        cap_pixels_per_frame=False,
    )


def processor_size(
    height: int, width: int, num_frames: int, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int]:
    """To which size the family's processor resizes frames of this size."""
    processor = video_processor(rules, budget, num_frames)
    resized = processor.resize(
        torch.empty(1, num_frames, 3, height, width, dtype=torch.uint8, device="meta"),
        size=processor.size,
        resample=PILImageResampling.BICUBIC,
        factor=rules.factor,
        temporal_factor=rules.temporal_patch_size,
    )
    return tuple(resized.shape[-2:])


def video_element(
    path: str, budget: FrameBudget, start_s: float | None = None, end_s: float | None = None
) -> dict[str, Any]:
    """How qwen-vl-utils is asked for what a budget asks for."""
    element: dict[str, Any] = {
        "video": path,
        "fps": budget.fps,
        "min_frames": budget.min_frames,
        "max_frames": budget.max_frames,
        "min_pixels": budget.min_pixels,
        "max_pixels": budget.max_pixels,
    }
    if budget.total_pixels is not None:
        # Theirs counts two frames once.
        element["total_pixels"] = budget.total_pixels / 2
    if start_s is not None:
        element["video_start"] = start_s
    if end_s is not None:
        element["video_end"] = end_s
    return element


def fetch_video(
    element: dict[str, Any], rules: FamilyRules
) -> tuple[torch.Tensor, dict[str, Any], float]:
    """Frames, metadata and sample rate by qwen-vl-utils."""
    answer: Any = vision_process.fetch_video(
        element,
        image_patch_size=rules.patch_size,
        return_video_sample_fps=True,
        return_video_metadata=True,
    )
    (frames, metadata), sample_fps = answer
    return frames, metadata, sample_fps


@contextmanager
def source_on_paper(total_frames: int, fps: float, height: int, width: int) -> Generator[None]:
    """Within, every video that qwen-vl-utils opens has this shape and frames without pixels."""

    class PaperDecoder:
        def __init__(self, path: str, num_ffmpeg_threads: int):
            self.metadata = SimpleNamespace(average_fps=fps, num_frames=total_frames)

        def get_frames_at(self, indices: Sequence[int]) -> SimpleNamespace:
            shape = (len(indices), 3, height, width)
            return SimpleNamespace(data=torch.empty(shape, dtype=torch.uint8, device="meta"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchcodec.decoders.VideoDecoder", PaperDecoder)
        with torchcodec_reader():
            yield


@contextmanager
def torchcodec_reader(num_threads: int = 1) -> Generator[None]:
    """Within, qwen-vl-utils reads by torchcodec, and nothing it cannot read so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHCODEC_NUM_THREADS", str(num_threads))
        patch.setattr(vision_process, "get_video_reader_backend", lambda: "torchcodec")
        patch.delitem(vision_process.VIDEO_READER_BACKENDS, "torchvision")
        yield
