"""What the scores of a step say, as float64 tensors: the input of the advantage estimators.

The driver holds all completions of a step, so whatever is computed from these is the same however
the update is later cut into micro-batches and divided over ranks.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Score, ScoreStatus
from easyvideor1.train.interfaces import Experience

# Legend: P prompts, N completions of all of them in order, T tokens of all of these that the loss
# counts, G completions of one prompt, C of its control, L tokens of one completion.


class StepRewards:
    """Rewards, lengths and groups of all completions of a step.

    Args:
        experiences: of the step, at least one.
        penalties: per completion [L] what is added to the reward at each token; None for nothing.
            Tokens that the loss does not count were not chosen by a policy and get none.
    """

    def __init__(
        self,
        experiences: Sequence[Experience],
        penalties: Sequence[Sequence[float]] | None = None,
    ):
        self.experiences = experiences
        self.masks = [c.loss_mask for e in experiences for c in e.group.completions]
        """Per completion [L] whether the loss counts the token."""
        self.lengths_N = torch.tensor([sum(mask) for mask in self.masks])
        """[N] tokens that the loss counts."""
        self.groups_N = torch.arange(len(experiences)).repeat_interleave(
            torch.tensor([len(e.group.completions) for e in experiences])
        )
        """[N] index of the prompt."""
        self.scores_N = float64([reward for e in experiences for reward in e.group.rewards])
        """[N] rewards without penalties."""
        self.penalties_T = self._penalties(penalties)
        """[T]"""
        self.penalties_N = float64(
            [part.sum().item() for part in self.penalties_T.split(self.lengths_N.tolist())]
        )
        """[N] sum over the tokens of each completion."""

    @property
    def rewards_N(self) -> Tensor:
        """[N] rewards, penalties included."""
        return self.scores_N + self.penalties_N

    @property
    def tasks(self) -> list[str]:
        """[N] problem types."""
        return [
            e.prompt.sample.problem_type.value
            for e in self.experiences
            for _ in e.group.completions
        ]

    @property
    def greedy_N(self) -> Tensor:
        """[N] reward of the greedy answer to the same prompt."""
        baselines = []
        for experience in self.experiences:
            if experience.greedy is None:
                raise ValueError(f"sample {experience.prompt.sample.id} has no greedy answer")
            baselines += [experience.greedy.value] * len(experience.group.completions)
        return float64(baselines)

    def part_N(self, key: str) -> Tensor:
        """[N] the part of the scores called `key`; `kl` are the penalties.

        Raises:
            UserError: if a score that is ok has no such part.
        """
        if key == "kl":
            return self.penalties_N
        return torch.cat([parts(e, e.group.scores, key) for e in self.experiences])

    def over_tokens(self, values_N: Tensor) -> Tensor:
        """[T] the value of each token's completion."""
        return values_N.repeat_interleave(self.lengths_N)

    def share_of_groups(self, flags_T: Tensor) -> float:
        """Share of the prompts with at least one token for which the flag is set."""
        flagged = self.over_tokens(self.groups_N)[flags_T].bincount()
        return int((flagged > 0).sum()) / len(self.experiences)

    def per_completion(self, values_T: Tensor) -> list[list[float]]:
        """Per completion [L] the value of each token, 0 where the loss does not count it."""
        values = iter(values_T.tolist())
        return [[next(values) if counts else 0.0 for counts in mask] for mask in self.masks]

    def _penalties(self, penalties: Sequence[Sequence[float]] | None) -> Tensor:
        if penalties is None:
            return torch.zeros(int(self.lengths_N.sum()), dtype=torch.float64)
        return float64(
            [
                penalty
                for penalties_L, mask in zip(penalties, self.masks, strict=True)
                for penalty, counts in zip(penalties_L, mask, strict=True)
                if counts
            ]
        )


def parts(experience: Experience, scores: Sequence[Score], key: str) -> Tensor:
    """The part called `key` of each of some scores of a prompt; 0 where scoring failed without it.

    Raises:
        UserError: if one that is ok has no such part.
    """
    for score in scores:
        if key not in score.parts and score.status is ScoreStatus.ok:
            raise UserError(
                f"sample {experience.prompt.sample.id}: algorithm.advantage reads the part {key!r} "
                f"of each score, and this one has {', '.join(sorted(score.parts)) or 'none'}; name "
                "another in algorithm.advantage.keys, or let the reward give it"
            )
    return float64([score.part(key) for score in scores])


def float64(values: Sequence[float]) -> Tensor:
    """A float64 tensor, also of an empty list."""
    return torch.tensor(values, dtype=torch.float64)
