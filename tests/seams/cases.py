"""What the seams are tested on: the four families, and questions about every kind of media."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families import FamilyAdapter, load_family
from easyvideor1.preprocess.families.base import PromptInputs
from easyvideor1.preprocess.families.tiny import build
from easyvideor1.schema.records import Completion, MediaKind, Sample
from easyvideor1.train.config import AlgorithmConfig, LearnerConfig
from easyvideor1.train.interfaces import Prompt, TrainExample
from easyvideor1.train.learner import RankLearner
from tests.clips import image, sample_about, video

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")
INSTRUCTION = "Answer with the letter."

GAIN = 4.0
"""On all matrices of the tiny model: the untrained one is so flat that errors would not show."""


def build_sharp_model(family: str, folder: Path) -> None:
    """A tiny model whose log-probs differ much by token."""
    from transformers import AutoModelForImageTextToText

    build(TinyModelConfig(family=family), folder)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(GAIN)
    model.save_pretrained(folder)


@cache
def family_at(path: Path) -> FamilyAdapter:
    return load_family(str(path))


CASE_NAMES = ("text", "image", "video", "two videos", "image and video")


def clips_of(case: str, factor: int) -> list[Clip]:
    """Media of a case, in frames whose sides are multiples of `factor` pixels."""
    narrow = {"height": 2 * factor, "width": 2 * factor}
    wide = {"height": 2 * factor, "width": 3 * factor}
    cases: dict[str, list[Clip]] = {
        "text": [],
        "image": [image(seed=1, **narrow)],
        "video": [video(8, seed=2, **wide)],
        # The second one's rate and odd number of frames give Qwen2.5-VL a broken step in time.
        "two videos": [video(4, seed=3, **wide), video(5, fps=24.0, seed=4, **narrow)],
        "image and video": [image(seed=5, **narrow), video(4, fps=7.5, seed=6, **wide)],
    }
    return cases[case]


def question(case: str, clips: Sequence[Clip]) -> Sample:
    return sample_about(list(clips), id=case)


class CaseClips:
    """The clip store of `question`s."""

    def __init__(self, clips: dict[str, list[Clip]]):
        self._clips = clips

    def load(self, sample: Sample) -> list[Clip]:
        return self._clips[sample.id]


def prompt_of(family: FamilyAdapter, case: str, clips: list[Clip]) -> Prompt:
    sample = question(case, clips)
    token_ids = family.prompt_token_ids(sample, INSTRUCTION)
    return Prompt(
        sample=sample,
        token_ids=token_ids,
        num_tokens=family.num_prompt_tokens(token_ids, clips),
        num_patches=family.num_patches(clips),
    )


def learner_of(
    path: Path, clips: dict[str, list[Clip]], temperature: float = 1.0, **settings: Any
) -> RankLearner:
    return RankLearner(
        config=LearnerConfig(**settings),
        algorithm=AlgorithmConfig(),
        model_path=str(path),
        family=family_at(path),
        clip_store=CaseClips(clips),
        temperature=temperature,
    )


def asked(prompt: Prompt, completion: Completion, advantage: float = 1.0) -> TrainExample:
    return TrainExample(prompt=prompt, completion=completion, advantage=advantage)


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

    text = f"Which colour?\nA. red\nB. blue\n{INSTRUCTION}"
    content = [*({"type": clip.kind.value} for clip in clips), {"type": "text", "text": text}]
    rendered = family.processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
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
    return dict(family.processor(text=[rendered], return_tensors="pt", **media))


def forward_inputs(
    inputs: PromptInputs, answer: Sequence[int] = (), *, family: FamilyAdapter
) -> dict[str, torch.Tensor]:
    """A prompt and an answer as a plain model of transformers takes them, with our positions."""
    answer_positions = family.position_ids_after(inputs.position_ids, len(answer))
    positions = torch.cat([inputs.position_ids, answer_positions], dim=1)
    kinds = torch.cat([inputs.mm_token_type_ids, torch.zeros(len(answer), dtype=torch.long)])
    media = {
        name: getattr(inputs, name)
        for name in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
        if getattr(inputs, name) is not None
    }
    return {
        "input_ids": torch.tensor([[*inputs.token_ids, *answer]]),
        "position_ids": positions[:, None],
        "mm_token_type_ids": kinds[None],
    } | media
