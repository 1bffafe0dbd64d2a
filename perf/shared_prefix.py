"""`update_18`, `update_8`, `logprob_18`, `update_18_hybrid`: a group's prompt computed once.

A group of 8 answers to one prompt goes through the learner's own update (or its log-prob pass) on
two layouts of the same micro-batch: `learner.layout=shared_prefix`, and `padded`, one right-padded
row per answer with PyTorch's SDPA, where the vision tower runs once as well. Both have the same
token budget, which holds all rows at once. The prompt is 18 or 8 times as long as an answer;
Qwen3-VL with a text and with a video, `_hybrid` Qwen3.5, whose recurrence on a CPU is torch's
reference. The models are wide enough for matrix products to dominate.

`ratio` is the measured speed-up over the ideal one, n(P + R) / (P + nR) tokens: 1 means that every
token saved was time saved. More is possible, since attention saves more than tokens. A claim has
the worse of its prompts; `detail` has each, with the ideal and the speed-up, seconds of `loop`
(each answer a forward of its own, the vision tower with it) and `peak_gb`, how much the first
update adds to the peak memory of a process that has loaded the model: gradients and optimizer
states in both.

On a GPU the models are those of a 2B Qwen3-VL in bfloat16 with a prompt of 16k tokens.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families import FamilyAdapter, load_family
from easyvideor1.preprocess.families.tiny import build
from easyvideor1.schema.records import Completion, Media, MediaKind, ProblemType, Sample, Segment
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.config import BatchLayout, LearnerConfig
from easyvideor1.train.interfaces import Prompt, TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.network import free_port
from easyvideor1.train.sharding import join_process_group

NUM_ANSWERS = 8
NUM_RUNS = 5
NUM_THREADS = 2
OURS, THEIRS = BatchLayout.shared_prefix, BatchLayout.padded
HAS_GPU = torch.cuda.is_available()


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large everything is."""

    model: TinyModelConfig
    num_frames: int
    """Of the video."""
    side: int
    """Of its frames, in pixels."""
    num_words: int
    """Of the text prompt."""


CPU = Scale(
    model=TinyModelConfig(
        text_hidden=512, text_layers=6, text_heads=8, head_dim=64, vision_hidden=128
    ),
    num_frames=24,
    side=352,
    num_words=620,
)
GPU = Scale(
    model=TinyModelConfig(
        text_hidden=2048, text_layers=28, text_heads=16, head_dim=128,
        vision_hidden=1024, vision_depth=24, vision_heads=16,
    ),
    num_frames=192,
    side=416,
    num_words=6_600,
)  # fmt: skip
SCALE = GPU if HAS_GPU else CPU


class Store:
    """The clips of one sample, in memory."""

    def __init__(self, clips: list[Clip]):
        self._clips = clips

    def load(self, sample: Sample) -> list[Clip]:
        return self._clips


@dataclass(frozen=True, kw_only=True)
class Group:
    """What both sides compute: answers to one prompt, and the clips it shows."""

    examples: list[TrainExample]
    store: Store

    @property
    def lengths(self) -> tuple[int, int]:
        """P and R in tokens."""
        first = self.examples[0]
        return first.prompt.num_tokens, len(first.completion.token_ids)

    @property
    def ideal(self) -> float:
        """Tokens of separate sequences over those of the shared prompt."""
        prompt, answer = self.lengths
        n = len(self.examples)
        return n * (prompt + answer) / (prompt + n * answer)


def video() -> Clip:
    shape = (SCALE.num_frames, 3, SCALE.side, SCALE.side)
    indices = tuple(range(SCALE.num_frames))
    return Clip(
        kind=MediaKind.video,
        frames=np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8),
        key="video",
        metadata=ClipMetadata(
            source_fps=2.0,
            frame_indices=indices,
            timestamps_s=tuple(index / 2 for index in indices),
            sample_fps=2.0,
            total_frames=len(indices),
            duration_s=len(indices) / 2,
            width=SCALE.side,
            height=SCALE.side,
            decoder="none",
            decoder_version="0",
        ),
    )


def group_of(family: FamilyAdapter, kind: str, prompt_over_answer: int) -> Group:
    """Random answers of equal length to a prompt with a video, or with as much text."""
    clips = [video()] if kind == "video" else []
    words = "" if clips else " ".join(["What was to be seen before that?"] * (SCALE.num_words // 7))
    sample = Sample(
        id=kind,
        problem=f"{words} What happens?",
        answer="A",
        problem_type=ProblemType.open_ended,
        media=tuple(Media(kind=MediaKind.video, path="video.mp4") for _ in clips),
    )
    token_ids = family.prompt_token_ids(sample, "")
    prompt = Prompt(
        sample=sample,
        token_ids=token_ids,
        num_tokens=family.num_prompt_tokens(token_ids, clips),
        num_patches=family.num_patches(clips),
    )
    length = round(prompt.num_tokens / prompt_over_answer)
    allowed = sorted(set(range(len(family.tokenizer))) - set(family.forbidden_token_ids))
    rng = np.random.default_rng(1)
    examples = [
        TrainExample(
            prompt=prompt,
            completion=Completion(
                segments=(Segment(token_ids=tuple(rng.choice(allowed, length).tolist())),),
                text="",
                finish_reason="length",
            ),
            advantages=[1.0 if index % 2 else -1.0] * length,
        )
        for index in range(NUM_ANSWERS)
    ]
    return Group(examples=examples, store=Store(clips))


def learner_of(model: Path, family: FamilyAdapter, layout: BatchLayout) -> RankLearner:
    return RankLearner(
        config=LearnerConfig(layout=layout, threads=NUM_THREADS),
        algorithm=AlgorithmConfig(),
        model_path=str(model),
        family=family,
        clip_store=Store([]),
        dtype="bfloat16" if HAS_GPU else "float32",
    )


class Measurement:
    """One family's model on both layouts."""

    def __init__(self, model: Path):
        self.model = model
        self.family = load_family(str(model))
        self.learners = {name: learner_of(model, self.family, name) for name in (OURS, THEIRS)}

    def update_s(
        self, layout: BatchLayout, group: Group, *, max_tokens: int | None = None
    ) -> float:
        learner = self._prepared(layout, group, max_tokens)
        return seconds(lambda: learner.update(group.examples))

    def logprobs_s(self, layout: BatchLayout, group: Group) -> float:
        learner = self._prepared(layout, group, None)
        return seconds(lambda: learner.logprobs(group.examples))

    def _prepared(self, layout: BatchLayout, group: Group, max_tokens: int | None) -> RankLearner:
        learner = self.learners[layout]
        learner.clip_store = group.store
        learner._screen._clip_store = group.store
        learner.config.micro_batch_tokens = max_tokens or NUM_ANSWERS * sum(group.lengths)
        return learner

    def compare(
        self, group: Group, side_s: Callable[[BatchLayout, Group], float]
    ) -> dict[str, Any]:
        """Both layouts in turns, after one round that does not count."""
        times: dict[BatchLayout, list[float]] = {OURS: [], THEIRS: []}
        for run in range(NUM_RUNS + 1):
            for layout, values in times.items():
                value = side_s(layout, group)
                values += [value] if run else []
        ours, theirs = median(times[OURS]), median(times[THEIRS])
        prompt, answer = group.lengths
        return {
            "prompt_tokens": prompt,
            "answer_tokens": answer,
            "ideal": group.ideal,
            "speed_up": theirs / ours,
            "ours": times[OURS],
            "baseline": times[THEIRS],
        }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if HAS_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak_gb(model: Path, layout: BatchLayout, kind: str, prompt_over_answer: int) -> float:
    """What an update adds, in a process of its own."""
    arguments = ["peak", str(model), layout.value, kind, str(prompt_over_answer)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout.splitlines()[-1])


def print_peak(model: Path, layout: BatchLayout, kind: str, prompt_over_answer: int) -> None:
    family = load_family(str(model))
    learner = learner_of(model, family, layout)
    group = group_of(family, kind, prompt_over_answer)
    learner.clip_store = learner._screen._clip_store = group.store
    learner.config.micro_batch_tokens = NUM_ANSWERS * sum(group.lengths)
    if HAS_GPU:
        before = torch.cuda.memory_allocated()
        learner.update(group.examples)
        print((torch.cuda.max_memory_allocated() - before) / 1e9)
        return
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    learner.update(group.examples)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e9)


def claim(name: str, found: dict[str, dict[str, Any]]) -> None:
    """Print the worse of the prompts as the claim, with all of them."""
    worst = min(found.values(), key=lambda one: one["speed_up"] / one["ideal"])
    line = {
        "claim": name,
        "ratio": worst["speed_up"] / worst["ideal"],
        "ours_s": median(worst["ours"]),
        "baseline_s": median(worst["baseline"]),
        "detail": found
        | {"device": device_name(), "threads": NUM_THREADS, "nproc": os.cpu_count()},
    }
    print(json.dumps(line), flush=True)


def device_name() -> str:
    return torch.cuda.get_device_name() if HAS_GPU else "cpu"


def measure(folder: Path, family: str) -> None:
    model = folder / family
    build(replace(SCALE.model, family=family), model)
    measurement = Measurement(model)
    for ratio in (18, 8) if family == "qwen3_vl" else (18,):
        groups = {kind: group_of(measurement.family, kind, ratio) for kind in ("text", "video")}
        updates = {
            kind: measurement.compare(group, measurement.update_s)
            | {
                "loop_s": measurement.update_s(THEIRS, group, max_tokens=1),
                "peak_gb": {
                    layout.value: peak_gb(model, layout, kind, ratio) for layout in (OURS, THEIRS)
                },
            }
            for kind, group in groups.items()
        }
        hybrid = "" if family == "qwen3_vl" else "_hybrid"
        claim(f"update_{ratio}{hybrid}", updates)
        if ratio == 18 and not hybrid:
            logprobs = {
                kind: measurement.compare(group, measurement.logprobs_s)
                for kind, group in groups.items()
            }
            claim(f"logprob_{ratio}", logprobs)


def main(arguments: Sequence[str]) -> None:
    if HAS_GPU:  # weights stay float32 beside a computation in bfloat16 within a group alone
        join_process_group(
            rank=0, world_size=1, host="127.0.0.1", port=free_port("127.0.0.1"), timeout_s=600
        )
    if arguments:
        _, model, layout, kind, ratio = arguments
        print_peak(Path(model), BatchLayout(layout), kind, int(ratio))
        return
    with tempfile.TemporaryDirectory() as folder:
        for family in ("qwen3_vl", "qwen3_5"):
            measure(Path(folder), family)


if __name__ == "__main__":
    main(sys.argv[1:])
