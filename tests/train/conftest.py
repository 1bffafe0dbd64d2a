"""A policy small enough to check by hand: a table of answer probabilities per sample.

It satisfies the Protocols of the loop, samples with derived seeds, learns by policy gradient and
saves itself, so that the loop is tested on something that really learns.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easyvideor1.preprocess.config import CurriculumConfig, DataConfig, ModelConfig
from easyvideor1.preprocess.families.base import TextTokens
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import (
    Completion,
    Group,
    ProblemType,
    Sample,
    Segment,
    Trajectory,
)
from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.checkpointer import Checkpointer
from easyvideor1.train.config import (
    LearnerConfig,
    MixingConfig,
    MixingMode,
    RolloutConfig,
    TrackingConfig,
    TrainConfig,
    TrainSection,
    WarmStartConfig,
)
from easyvideor1.train.data import TrainingData
from easyvideor1.train.interfaces import (
    SAVED_PROGRESS,
    SAVED_TRAINING,
    SAVED_WEIGHTS,
    CheckpointBytes,
    Prompt,
    Runtime,
    TrainExample,
)
from easyvideor1.train.kl_penalty import KlPenalty
from easyvideor1.train.left_out import Journal, LeftOut
from easyvideor1.train.mixing import MixedSampler, OfflineGate
from easyvideor1.train.offline import OfflineReader, stable_hash
from easyvideor1.train.orders import Order, order_of
from easyvideor1.train.run_folder import RunFolder
from easyvideor1.train.scorer import score_completions
from tests.live_engine import LiveEngine

ANSWERS = ("<answer>A</answer>", "<answer>B</answer>", "<answer>C</answer>", "dunno")
END = 9


class WordTokenizer:
    """`<answer>`, single letters and the rest, one token each; `<|pad|>` reads like a control
    token."""

    VOCABULARY = ("<answer>", "</answer>", "A", "B", "C", "dunno", "<|pad|>")

    def text_tokens(self, text: str) -> TextTokens:
        ids, spans, start = [], [], 0
        while start < len(text):
            word = next(w for w in self.VOCABULARY if text.startswith(w, start))
            ids.append(self.VOCABULARY.index(word))
            spans.append((start, start + len(word)))
            start += len(word)
        return TextTokens(token_ids=ids, spans=spans)

    def has_control_text(self, text: str) -> bool:
        return "<|pad|>" in text


class TablePolicy:
    """Sampler and learner in one; what is sampled changes only when weights are published."""

    def __init__(self, *, seed: int = 0, lr: float = 1.0):
        self.seed, self.lr = seed, lr
        self.logits: dict[str, np.ndarray] = {}
        self.published: dict[str, np.ndarray] = {}
        self.version = 0
        self.phases: list[str] = []
        self.updates: list[tuple[str, list[TrainExample]]] = []
        self.unwritten: tuple[Path, str] | None = None

    def probabilities(self, logits: dict[str, np.ndarray], sample_id: str) -> np.ndarray:
        weights = np.exp(logits.get(sample_id, np.zeros(len(ANSWERS))))
        return weights / weights.sum()

    # Sampler

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_sizes: Sequence[int],
        *,
        step: int,
        draw: int = 0,
        shuffled_frames: bool = False,
    ) -> list[list[Completion]]:
        groups = []
        for prompt, size in zip(prompts, group_sizes, strict=True):
            name = prompt.sample.id
            rng = np.random.default_rng(stable_hash(self.seed, step, draw, name))
            # Out of order, the frames say nothing to a table.
            table = {} if shuffled_frames else self.published
            p = self.probabilities(table, name)
            picks = rng.choice(len(ANSWERS), size=size, p=p)
            groups.append([self._completion(int(i), float(np.log(p[i]))) for i in picks])
        return groups

    def answer(
        self, prompts: Sequence[Prompt], *, validation: bool = True
    ) -> list[Completion | None]:
        best = [self.probabilities(self.published, p.sample.id).argmax() for p in prompts]
        return [self._completion(int(i), 0.0) for i in best]

    def publish_table(self, table: dict[str, np.ndarray]) -> None:
        self.published = {name: row.copy() for name, row in table.items()}
        self.version += 1

    def metrics(self) -> dict[str, float]:
        return {}

    def _completion(self, index: int, logprob: float) -> Completion:
        segment = Segment(
            token_ids=(index, END), logprobs=(logprob, 0.0), policy_version=self.version
        )
        return Completion(segments=(segment,), text=ANSWERS[index], finish_reason="stop")

    # Learner

    def begin(self, objective: str) -> None:
        self.phases.append(objective)

    def update(
        self,
        examples: Sequence[TrainExample],
        objective: str = "policy",
        *,
        kl_coefficient: float = 0.0,
    ) -> dict[str, float]:
        self.updates.append((objective, list(examples)))
        for example in examples:
            row = self.logits.setdefault(example.prompt.sample.id, np.zeros(len(ANSWERS)))
            one = np.eye(len(ANSWERS))[ANSWERS.index(example.completion.text)]
            gradient = one - self.probabilities(self.logits, example.prompt.sample.id)
            row += self.lr * example.advantages[0] * gradient / len(examples)
        return {"learner/loss": 0.0}

    def take_refused(self) -> dict[str, str]:
        return {}

    def publish(self, sampler: Any) -> None:
        self.publish_table(self.logits)

    def save(self, folder: Path) -> None:
        self.begin_save(folder)
        self.finish_save()

    def begin_save(self, folder: Path) -> None:
        """The table is copied here and written on `finish_save`."""
        table = {name: row.tolist() for name, row in self.logits.items()}
        self.unwritten = (folder, json.dumps(table))

    def finish_save(self, timeout_s: float | None = None) -> None:
        if self.unwritten is None:
            return
        (folder, table), self.unwritten = self.unwritten, None
        for part in (SAVED_WEIGHTS, SAVED_TRAINING):
            (folder / part).mkdir(parents=True)
        (folder / SAVED_WEIGHTS / "table.json").write_text(table)
        (folder / SAVED_TRAINING / SAVED_PROGRESS).write_text("{}")

    def checkpoint_bytes(self) -> CheckpointBytes:
        return CheckpointBytes(weights=400, training=20, export=20)

    def load(self, folder: Path) -> None:
        table = json.loads((folder / SAVED_WEIGHTS / "table.json").read_text())
        self.logits = {name: np.array(row) for name, row in table.items()}

    def export(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")


class ListTracker:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.groups: list[Group] = []

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        self.rows.append((step, metrics))

    def log_groups(self, groups: Sequence[Group], *, step: int) -> None:
        self.groups += groups

    def of(self, name: str) -> dict[int, float]:
        return {step: metrics[name] for step, metrics in self.rows if name in metrics}


def make_sample(index: int, *, offline: Sequence[str] = (), answer: Any = None) -> Sample:
    return Sample(
        id=f"s{index}",
        problem="Which?",
        answer=answer or "ABC"[index % 3],
        problem_type=ProblemType.multiple_choice,
        options=("red", "green", "blue"),
        offline=tuple(Trajectory(text=text) for text in offline),
    )


def make_prompt(sample: Sample) -> Prompt:
    return Prompt(sample=sample, token_ids=[1, 2, 3], num_tokens=3, num_patches=0)


def make_left_out(name: str = "data", *, max_share: float = 0.1) -> LeftOut:
    return LeftOut(name, max_share=max_share, journal=Journal(None, "training"))


def make_reader(**changes: Any) -> OfflineReader:
    settings: dict[str, Any] = {
        "encoder": WordTokenizer(),
        "end_token_id": END,
        "max_tokens": 8,
        "reward": RewardConfig(),
    }
    return OfflineReader(**(settings | changes))


def shuffled_order(samples: Sequence[Sample], seed: int) -> Order:
    """Every sample once per epoch."""
    return order_of(samples, seed=seed, weights={}, curriculum=CurriculumConfig())


def make_config(output_dir: Path, **train: Any) -> TrainConfig:
    algorithm = train.pop("algorithm", AlgorithmConfig())
    mixing = train.pop("mixing", MixingConfig())
    if isinstance(mixing, MixingMode):
        mixing = MixingConfig(mode=mixing)
    seed = train.pop("seed", 0)
    train.setdefault("warm_start", WarmStartConfig(steps=0))
    return TrainConfig(
        seed=seed,
        output_dir=str(output_dir),
        model=ModelConfig(path="table"),
        data=DataConfig(name="table"),
        rollout=RolloutConfig(batch_size=4, group_size=4),
        algorithm=algorithm,
        mixing=mixing,
        learner=LearnerConfig(keep_last=2, keep_best=1),
        tracking=TrackingConfig(mlflow=False),
        train=TrainSection(**train),
    )


class TableRun:
    """A run of the loop on a table policy, in a folder, that can be started again."""

    def __init__(self, config: TrainConfig, samples: Sequence[Sample]):
        self.config = config
        mode = config.mixing.mode
        self.folder = RunFolder(Path(config.output_dir))
        self.policy = TablePolicy(seed=config.seed)
        self.tracker = ListTracker()
        self.reader = make_reader()
        self.data = self._data(samples)
        self.sealed: list[Path] = []
        warm_data = self._data(samples, usable=lambda s: bool(self.reader.read(s)))
        start = self.folder.starting_point(config)
        self.folder.begin(config)
        advantages = AdvantageEstimator(config.algorithm.advantage, config.algorithm.offline)
        kl = KlPenalty(config.algorithm.kl)
        warm = (warm_data, self.reader) if config.train.warm_start.steps else None
        self.runtime = Runtime(
            data=self.data,
            sampler=MixedSampler(self.policy, self.reader, config.mixing, seed=config.seed)
            if mode in (MixingMode.replace, MixingMode.append)
            else self.policy,
            gate=OfflineGate(self.reader, config.mixing, seed=config.seed)
            if mode is MixingMode.gated
            else None,
            learner=self.policy,
            score=lambda answers: score_completions(answers, config.reward),
            advantages=advantages,
            kl=kl,
            checkpoints=Checkpointer(
                config,
                self.folder,
                start,
                learner=self.policy,
                stateful={
                    "data": self.data,
                    "warm_start_data": warm_data,
                    "advantages": advantages,
                    "kl": kl,
                },
                on_sealed=self.sealed.append,
            ),
            tracker=self.tracker,
            warm_start=warm,
            validation=[make_prompt(sample) for sample in samples],
        )

    def _data(self, samples: Sequence[Sample], **more: Any) -> TrainingData:
        return TrainingData(
            samples,
            make_prompt,
            order=shuffled_order(samples, self.config.seed),
            left_out=make_left_out(),
            **more,
        )


@pytest.fixture
def table() -> Any:
    """The builders above, as one namespace."""
    from types import SimpleNamespace

    return SimpleNamespace(
        Run=TableRun,
        Policy=TablePolicy,
        Tracker=ListTracker,
        sample=make_sample,
        prompt=make_prompt,
        reader=make_reader,
        left_out=make_left_out,
        config=make_config,
        END=END,
        ANSWERS=ANSWERS,
    )


@pytest.fixture
def samples() -> list[Sample]:
    """Twelve questions; every second has a right offline answer."""
    return [
        make_sample(i, offline=[f"<answer>{'ABC'[i % 3]}</answer>"] if i % 2 else [])
        for i in range(12)
    ]


@pytest.fixture(scope="session")
def sharp_model_path(sharp_models: Callable[[str], Path]) -> Path:
    """A tiny Qwen3-VL whose answers are far from equally likely."""
    return sharp_models("qwen3_vl")


@pytest.fixture
def sharp_engine(engine: LiveEngine, sharp_model_path: Path) -> LiveEngine:
    """The engine with the weights of the sharp model: log-probs that differ by token."""
    from tests.train.policy_cases import make_learner

    engine.publish(dict(make_learner(sharp_model_path).gather_weights()))
    return engine
