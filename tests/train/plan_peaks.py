"""What updates really take: a learner in a process of its own that reads its peak from the kernel.

`python -m tests.train.plan_peaks <model> <kind> <overrides as JSON>` prints one JSON line.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.train.config import BatchLayout, LearnerConfig, LoraConfig
from easyvideor1.train.interfaces import TrainExample
from tests.clips import video
from tests.train.policy_cases import RandomClips, example, family_at, make_learner

NUM_ANSWERS, ANSWER_TOKENS = 8, 60
CLIP = video(24, height=320, width=320, seed=7)


def learner_config(**overrides: Any) -> LearnerConfig:
    if "lora_rank" in overrides:
        overrides["lora"] = LoraConfig(rank=overrides.pop("lora_rank"))
    if "layout" in overrides:
        overrides["layout"] = BatchLayout(overrides["layout"])
    return LearnerConfig(**overrides)


def clips_of(kind: str) -> dict[str, list]:
    return {kind: [CLIP] if kind == "video" else []}


def group_of(family: FamilyAdapter, kind: str) -> list[TrainExample]:
    """Answers that are all as long as they may be."""
    from dataclasses import replace

    from tests.train.policy_cases import answer_ids, prompt_about, sample

    about = sample(kind)
    if kind == "text":
        about = replace(about, problem="What was to be seen before that? " * 60)
    prompt = prompt_about(family, about, clips_of(kind)[kind])
    return [
        replace(example(family, kind, answer_ids(family, ANSWER_TOKENS, seed)), prompt=prompt)
        for seed in range(NUM_ANSWERS)
    ]


def memory_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def main(model: str, kind: str, overrides: str) -> None:
    torch.set_num_threads(2)
    family = family_at(Path(model))
    gc.collect()
    before = memory_bytes("VmRSS")
    learner = make_learner(
        Path(model),
        clip_store=RandomClips(clips_of(kind)),
        **vars_of(learner_config(**json.loads(overrides))),
    )
    examples = group_of(family, kind)
    learner.update(examples)  # from here on there are moments
    Path("/proc/self/clear_refs").write_text("5")  # begin a new peak
    learner.update(examples)
    print(json.dumps({"peak_bytes": memory_bytes("VmHWM") - before, "pid": os.getpid()}))


def vars_of(config: LearnerConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in LearnerConfig.__dataclass_fields__}


if __name__ == "__main__":
    main(*sys.argv[1:])
