"""A run of the loop on a real learner whose sampled answers are read from a file.

`test_resume` starts it in a process of its own: `python -m tests.train.replayed_run FOLDER MODEL
ANSWERS STEPS [KILL_DURING]`, where the last is a step in whose update the process kills itself.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import Completion, Sample, Segment, Trajectory
from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName, AlgorithmConfig
from easyvideor1.train.checkpointer import Checkpointer
from easyvideor1.train.config import MixingConfig, MixingMode, OptimizerConfig, TrainConfig
from easyvideor1.train.data import TrainingData
from easyvideor1.train.interfaces import Prompt, Runtime, Sampler, TrainExample
from easyvideor1.train.kl_penalty import KlPenalty
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.loop import train
from easyvideor1.train.mixing import MixedSampler
from easyvideor1.train.offline import OfflineReader
from easyvideor1.train.run_folder import RunFolder
from easyvideor1.train.scorer import score_completions
from tests.train.conftest import ListTracker, make_config, make_left_out, shuffled_order
from tests.train.policy_cases import (
    CLIPS,
    answer_ids,
    clips_for,
    family_at,
    make_learner,
    prompt_about,
    sample,
)

GROUP_SIZE, NUM_STEPS = 4, 6
TEXTS = ("<answer>A</answer>", "<answer>B</answer>", "nothing")


def write_answers(path: Path, model_path: Path) -> None:
    """Random tokens for every prompt and step, with texts that earn different rewards."""
    family, rows = family_at(model_path), []
    for step in range(1, NUM_STEPS + 1):
        for place, name in enumerate(CLIPS):
            seeds = [1000 * step + 10 * place + index for index in range(GROUP_SIZE)]
            answers = [
                {"token_ids": answer_ids(family, 3 + seed % 4, seed), "text": TEXTS[seed % 3]}
                for seed in seeds
            ]
            rows.append({"step": step, "sample": name, "answers": answers})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


class ReplayingSampler:
    """Answers as the file says."""

    def __init__(self, path: Path):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        self._answers = {(row["step"], row["sample"]): row["answers"] for row in rows}

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_sizes: Sequence[int],
        *,
        step: int,
        draw: int = 0,
        shuffled_frames: bool = False,
    ) -> list[list[Completion]]:
        return [
            [
                Completion(
                    segments=(Segment(token_ids=tuple(answer["token_ids"])),),
                    text=answer["text"],
                    finish_reason="stop",
                )
                for answer in self._answers[step, prompt.sample.id][:size]
            ]
            for prompt, size in zip(prompts, group_sizes, strict=True)
        ]

    def answer(self, prompts: Sequence[Prompt], *, validation: bool = True) -> list[Any]:
        raise NotImplementedError("the run has no validation")

    def publish(self, send: Any, version: int) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}


class LocalLearner:
    """`interfaces.Learner` around one rank in this process."""

    def __init__(self, rank: RankLearner, optimizer: OptimizerConfig, kill_during: int | None):
        self.rank = rank
        self._optimizer, self._kill_during = optimizer, kill_during

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rank, name)

    def begin(self, objective: str) -> None:
        self.rank.begin(self._optimizer, NUM_STEPS)

    def update(self, examples: list[TrainExample], **settings: Any) -> dict[str, float]:
        torch.rand(1)  # an update draws nothing; its random state shall have something to keep
        learned = self.rank.update(examples, **settings)
        if self.rank.num_updates == self._kill_during:
            os.kill(os.getpid(), signal.SIGKILL)
        return learned

    def publish(self, sampler: Sampler) -> None: ...

    def finish_save(self, timeout_s: float | None = None) -> None:
        self.rank.finish_save()


def samples() -> list[Sample]:
    """A question about each kind of media; every second has an offline answer."""
    offline = (Trajectory(text="<answer>A</answer>"), Trajectory(text="so <answer>A</answer>"))
    return [
        replace(sample(name), offline=offline if place % 2 else ())
        for place, name in enumerate(CLIPS)
    ]


def config_of(folder: Path, steps: int) -> TrainConfig:
    config = make_config(
        folder,
        steps=steps,
        save_every=1,
        mixing=MixingConfig(mode=MixingMode.replace),
        # The estimator with something to remember.
        algorithm=AlgorithmConfig(advantage=AdvantageConfig(name=AdvantageName.ema_grpo)),
    )
    config.learner.async_save = True
    return config


def data_of(config: TrainConfig, model_path: Path) -> TrainingData:
    family = family_at(model_path)
    return TrainingData(
        samples(),
        lambda about: prompt_about(family, about, clips_for(family)[about.id]),
        order=shuffled_order(samples(), config.seed),
        left_out=make_left_out(),
    )


def run(folder: Path, model_path: Path, answers: Path, steps: int, kill_during: int | None) -> None:
    """Train to `steps`, from the newest checkpoint in `folder`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)  # as a rank does when it starts
    family = family_at(model_path)
    config = config_of(folder, steps)
    run_folder = RunFolder(folder)
    start = run_folder.starting_point(config)
    run_folder.begin(config)
    optimizer = OptimizerConfig(lr=1e-3, warmup_updates=3, weight_decay=0.1)
    rank = make_learner(model_path, optimizer=optimizer, algorithm=config.algorithm)
    learner: Any = LocalLearner(rank, optimizer, kill_during)
    data = data_of(config, model_path)
    reader = OfflineReader(
        encoder=family, end_token_id=family.eos_token_ids[0], max_tokens=40, reward=RewardConfig()
    )
    advantages, kl = AdvantageEstimator(config.algorithm.advantage), KlPenalty(config.algorithm.kl)
    runtime = Runtime(
        data=data,
        sampler=MixedSampler(ReplayingSampler(answers), reader, config.mixing, seed=config.seed),
        learner=learner,
        score=lambda asked: score_completions(asked, config.reward),
        advantages=advantages,
        kl=kl,
        checkpoints=Checkpointer(
            config,
            run_folder,
            start,
            learner=learner,
            stateful={"data": data, "offline": reader, "advantages": advantages, "kl": kl},
            on_sealed=lambda path: print(path.name, flush=True),
        ),
        tracker=ListTracker(),
    )
    train(config, runtime)


if __name__ == "__main__":
    folder, model_path, answers = map(Path, sys.argv[1:4])
    steps, *kill_during = map(int, sys.argv[4:])
    run(folder, model_path, answers, steps, kill_during[0] if kill_during else None)
