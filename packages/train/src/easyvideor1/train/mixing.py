"""Groups that mix sampled and offline completions.

`replace` and `append` wrap the sampler: the trajectories are known before anything is sampled.
`gated` comes after the reward, in `collection`, since it asks how good a group is; a trajectory
brings the score it was read with, so that nothing is scored twice. The source of every completion
says where it came from; what the loss makes of offline ones is `algorithm.offline`.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Completion, Group
from easyvideor1.train.config import MixingConfig, MixingMode
from easyvideor1.train.interfaces import Experience, Prompt, Sampler, SendWeights
from easyvideor1.train.offline import OfflineReader


class MixedSampler:
    """A sampler whose groups hold offline completions where the sample has usable ones."""

    def __init__(self, sampler: Sampler, reader: OfflineReader, config: MixingConfig, *, seed: int):
        self._sampler = sampler
        self._reader = reader
        self._config = config
        self._seed = seed

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_sizes: Sequence[int],
        *,
        step: int,
        draw: int = 0,
        shuffled_frames: bool = False,
    ) -> list[list[Completion]]:
        """Groups of the asked sizes, or longer with `append`; offline completions come last.

        A prompt that the engine refused gets none: the learner would refuse it as well. Nothing is
        mixed into completions with shuffled frames, which are compared with and not trained on.
        """
        if shuffled_frames:
            return self._sampler.generate(
                prompts, group_sizes, step=step, draw=draw, shuffled_frames=True
            )
        count = self._config.num_offline
        offline = [
            [
                one.completion
                for one in self._reader.choose_several(p.sample, count, self._seed, step)
            ]
            for p in prompts
        ]
        num_fresh = list(group_sizes)
        if self._config.mode is MixingMode.replace:
            pairs = zip(group_sizes, offline, strict=True)
            num_fresh = [size - len(chosen) for size, chosen in pairs]
        fresh = self._sampler.generate(prompts, num_fresh, step=step, draw=draw)
        return [
            [*completions, *chosen] if completions else []
            for completions, chosen in zip(fresh, offline, strict=True)
        ]

    def answer(
        self, prompts: Sequence[Prompt], *, validation: bool = True
    ) -> list[Completion | None]:
        """Greedy completions; nothing is mixed into them."""
        return self._sampler.answer(prompts, validation=validation)

    def publish(self, send: SendWeights, version: int) -> None:
        """Pass new weights on."""
        self._sampler.publish(send, version)

    def metrics(self) -> dict[str, float]:
        """The sampler's counts and those of refused trajectories."""
        return {**self._sampler.metrics(), **self._reader.metrics()}


class Gated(NamedTuple):
    """The groups of a draw after the gate."""

    experiences: list[Experience]
    num_poor: int
    """Groups below the bar."""
    num_mixed: int
    """Of them, those whose samples had a usable trajectory."""


class OfflineGate:
    """Puts offline completions into the groups whose sampled ones are poor."""

    def __init__(self, reader: OfflineReader, config: MixingConfig, *, seed: int):
        self._reader = reader
        self._config = config
        self._seed = seed

    def __call__(self, experiences: Sequence[Experience], *, step: int) -> Gated:
        """The same experiences; where the mean accuracy is below the bar with offline completions.

        They take the last slots of the group. Which completions make way does not depend on their
        rewards, so that those that stay are a fair draw from the policy.

        Raises:
            UserError: a score has no accuracy.
        """
        poor = [accuracy_of(e) < self._config.accuracy_below for e in experiences]
        mixed = [
            self._mixed(e, step) if is_poor else e
            for e, is_poor in zip(experiences, poor, strict=True)
        ]
        num_mixed = sum(a is not b for a, b in zip(mixed, experiences, strict=True))
        return Gated(mixed, num_poor=sum(poor), num_mixed=num_mixed)

    def metrics(self) -> dict[str, float]:
        """Counts of refused trajectories."""
        return self._reader.metrics()

    def _mixed(self, experience: Experience, step: int) -> Experience:
        group = experience.group
        chosen = self._reader.choose_several(
            group.sample, self._config.num_offline, self._seed, step
        )
        if not chosen:
            return experience
        num_kept = len(group.completions) - len(chosen)
        return replace(
            experience,
            group=Group(
                sample=group.sample,
                completions=(*group.completions[:num_kept], *(c.completion for c in chosen)),
                scores=(*group.scores[:num_kept], *(c.score for c in chosen)),
            ),
        )


def accuracy_of(experience: Experience) -> float:
    """Mean accuracy of the sampled group.

    Raises:
        UserError: a score has no accuracy.
    """
    for score in experience.group.scores:
        if "accuracy" not in score.parts:
            raise UserError(
                f"sample {experience.prompt.sample.id}: mixing=gated reads the part accuracy of "
                f"each score, and this one has {', '.join(sorted(score.parts)) or 'none'}; let the "
                "reward give it, or set mixing=replace"
            )
    return fmean(score.parts["accuracy"] for score in experience.group.scores)
