"""Logits as transformers alone computes them: its processor, positions and forward."""

import torch
from transformers import PreTrainedModel
from transformers.video_utils import VideoMetadata

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import MediaKind
from easyvideor1.train.interfaces import TrainExample
from tests.train.policy_cases import CLIPS


def plain_logits(model: PreTrainedModel, family: FamilyAdapter, one: TrainExample) -> torch.Tensor:
    """[answer, vocabulary] from transformers' own processor, positions and forward."""
    about, processor = one.prompt.sample, family.processor
    clips = CLIPS[about.id]
    text = family.tokenizer.decode(one.prompt.token_ids)
    images = [torch.tensor(c.frames[0]) for c in clips if c.kind is MediaKind.image]
    videos = [c for c in clips if c.kind is MediaKind.video]
    inputs = processor(
        text=[text],
        images=images or None,
        videos=[torch.tensor(c.frames) for c in videos] or None,
        video_metadata=[
            VideoMetadata(
                fps=c.metadata.source_fps,
                total_num_frames=c.metadata.total_frames,
                frames_indices=list(c.metadata.frame_indices),
            )
            for c in videos
        ]
        or None,
        images_kwargs={"do_resize": False},
        videos_kwargs={"do_resize": False, "do_sample_frames": False},
        return_tensors="pt",
    )
    answer = torch.tensor([one.completion.token_ids])
    prompt_length = inputs["input_ids"].shape[1]
    inputs["input_ids"] = torch.cat([inputs["input_ids"], answer], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        kinds = inputs["mm_token_type_ids"]
        inputs["mm_token_type_ids"] = torch.cat([kinds, torch.zeros_like(answer)], dim=1)
    logits = model(**inputs, use_cache=False).logits[0]
    return logits[prompt_length - 1 : -1].float()


def sampling_logprobs(
    logits: torch.Tensor, family: FamilyAdapter, temperature: float = 1.0
) -> torch.Tensor:
    """[answer, vocabulary] of the distribution that rollouts draw from."""
    forbidden = torch.tensor(family.forbidden_token_ids)
    return (logits / temperature).index_fill(1, forbidden, -torch.inf).log_softmax(-1)
