"""What one step learns from: prompts, sampled and scored, with all that the advantage asks for.

Take, rollout, reward. With dynamic sampling prompts whose groups teach nothing are replaced by
further ones; ReMax adds greedy answers, T-GRPO completions with the frames shuffled. Called by
`loop`.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Completion, Group, MediaKind, Score, ScoreStatus, Source
from easyvideor1.train.algorithm_config import AdvantageName, DynamicSamplingConfig
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import Experience, Prompt, Runtime
from easyvideor1.train.left_out import Reason
from easyvideor1.train.metrics import Stopwatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """The experiences of one step."""

    experiences: list[Experience]
    metrics: dict[str, float]
    """What was refused, and what dynamic sampling replaced."""


def collect(config: TrainConfig, runtime: Runtime, *, step: int, clock: Stopwatch) -> Collected:
    """Take prompts, sample them and score the completions.

    Args:
        config: of the run.
        runtime: its data, sampler and scorer.
        step: of the run.
        clock: measures the phases `rollout` and `reward`.

    Raises:
        UserError: dynamic sampling did not fill a batch.
    """
    rollouts = Rollouts(config, runtime, step, clock)
    metrics: dict[str, float] = {}
    if config.algorithm.dynamic_sampling.enabled:
        experiences, metrics = draw_until_full(rollouts, config)
    else:
        experiences = rollouts.draw(config.rollout.batch_size)
    if config.algorithm.advantage.name is AdvantageName.remax:
        experiences = rollouts.with_greedy(experiences)
    if config.algorithm.advantage.name is AdvantageName.t_grpo:
        experiences = rollouts.with_control(experiences)
    return Collected(
        experiences=experiences,
        metrics=rollouts.metrics() | metrics,
    )


class Rollouts:
    """The rollouts of one step, with their rewards."""

    def __init__(self, config: TrainConfig, runtime: Runtime, step: int, clock: Stopwatch):
        self.num_draws = 0
        self.num_prompts = 0
        """Taken from the data."""
        self.num_refused = 0
        """Of them, by the engine."""
        self.num_tokens = 0
        """Sampled, greedy answers and controls included."""
        self.num_poor = 0
        """Groups below the bar of `mixing=gated`."""
        self.num_gated = 0
        """Of them, those that were given offline completions."""
        self._config = config
        self._runtime = runtime
        self._step = step
        self._clock = clock

    def draw(self, count: int) -> list[Experience]:
        """So many further prompts, without those that the engine refuses, each with its group."""
        with self._clock("rollout"):
            prompts = self._runtime.data.take(count)
            sizes = [self._config.rollout.group_size] * count
            groups = self._runtime.sampler.generate(
                prompts, sizes, step=self._step, draw=self.num_draws
            )
            self._refuse([p for p, group in zip(prompts, groups, strict=True) if not group])
            self._count(groups)
        self.num_draws += 1
        self.num_prompts += count
        answered = [(p, group) for p, group in zip(prompts, groups, strict=True) if group]
        scores = self._score([p for p, _ in answered], [group for _, group in answered])
        experiences = [
            Experience(
                prompt=prompt,
                group=Group(sample=prompt.sample, completions=tuple(group), scores=tuple(of_group)),
            )
            for (prompt, group), of_group in zip(answered, scores, strict=True)
        ]
        return self._through_gate(experiences)

    def metrics(self) -> dict[str, float]:
        """Groups refused, and with `mixing=gated` how many were poor and how many were mixed."""
        metrics = {
            "groups/refused": float(self.num_refused),
            "rollout/tokens": float(self.num_tokens),
        }
        if self._runtime.gate is None:
            return metrics
        metrics["mixing/poor_groups"] = float(self.num_poor)
        metrics["mixing/gated_groups"] = float(self.num_gated)
        return metrics | self._runtime.gate.metrics()

    def _through_gate(self, experiences: list[Experience]) -> list[Experience]:
        if self._runtime.gate is None:
            return experiences
        gated = self._runtime.gate(experiences, step=self._step)
        self.num_poor += gated.num_poor
        self.num_gated += gated.num_mixed
        return gated.experiences

    def with_greedy(self, experiences: Sequence[Experience]) -> list[Experience]:
        """Each with the score of the policy's greedy answer, without those that have none."""
        prompts = [experience.prompt for experience in experiences]
        with self._clock("rollout"):
            answers = self._runtime.sampler.answer(prompts, validation=False)
            self._refuse([p for p, a in zip(prompts, answers, strict=True) if a is None])
            self._count([[answer] for answer in answers if answer is not None])
        pairs = [(e, a) for e, a in zip(experiences, answers, strict=True) if a is not None]
        scores = self._score([e.prompt for e, _ in pairs], [[answer] for _, answer in pairs])
        return [
            replace(experience, greedy=score)
            for (experience, _), (score,) in zip(pairs, scores, strict=True)
        ]

    def with_control(self, experiences: Sequence[Experience]) -> list[Experience]:
        """Those about a video with scores of completions that saw its frames shuffled."""
        advantage, group_size = self._config.algorithm.advantage, self._config.rollout.group_size
        size = advantage.control_size or max(1, group_size // 2)
        prompts = [e.prompt for e in experiences if shows_video(e.prompt)]
        with self._clock("rollout"):
            groups = self._runtime.sampler.generate(
                prompts, [size] * len(prompts), step=self._step, shuffled_frames=True
            )
            self._count(groups)
        scores = iter(self._score(prompts, groups))
        return [
            replace(e, control=tuple(next(scores))) if shows_video(e.prompt) else e
            for e in experiences
        ]

    def _count(self, groups: Sequence[Sequence[Completion]]) -> None:
        sampled = (c for group in groups for c in group if c.source is Source.policy)
        self.num_tokens += sum(len(completion.token_ids) for completion in sampled)

    def _refuse(self, prompts: Sequence[Prompt]) -> None:
        details = {p.sample.id: "the log of the engine says why" for p in prompts}
        self._runtime.data.refuse(details, Reason.refused_by_engine)
        self.num_refused += len(prompts)

    def _score(
        self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]
    ) -> list[list[Score]]:
        """The scores of every group; all are asked for in one call."""
        with self._clock("reward"):
            pairs = zip(prompts, groups, strict=True)
            scores = iter(self._runtime.score([(p.sample, c) for p, group in pairs for c in group]))
            return [[next(scores) for _ in group] for group in groups]


def shows_video(prompt: Prompt) -> bool:
    """Whether there are frames to shuffle."""
    return any(media.kind is MediaKind.video for media in prompt.sample.media)


# Dynamic sampling


def draw_until_full(
    rollouts: Rollouts, config: TrainConfig
) -> tuple[list[Experience], dict[str, float]]:
    """A batch of groups with spread, and how it came about.

    DAPO, arXiv 2503.14476, section 3.2: sample on until a batch has only prompts whose answers are
    neither all right nor all wrong; groups that come after it is full are dropped.

    Raises:
        UserError: `max_draws` rollouts did not fill a batch; with counts and advice.
    """
    rule, size = config.algorithm.dynamic_sampling, config.rollout.batch_size
    drawn: list[Experience] = []
    kept: list[Experience] = []
    while len(kept) < size:
        if rollouts.num_draws == rule.max_draws:
            raise UserError(_no_batch(rollouts, drawn, len(kept), config))
        count = num_to_draw(size - len(kept), len(kept), rollouts.num_prompts, at_most=size)
        new = rollouts.draw(count)
        drawn += new
        kept += [experience for experience in new if has_spread(experience, rule.key)]
    return kept[:size], _metrics(rollouts, drawn, len(kept) - size, rule)


def num_to_draw(missing: int, num_kept: int, num_prompts: int, *, at_most: int) -> int:
    """Prompts that will probably give the missing groups, by the share that was kept so far.

    A draw lasts as long as its longest answer, however few prompts it has: replacing one by one
    would take many draws where groups with spread are rare.
    """
    return min(at_most, math.ceil(missing * (num_prompts + 1) / (num_kept + 1)))


def has_spread(experience: Experience, key: str) -> bool:
    """Whether a part of the reward differs within a group.

    An offline completion of a mixed group counts like any other, because it is part of the
    baseline: where it is right and all sampled ones are wrong, every advantage differs from 0, and
    such a group, of a prompt too hard for the policy, is what offline completions are mixed in for.
    Only a group whose advantages are all 0 teaches nothing.

    Raises:
        UserError: the scores lack the part.
    """
    values = values_of(experience, key)
    return min(values) < max(values)


def values_of(experience: Experience, key: str) -> list[float]:
    """[G] of the part `key` of the reward, 0 where scoring failed without it; G completions.

    Raises:
        UserError: a score that is ok lacks it; naming the sample and the parts there are.
    """
    for score in experience.group.scores:
        if key not in score.parts and score.status is ScoreStatus.ok:
            raise UserError(
                f"sample {experience.prompt.sample.id}: its reward has no part {key!r}, which "
                f"algorithm.dynamic_sampling.key names; it has {', '.join(score.parts) or 'none'}"
            )
    return [score.part(key) for score in experience.group.scores]


def _tied(drawn: Sequence[Experience], key: str) -> Counter[str]:
    """Groups without spread: all right, all wrong, or the same in between."""
    firsts = [values_of(e, key)[0] for e in drawn if not has_spread(e, key)]
    names = ("all_right" if v >= 1 else "all_wrong" if v <= 0 else "same" for v in firsts)
    return Counter(names)


def _metrics(
    rollouts: Rollouts, drawn: Sequence[Experience], num_surplus: int, rule: DynamicSamplingConfig
) -> dict[str, float]:
    tied = _tied(drawn, rule.key)
    numbers = {
        "draws": rollouts.num_draws,
        "prompts": rollouts.num_prompts,
        "without_spread": tied.total(),
        "all_right": tied["all_right"],
        "all_wrong": tied["all_wrong"],
        "surplus": num_surplus,
        # The policy's own, which the groups that are kept do not show.
        rule.key: fmean(value for e in drawn for value in values_of(e, rule.key)),
    }
    return {f"dynamic_sampling/{name}": float(number) for name, number in numbers.items()}


def _no_batch(
    rollouts: Rollouts, drawn: Sequence[Experience], num_kept: int, config: TrainConfig
) -> str:
    """Why there is no batch, and what helps."""
    rule = config.algorithm.dynamic_sampling
    tied = _tied(drawn, rule.key)
    anew = ["keep prompts that the policy answers now and then (data.filter='0 < pass_rate < 1')"]
    if tied["all_wrong"] >= tied["all_right"]:
        anew.append("teach the form of an answer first (train.warm_start.steps)")
        anew.append("mix offline answers in (mixing=replace)")
    anew.append(f"raise rollout.group_size={config.rollout.group_size}")
    return (
        f"dynamic sampling found {num_kept} of {config.rollout.batch_size} groups that differ in "
        f"{rule.key} within algorithm.dynamic_sampling.max_draws={rule.max_draws} rollouts: "
        f"{rollouts.num_prompts} prompts drawn, {rollouts.num_refused} refused by the engine, "
        f"{tied.total()} without spread ({tied['all_right']} all right, {tied['all_wrong']} all "
        f"wrong, {tied['same']} the same in between). This run goes on from its last "
        "checkpoint with a larger algorithm.dynamic_sampling.max_draws, or without "
        "(algorithm.dynamic_sampling.enabled=false). What helps in a new one, with another "
        f"run_name: {'; '.join(anew)}"
    )
