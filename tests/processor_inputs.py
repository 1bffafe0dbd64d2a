"""What a family's own Hugging Face processor makes of a question about clips."""

from collections.abc import Sequence
from typing import Any

import torch

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.families import FamilyAdapter
from easyvideor1.schema.records import MediaKind

INSTRUCTION = "Answer with the letter."


def assert_same(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> None:
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def rendered_question(family: FamilyAdapter, clips: Sequence[Clip]) -> str:
    """The question of `clips.sample_about` by the processor's own chat template."""
    text = f"Which colour?\nA. red\nB. blue\n{INSTRUCTION}"
    content = [*({"type": clip.kind.value} for clip in clips), {"type": "text", "text": text}]
    return family.processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )


def description(family: FamilyAdapter, clip: Clip) -> dict[str, Any]:
    """A clip in the terms of transformers: where its frames lie in the source.

    Qwen2.5-VL's processor takes the rate from the number of frames over the length of the video, so
    that a clip which ends before its video needs to be told as a video of its own.
    """
    told = clip.metadata
    if family.config.model_type in ("qwen2_vl", "qwen2_5_vl"):
        count = len(clip.frames)
        return {
            "total_num_frames": count,
            "fps": told.sample_fps,
            "frames_indices": list(range(count)),
        }
    return {
        "total_num_frames": told.total_frames,
        "fps": told.source_fps,
        "frames_indices": list(told.frame_indices),
    }


def by_processor(family: FamilyAdapter, clips: Sequence[Clip]) -> dict[str, Any]:
    """What the family's own Hugging Face processor makes of a question about these clips."""
    from transformers.video_utils import VideoMetadata

    images = [torch.tensor(clip.frames[0]) for clip in clips if clip.kind is MediaKind.image]
    videos = [clip for clip in clips if clip.kind is MediaKind.video]
    media: dict[str, Any] = {}
    if images:
        media |= {"images": images, "images_kwargs": {"do_resize": False}}
    if videos:
        media |= {
            "videos": [torch.tensor(clip.frames) for clip in videos],
            "video_metadata": [VideoMetadata(**description(family, clip)) for clip in videos],
            "videos_kwargs": {"do_resize": False, "do_sample_frames": False},
        }
    return dict(
        family.processor(text=[rendered_question(family, clips)], return_tensors="pt", **media)
    )
