"""Examples on random pixels, and a tiny policy whose log-probs are far from uniform."""

from collections.abc import Sequence
from functools import cache
from math import inf
from pathlib import Path

import torch

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families import load_family
from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.preprocess.families.tiny import build
from easyvideor1.schema.records import Completion, Sample, Segment, Source
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.config import LearnerConfig, OptimizerConfig
from easyvideor1.train.interfaces import Objective, Prompt, TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.token_tree import ClipLoader
from tests.clips import image, sample_about, video

INSTRUCTION = "Answer briefly."

GAIN = 4.0
"""On all matrices of the tiny model: the untrained one is so flat that errors would not show."""


def build_sharp_model(folder: Path, family: str = "qwen3_vl") -> None:
    """An ordinary Hugging Face folder, as `model=tiny_<family>` but with larger weights."""
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


def clips_about(factor: int) -> dict[str, list[Clip]]:
    """By sample id, in frames of two or three times `factor` pixels a side."""
    side = 2 * factor

    def picture(seed: int) -> Clip:
        return image(height=side, width=side, seed=seed)

    return {
        "text": [],
        "other text": [],
        "image": [picture(1)],
        "video": [video(4, height=side, width=side, seed=2)],
        "other video": [video(6, height=side, width=3 * factor, seed=3)],
        "image and video": [picture(4), video(4, height=side, width=side, seed=5)],
    }


CLIPS = clips_about(32)
"""Of Qwen3-VL and Qwen3.5."""


@cache
def clips_for(family: FamilyAdapter) -> dict[str, list[Clip]]:
    """The clips in frames that suit `family`."""
    return clips_about(family.rules.factor)


class RandomClips:
    """The clip store of these samples."""

    def __init__(self, clips: dict[str, list[Clip]] = CLIPS):
        self.clips = clips

    def load(self, sample: Sample) -> list[Clip]:
        return self.clips[sample.id]


def sample(name: str) -> Sample:
    # Prompts of different lengths, so that batches are padded.
    return sample_about(CLIPS[name], problem=f"Which colour is the {name}?", id=name)


def plain_inputs(family: FamilyAdapter, name: str) -> dict[str, torch.Tensor]:
    """The prompt about `name` as a plain model of transformers takes it."""
    prompt = family.prompt_token_ids(sample(name), INSTRUCTION)
    inputs = family.learner_inputs(prompt, clips_for(family)[name])
    ids = torch.tensor([inputs.token_ids])
    media = {
        field: getattr(inputs, field)
        for field in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
        if getattr(inputs, field) is not None
    }
    kinds = inputs.mm_token_type_ids[None]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": kinds,
    } | media


def prompt_about(
    family: FamilyAdapter, about: Sample, clips: list[Clip], instruction: str = INSTRUCTION
) -> Prompt:
    token_ids = family.prompt_token_ids(about, instruction)
    return Prompt(
        sample=about,
        token_ids=token_ids,
        num_tokens=family.num_prompt_tokens(token_ids, clips),
        num_patches=family.num_patches(clips),
    )


def answer_ids(family: FamilyAdapter, num_tokens: int, seed: int) -> list[int]:
    """Random tokens that a policy may sample, with its end token last."""
    allowed = sorted(set(range(len(family.tokenizer))) - set(family.forbidden_token_ids))
    draw = torch.randint(len(allowed), (num_tokens - 1,), generator=torch.manual_seed(seed))
    return [*(allowed[i] for i in draw.tolist()), family.eos_token_ids[0]]


def example(
    family: FamilyAdapter,
    name: str,
    token_ids: Sequence[int],
    *,
    advantage: float = 1.0,
    logprobs: Sequence[float] | None = None,
    source: Source = Source.policy,
    token_weights: list[float] | None = None,
    old_logprobs: list[float] | None = None,
) -> TrainExample:
    about = sample(name)
    segment = Segment(
        token_ids=tuple(token_ids), logprobs=None if logprobs is None else tuple(logprobs)
    )
    return TrainExample(
        prompt=prompt_about(family, about, clips_for(family)[name]),
        completion=Completion(segments=(segment,), text="", finish_reason="stop", source=source),
        advantages=[advantage] * len(token_ids),
        token_weights=token_weights,
        old_logprobs=old_logprobs,
    )


def group(
    family: FamilyAdapter, name: str, lengths: Sequence[int], *, seed: int = 0, **fields: object
) -> list[TrainExample]:
    """Answers of these lengths to one prompt, with advantages 1, -1, 0.5, 1, …"""
    advantages = (1.0, -1.0, 0.5)
    return [
        example(
            family,
            name,
            answer_ids(family, length, seed=100 * seed + i),
            **({"advantage": advantages[i % 3]} | fields),  # type: ignore[arg-type]
        )
        for i, length in enumerate(lengths)
    ]


def all_groups(family: FamilyAdapter, lengths: Sequence[int] = (5, 9, 2)) -> list[TrainExample]:
    """One group for each kind of prompt."""
    return [e for seed, name in enumerate(CLIPS) for e in group(family, name, lengths, seed=seed)]


def make_learner(
    path: Path,
    temperature: float = 1.0,
    dtype: str = "auto",
    clip_store: ClipLoader | None = None,
    algorithm: AlgorithmConfig | None = None,
    **fields: object,
) -> RankLearner:
    """Without gradient clipping, which would hide errors of scale."""
    settings: dict = {"optimizer": OptimizerConfig(max_grad_norm=inf)} | fields
    return RankLearner(
        config=LearnerConfig(**settings),
        algorithm=algorithm or AlgorithmConfig(),
        model_path=str(path),
        family=family_at(path),
        clip_store=clip_store or RandomClips(clips_for(family_at(path))),
        temperature=temperature,
        dtype=dtype,
    )


def trainable_learner(path: Path, **fields: object) -> RankLearner:
    """With a learning rate that moves the weights, a warm-up and weight decay."""
    optimizer = OptimizerConfig(lr=1e-3, warmup_updates=3, weight_decay=0.1)
    return make_learner(path, **({"optimizer": optimizer} | fields))  # type: ignore[arg-type]


def gradients_of(
    learner: RankLearner,
    examples: list[TrainExample],
    objective: Objective = "policy",
    *,
    kl_coefficient: float = 0.0,
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradient by parameter name as one update would apply it, and the metrics; changes nothing."""
    learner._apply = lambda grad_norm, losses: None  # type: ignore[method-assign]
    try:
        learner.optimizer.zero_grad()
        metrics = without_memory(learner.update(examples, objective, kl_coefficient=kl_coefficient))
        gradients = {
            name.replace("_checkpoint_wrapped_module.", ""): _full(parameter.grad)
            for name, parameter in learner.model.hf.named_parameters()
            if parameter.grad is not None
        }
        learner.optimizer.zero_grad()
        return gradients, metrics
    finally:
        del learner._apply


def without_memory(metrics: dict[str, float]) -> dict[str, float]:
    """What does not depend on how and in which process an update was computed."""
    return {
        name: value
        for name, value in metrics.items()
        if not name.endswith(("_gb", "/computed_tokens", "/tflops"))
        and not name.startswith("seconds/")
    }


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()


def largest_difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """Largest difference over all gradients, as a share of the largest gradient."""
    assert ours.keys() == theirs.keys()
    scale = max(tensor.abs().max() for tensor in theirs.values())
    return float(max((ours[name] - theirs[name]).abs().max() for name in theirs) / scale)


def part_of(parameter_name: str) -> str:
    """Part of the model that a weight belongs to, by how transformers names it."""
    if ".visual." not in parameter_name:
        return "language"
    return "merger" if ".merger." in parameter_name or "deepstack" in parameter_name else "vision"
