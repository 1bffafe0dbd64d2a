"""What a run reads of its samples: clips, prompts with their length, offline trajectories.

It binds the streams of `data` and `offline` to a model family and a config, for `ray_runtime`, and
says why a sample cannot be asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from easyvideor1.preprocess.clip import ClipShape
from easyvideor1.preprocess.config import Overlong
from easyvideor1.preprocess.errors import DecodeError, MissingClipError
from easyvideor1.preprocess.rescale import differences, largest_that_fit
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.placeholders import PlaceholderError
from easyvideor1.schema.records import Sample
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.data import TrainingData
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.left_out import Journal, LeftOut, Reason, UnusableSampleError
from easyvideor1.train.offline import OfflineReader
from easyvideor1.train.orders import Order, order_of
from easyvideor1.train.run_folder import RunFolder

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter

REASONS: dict[type[UserError], Reason] = {
    PlaceholderError: Reason.placeholders,
    DecodeError: Reason.not_decodable,
    MissingClipError: Reason.not_cached,
}
"""Errors that concern one sample; any other ends the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RescaleOverlong:
    """The `BudgetRule` of `data.overlong=rescale`: a prompt that is too long gets what fits."""

    family: "FamilyAdapter"
    reward: RewardConfig
    max_tokens: int

    def __call__(
        self, sample: Sample, budgets: Budgets, shapes: Callable[[Budgets], list[ClipShape]]
    ) -> Budgets | None:
        """See `BudgetRule`."""
        token_ids = self.family.prompt_token_ids(sample, instruction(sample, self.reward))

        def num_tokens(budgets: Budgets) -> int:
            return self.family.num_prompt_tokens(token_ids, shapes(budgets))

        if num_tokens(budgets) <= self.max_tokens:
            return None
        return largest_that_fit(
            budgets,
            {media.kind for media in sample.media},
            num_tokens,
            limit=self.max_tokens,
            pixels_per_token=self.family.rules.factor**2,
        )


def open_store(config: TrainConfig, family: "FamilyAdapter", *, validation: bool) -> ClipStore:
    """The clips of a run's samples, on the budget of training or of validation."""
    rule = None
    if config.data.overlong is Overlong.rescale:
        rule = RescaleOverlong(
            family=family, reward=config.reward, max_tokens=config.rollout.max_prompt_tokens
        )
    return ClipStore(
        config.cache,
        config.budget,
        family.rules,
        config.decode,
        validation=validation,
        budget_rule=rule,
    )


@dataclass(kw_only=True, slots=True)
class Prompter:
    """Samples to prompts. The length is computed from the shapes of the clips, without pixels."""

    family: "FamilyAdapter"
    store: ClipStore
    reward: RewardConfig
    """Settings of the instructions."""
    max_tokens: int
    """Longest prompt, its media expanded."""
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tokens and patches by sample id."""

    def __call__(self, sample: Sample) -> Prompt:
        """The sample as the model is asked.

        Raises:
            UnusableSampleError: it cannot be asked or scored, or is too long.
            UserError: what is wrong concerns more than this sample.
        """
        if sample.answer is None:
            raise UnusableSampleError(Reason.hidden_answer, "its gold answer is null")
        try:
            return self._prompt(sample)
        except tuple(REASONS) as error:
            raise UnusableSampleError(REASONS[type(error)], str(error)) from error

    def _prompt(self, sample: Sample) -> Prompt:
        token_ids = self.family.prompt_token_ids(sample, instruction(sample, self.reward))
        if sample.id not in self._sizes:
            self._sizes[sample.id] = self._measure(sample, token_ids)
        num_tokens, num_patches = self._sizes[sample.id]
        smaller = self.store.smaller_budgets(sample)
        return Prompt(
            sample=sample,
            token_ids=token_ids,
            num_tokens=num_tokens,
            num_patches=num_patches,
            rescaled=differences(self.store.own_budgets, smaller) if smaller else "",
            has_control_text=any(
                map(self.family.has_control_text, (sample.problem, *sample.options))
            ),
        )

    def _measure(self, sample: Sample, token_ids: list[int]) -> tuple[int, int]:
        """Tokens and patches of a prompt."""
        shapes = self.store.shapes(sample)
        num_tokens = self.family.num_prompt_tokens(token_ids, shapes)
        if num_tokens <= self.max_tokens:
            return num_tokens, self.family.num_patches(shapes)
        announced = self.family.num_prompt_tokens(token_ids, self.store.announced(sample))
        detail = f"{num_tokens} tokens, rollout.max_prompt_tokens={self.max_tokens}"
        if announced <= self.max_tokens:
            detail += f"; the headers of its media announced {announced}"
            raise UnusableSampleError(Reason.longer_than_announced, detail)
        raise UnusableSampleError(Reason.prompt_too_long, detail)


class Inputs:
    """The streams of one run."""

    def __init__(self, config: TrainConfig, family: "FamilyAdapter"):
        self._config = config
        self._family = family
        report = RunFolder(resolve_output(config.output_dir)).data_report
        self._journals = {
            validation: Journal(report, "validation" if validation else "training")
            for validation in (False, True)
        }
        self.reader = OfflineReader(
            encoder=family,
            end_token_id=family.eos_token_ids[0],
            max_tokens=config.rollout.max_new_tokens,
            reward=config.reward,
        )

    def training(self, samples: Sequence[Sample]) -> TrainingData:
        """Prompts for rollouts."""
        return TrainingData(
            samples,
            self.prompter(validation=False),
            order=self._order(samples),
            left_out=self.left_out("data", validation=False),
        )

    def warm_start(self, samples: Sequence[Sample]) -> TrainingData | None:
        """Prompts that have a usable trajectory; None without a warm start."""
        if self._config.train.warm_start.steps == 0:
            return None
        return TrainingData(
            samples,
            self.prompter(validation=False),
            order=self._order(samples),
            left_out=self.left_out("trajectories", validation=False),
            usable=lambda sample: bool(self.reader.read(sample)),
            name="trajectories",
        )

    def _order(self, samples: Sequence[Sample]) -> Order:
        data = self._config.data
        return order_of(
            samples, seed=self._config.seed, weights=data.weights, curriculum=data.curriculum
        )

    def validation(self, samples: Sequence[Sample]) -> list[Prompt]:
        """Held-out prompts; says how many had to be left out, and why.

        Raises:
            UserError: when too many were refused.
        """
        prompter = self.prompter(validation=True)
        left_out = self.left_out("validation", validation=True)
        prompts = []
        for sample in samples:
            try:
                prompts.append(prompter(sample))
            except UnusableSampleError as error:
                left_out.add(sample.id, error.reason, error.detail)
        left_out.check(len(samples))
        if left_out.count:
            print(f"validation leaves out {left_out.count} of {len(samples)} samples: {left_out}")
        return prompts

    def prompter(self, *, validation: bool) -> Prompter:
        """What turns samples into prompts."""
        return Prompter(
            family=self._family,
            store=open_store(self._config, self._family, validation=validation),
            reward=self._config.reward,
            max_tokens=self._config.rollout.max_prompt_tokens,
        )

    def left_out(self, name: str, *, validation: bool) -> LeftOut:
        """What keeps the samples that one stream, or a part of the start-up, cannot use."""
        return LeftOut(
            name,
            max_share=self._config.data.max_refused_share,
            journal=self._journals[validation],
        )
