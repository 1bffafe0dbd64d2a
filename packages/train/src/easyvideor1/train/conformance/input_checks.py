"""Checks that need no weights: tokens, pixels, positions and times against their own sources.

The checkpoint's Hugging Face processor says what a prompt is, vLLM's model class where its tokens
stand; our family adapter must say the same.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from easyvideor1.preprocess.families.checks import TIME_TOLERANCE_S, has_own_times
from easyvideor1.schema.records import MediaKind, Sample
from easyvideor1.train.conformance.report import Check, at_most, equal

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families.base import FamilyAdapter, PromptInputs

FIELDS = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


def check_inputs(
    family: "FamilyAdapter", sample: Sample, instruction: str, clips: "Sequence[Clip]"
) -> list[Check]:
    """Everything about one sample."""
    prompt = family.prompt_token_ids(sample, instruction)
    inputs = family.learner_inputs(prompt, clips, sample_id=sample.id)
    expected = by_processor(family, prompt, clips)
    checks = [
        equal(f"tokens and pixels, {sample.id}", processor_differences(inputs, expected)),
        equal(
            f"positions, {sample.id}",
            _positions_differ(inputs, engine_positions(family, prompt, clips, expected)),
        ),
    ]
    videos = [clip for clip in clips if clip.kind is MediaKind.video]
    if videos:
        errors = [time_error_s(clip) for clip in videos]
        checks.append(at_most(f"times, {sample.id}", max(errors), TIME_TOLERANCE_S, unit="s"))
    return checks


def by_processor(
    family: "FamilyAdapter", prompt: Sequence[int], clips: "Sequence[Clip]"
) -> dict[str, Any]:
    """What the checkpoint's processor makes of the same text and frames."""
    from transformers.video_utils import VideoMetadata

    images = [torch.tensor(clip.frames[0]) for clip in clips if clip.kind is MediaKind.image]
    videos = [clip for clip in clips if clip.kind is MediaKind.video]
    media: dict[str, Any] = {}
    if images:
        media |= {"images": images, "images_kwargs": {"do_resize": False}}
    if videos:
        told = [family.video_metadata(clip) for clip in videos]
        for each in told:
            del each["do_sample_frames"]
        media |= {
            "videos": [torch.tensor(clip.frames) for clip in videos],
            "video_metadata": [VideoMetadata(**each) for each in told],
            "videos_kwargs": {"do_resize": False, "do_sample_frames": False},
        }
    text = family.tokenizer.decode(prompt)
    return dict(family.processor(text=[text], return_tensors="pt", **media))


def processor_differences(inputs: "PromptInputs", expected: dict[str, Any]) -> list[str]:
    """Where learner inputs differ from the processor's, a sentence each."""
    differences = []
    theirs = expected["input_ids"][0].tolist()
    if inputs.token_ids != theirs:
        differences.append(f"{len(inputs.token_ids)} tokens, the processor makes {len(theirs)}")
    for name in FIELDS:
        ours, other = getattr(inputs, name), expected.get(name)
        same = ours is other if ours is None or other is None else torch.equal(ours, other)
        if not same:
            differences.append(f"{name} differ from the processor's")
    return differences


def engine_positions(
    family: "FamilyAdapter",
    prompt: Sequence[int],
    clips: "Sequence[Clip]",
    processed: dict[str, Any],
) -> torch.Tensor:
    """int64 [3, P] by the model class that vLLM runs, for the processor's tokens and grids."""
    from vllm.model_executor.models import ModelRegistry

    (architecture,) = family.config.architectures
    model_class = ModelRegistry.models[architecture].load_model_cls()
    # Nothing but its configuration is asked for, so no weights are needed.
    model = object.__new__(model_class)
    model.__dict__["config"] = family.config
    tokens = processed["input_ids"][0].tolist()
    positions, _ = model.get_mrope_input_positions(
        tokens, _features(family, prompt, clips, processed)
    )
    return positions


def _features(
    family: "FamilyAdapter",
    prompt: Sequence[int],
    clips: "Sequence[Clip]",
    processed: dict[str, Any],
) -> list[SimpleNamespace]:
    """Each medium as vLLM describes it: its kind, where its tokens begin, its grid."""
    kinds = {
        family.processor.image_token_id: MediaKind.image,
        family.processor.video_token_id: MediaKind.video,
    }
    remaining = {kind: iter([c for c in clips if c.kind is kind]) for kind in MediaKind}
    counts = dict.fromkeys(MediaKind, 0)
    features, offset = [], 0
    for token in prompt:
        if token not in kinds:
            offset += 1
            continue
        kind = kinds[token]
        number, counts[kind] = counts[kind], counts[kind] + 1
        name = f"{kind.value}_grid_thw"
        data = {name: SimpleNamespace(data=processed[name][number])}
        if kind is MediaKind.video and processed.get("second_per_grid_ts") is not None:
            seconds = torch.as_tensor(processed["second_per_grid_ts"])[number]
            data["second_per_grid_ts"] = SimpleNamespace(data=seconds)
        place = SimpleNamespace(offset=offset)
        features.append(SimpleNamespace(modality=kind.value, data=data, mm_position=place))
        offset += family.num_medium_tokens(next(remaining[kind]))
    return features


def _positions_differ(inputs: "PromptInputs", theirs: torch.Tensor) -> list[str]:
    ours = inputs.position_ids
    if ours.shape != theirs.shape:
        return [f"{ours.shape[1]} positions, vLLM has {theirs.shape[1]}"]
    if torch.equal(ours, theirs):
        return []
    first = int((ours != theirs).any(dim=0).nonzero()[0])
    return [
        f"token {first} stands at {ours[:, first].tolist()}, in vLLM {theirs[:, first].tolist()}"
    ]


def time_error_s(clip: "Clip") -> float:
    """Largest distance between a frame's time and its number over the source's rate; 0 for a clip
    that has times of its own.
    """
    told = clip.metadata
    if has_own_times(told):
        return 0.0
    return max(
        abs(time - index / told.source_fps)
        for time, index in zip(told.timestamps_s, told.frame_indices, strict=True)
    )
