"""What a run reads of its samples: clips, prompts with their length, offline trajectories.

It binds the streams of `data` and `offline` to a model family and a config, for `ray_runtime`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from easyvideor1.preprocess.store import ClipStore
from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.data import TrainingData, UnusableSampleError
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.offline import OfflineReader

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter
    from easyvideor1.preprocess.rules import FamilyRules


def open_store(config: TrainConfig, rules: "FamilyRules", *, validation: bool) -> ClipStore:
    """The clips of a run's samples, on the budget of training or of validation."""
    return ClipStore(config.cache, config.budget, rules, config.decode, validation=validation)


@dataclass(kw_only=True, slots=True)
class Prompter:
    """Samples to prompts. The length is computed from the shapes of the clips, without pixels."""

    family: "FamilyAdapter"
    store: ClipStore
    reward: RewardConfig
    """Settings of the instructions."""
    skip_bad: bool
    """Turn a sample that cannot be asked into `UnusableSampleError`, to be counted; else raise."""
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens and patches by sample id."""

    def __call__(self, sample: Sample) -> Prompt:
        """The sample as the model is asked.

        Raises:
            UnusableSampleError: it cannot be asked or scored, and `skip_bad` is set.
            UserError: the same, and it is not.
        """
        try:
            return self._prompt(sample)
        except UserError as error:
            if not self.skip_bad:
                raise
            raise UnusableSampleError(type(error).__name__) from error

    def _prompt(self, sample: Sample) -> Prompt:
        if sample.answer is None:
            raise UserError(f"sample {sample.id}: its gold answer is hidden, so it has no reward")
        token_ids = self.family.prompt_token_ids(sample, instruction(sample, self.reward))
        if sample.id not in self._sizes:
            clips = self.store.load(sample)
            self._sizes[sample.id] = (
                self.family.num_prompt_tokens(token_ids, clips),
                self.family.num_patches(clips),
            )
        num_tokens, num_patches = self._sizes[sample.id]
        return Prompt(
            sample=sample, token_ids=token_ids, num_tokens=num_tokens, num_patches=num_patches
        )


class Inputs:
    """The streams of one run."""

    def __init__(self, config: TrainConfig, family: "FamilyAdapter"):
        self._config = config
        self._family = family
        self.reader = OfflineReader(
            tokenizer=family.tokenizer,
            end_token_id=family.eos_token_ids[0],
            special_token_ids={*family.forbidden_token_ids, *family.eos_token_ids},
            max_tokens=config.rollout.max_new_tokens,
            reward=config.reward,
        )

    def training(self, samples: Sequence[Sample]) -> TrainingData:
        """Prompts for rollouts."""
        return TrainingData(
            samples,
            self._prompter(validation=False),
            seed=self._config.seed,
            max_prompt_tokens=self._config.rollout.max_prompt_tokens,
        )

    def warm_start(self, samples: Sequence[Sample]) -> TrainingData | None:
        """Prompts that have a usable trajectory; None without a warm start."""
        if self._config.train.warm_start.steps == 0:
            return None
        return TrainingData(
            samples,
            self._prompter(validation=False),
            seed=self._config.seed,
            max_prompt_tokens=self._config.rollout.max_prompt_tokens,
            usable=lambda sample: bool(self.reader.read(sample)),
            name="trajectories",
        )

    def validation(self, samples: Sequence[Sample]) -> list[Prompt]:
        """Held-out prompts; says how many had to be left out, and why."""
        prompter = self._prompter(validation=True)
        limit = self._config.rollout.max_prompt_tokens
        prompts, dropped = [], Counter[str]()
        for sample in samples:
            try:
                prompt = prompter(sample)
            except UnusableSampleError as error:
                dropped[str(error)] += 1
                continue
            if prompt.num_tokens > limit:
                dropped["prompt_too_long"] += 1
            else:
                prompts.append(prompt)
        if dropped:
            reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
            print(f"validation leaves out {dropped.total()} of {len(samples)} samples: {reasons}")
        return prompts

    def _prompter(self, *, validation: bool) -> Prompter:
        return Prompter(
            family=self._family,
            store=open_store(self._config, self._family.rules, validation=validation),
            reward=self._config.reward,
            skip_bad=self._config.data.on_bad_row == "skip",
        )
