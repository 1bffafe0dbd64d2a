"""What the seams are tested on: the four families, and questions about every kind of media."""

from collections.abc import Sequence
from pathlib import Path

import torch

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.families import FamilyAdapter
from easyvideor1.preprocess.families.base import PromptInputs
from easyvideor1.schema.records import Completion, Sample
from easyvideor1.train.interfaces import Prompt, TrainExample
from easyvideor1.train.learner import RankLearner
from tests.clips import image, sample_about, video
from tests.processor_inputs import INSTRUCTION
from tests.train.policy_cases import make_learner, prompt_about

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")

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
    return prompt_about(family, question(case, clips), clips, INSTRUCTION)


def learner_of(path: Path, clips: dict[str, list[Clip]], temperature: float = 1.0) -> RankLearner:
    return make_learner(path, temperature, clip_store=CaseClips(clips))


def asked(prompt: Prompt, completion: Completion, advantage: float = 1.0) -> TrainExample:
    advantages = [advantage] * len(completion.token_ids)
    return TrainExample(prompt=prompt, completion=completion, advantages=advantages)


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
