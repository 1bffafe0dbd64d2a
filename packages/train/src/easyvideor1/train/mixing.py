"""Groups that mix sampled and offline completions: a wrapper around the sampler.

`replace`: a usable offline trajectory takes the last slot of its group, so one completion fewer is
generated. A sample without one gets a full group. The loop does not know the difference; the
source of every completion says where it came from.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from easyvideor1.schema.records import Completion
from easyvideor1.train.interfaces import Prompt, Sampler
from easyvideor1.train.offline import OfflineReader

if TYPE_CHECKING:
    from easyvideor1.train.actors import Actors


class ReplaceSampler:
    """A sampler whose groups hold one offline completion where the sample has a usable one."""

    def __init__(self, sampler: Sampler, reader: OfflineReader, *, seed: int):
        self._sampler = sampler
        self._reader = reader
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
        """Groups of the asked sizes; the offline completion, if any, comes last.

        A prompt that the engine refused gets none: the learner would refuse it as well. Nothing is
        mixed into completions with shuffled frames, which are compared with and not trained on.
        """
        if shuffled_frames:
            return self._sampler.generate(
                prompts, group_sizes, step=step, draw=draw, shuffled_frames=True
            )
        offline = [self._reader.choose(p.sample, seed=self._seed, step=step) for p in prompts]
        num_fresh = [
            size - (chosen is not None) for size, chosen in zip(group_sizes, offline, strict=True)
        ]
        fresh = self._sampler.generate(prompts, num_fresh, step=step, draw=draw)
        return [
            [*completions, chosen.completion] if completions and chosen else completions
            for completions, chosen in zip(fresh, offline, strict=True)
        ]

    def answer(
        self, prompts: Sequence[Prompt], *, validation: bool = True
    ) -> list[Completion | None]:
        """Greedy completions; nothing is mixed into them."""
        return self._sampler.answer(prompts, validation=validation)

    def publish(self, send: "Callable[[Actors], None]", version: int) -> None:
        """Pass new weights on."""
        self._sampler.publish(send, version)

    def metrics(self) -> dict[str, float]:
        """The sampler's counts and those of refused trajectories."""
        return {**self._sampler.metrics(), **self._reader.metrics()}
