"""An exported checkpoint answers in plain transformers as it does in our engine."""

from pathlib import Path

import av
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.video_utils import VideoMetadata

from easyvideor1.preprocess.config import CacheConfig, CacheMode, DecodeConfig
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Sample
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.config import LearnerConfig, OptimizerConfig
from easyvideor1.train.inputs import Prompter
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.offline import OfflineReader
from tests.live_engine import LiveEngine

NUM_TOKENS = 16
TOY = FrameBudget(min_frames=4, max_frames=4, min_pixels=4096, max_pixels=4096)


@pytest.fixture
def store(engine: LiveEngine) -> ClipStore:
    return ClipStore(
        CacheConfig(mode=CacheMode.live),
        Budgets(video=TOY, image=TOY),
        engine.family.rules,
        DecodeConfig(),
        validation=False,
    )


def learned(engine: LiveEngine, store: ClipStore, samples: list[Sample]) -> RankLearner:
    """The tiny model after a few supervised updates, so that it says something of its own."""
    family = engine.family
    reader = OfflineReader(
        encoder=family,
        end_token_id=family.eos_token_ids[0],
        max_tokens=64,
        reward=RewardConfig(),
    )
    optimizer = OptimizerConfig(lr=3e-3)
    learner = RankLearner(
        config=LearnerConfig(optimizer=optimizer),
        algorithm=AlgorithmConfig(),
        model_path=engine.model_path,
        family=family,
        clip_store=store,
    )
    prompter = Prompter(family=family, store=store, reward=RewardConfig(), max_tokens=4096)
    examples = [
        TrainExample(
            prompt=prompter(sample),
            completion=chosen.completion,
            advantages=[1.0] * len(chosen.completion.token_ids),
        )
        for sample in samples
        if (chosen := reader.choose(sample, seed=0, step=0))
    ]
    for _ in range(8):
        learner.update(examples[:16], "sft")
    return learner


def plain_answer(folder: Path, sample: Sample, forbidden: list[int]) -> list[int]:
    """Greedy tokens by transformers alone: its processor, its template, frames read by PyAV."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(folder)
    with av.open(sample.media[0].path) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        rate = float(container.streams.video[0].average_rate or 0)
    indices = torch.linspace(0, len(frames) - 1, 4).round().int().tolist()
    video = torch.stack([torch.from_numpy(frames[i]).permute(2, 0, 1) for i in indices])
    options = "".join(f"\n{letter}. {o}" for letter, o in zip("ABCD", sample.options, strict=False))
    text = f"{sample.problem}{options}\n{instruction(sample)}"
    turn = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": text}]}]
    inputs = processor(
        text=[processor.apply_chat_template(turn, add_generation_prompt=True)],
        videos=[video],
        video_metadata=[
            VideoMetadata(total_num_frames=len(frames), fps=rate, frames_indices=indices)
        ],
        videos_kwargs={"do_resize": False, "do_sample_frames": False},
        return_tensors="pt",
    )
    tokens = model.generate(
        **inputs, max_new_tokens=NUM_TOKENS, do_sample=False, suppress_tokens=forbidden
    )
    return tokens[0, inputs["input_ids"].shape[1] :].tolist()


def test_plain_transformers_answer_toybox_questions_as_the_engine_does(
    engine: LiveEngine, store: ClipStore, toybox_dir: Path, tmp_path: Path
) -> None:
    samples = list(read_samples(toybox_dir / "train.jsonl"))
    learner = learned(engine, store, samples)
    learner.export(tmp_path / "export")
    engine.publish(dict(learner.gather_weights()))

    asked = {sample.category: sample for sample in samples}
    assert set(asked) == {"colour", "count", "stay", "describe", "when"}
    answers = []
    for sample in asked.values():
        prompt = engine.family.prompt_token_ids(sample, instruction(sample))
        (ours,) = engine.generate(
            prompt, store.load(sample), temperature=0.0, max_new_tokens=NUM_TOKENS
        ).completions
        forbidden = list(engine.family.forbidden_token_ids)
        assert ours.token_ids == plain_answer(tmp_path / "export", sample, forbidden)
        answers.append(ours.token_ids)
    assert len(set(map(tuple, answers))) > 1  # the question matters
