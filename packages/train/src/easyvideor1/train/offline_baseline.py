"""A baseline over sampled completions alone, as `algorithm.offline.in_baseline=false` asks for it.

The estimator sees the groups without their offline completions; these are then compared with the
same mean. Called by `advantages.AdvantageEstimator`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

from easyvideor1.schema.records import Completion, Group, Source
from easyvideor1.train.interfaces import Experience

# Legend: L tokens of one completion.

T = TypeVar("T")


def is_offline(completion: Completion) -> bool:
    """Whether another policy wrote it."""
    return completion.source is Source.offline


def has_offline(experience: Experience) -> bool:
    """Whether its group holds offline completions."""
    return any(map(is_offline, experience.group.completions))


def without_offline(experience: Experience) -> Experience:
    """The experience with the sampled completions of its group alone."""
    group = experience.group
    kept = [
        (completion, score)
        for completion, score in zip(group.completions, group.scores, strict=True)
        if not is_offline(completion)
    ]
    return replace(
        experience,
        group=Group(
            sample=group.sample,
            completions=tuple(completion for completion, _ in kept),
            scores=tuple(score for _, score in kept),
        ),
    )


def sampled_alone(experiences: Sequence[Experience], values: Sequence[T]) -> list[T]:
    """Of values per completion of all experiences in order, those of sampled ones."""
    completions = [c for e in experiences for c in e.group.completions]
    pairs = zip(completions, values, strict=True)
    return [value for completion, value in pairs if not is_offline(completion)]


def with_offline(
    own: Sequence[list[float]],
    experiences: Sequence[Experience],
    penalties: Sequence[Sequence[float]] | None,
) -> list[list[float]]:
    """The advantages of all completions, from those of the sampled ones.

    That of an offline completion is its reward less the mean reward of the sampled ones of its
    group, penalties included. Source: the split baseline of LUFFY's code, without its deviation.

    Args:
        own: per sampled completion of all experiences in order, [L].
        experiences: of the step; each group has sampled completions.
        penalties: per completion of all experiences in order, [L]; None for nothing.
    """
    sampled = iter(own)
    everything = _rewards(experiences, penalties)
    advantages = []
    for experience in experiences:
        completions = experience.group.completions
        rewards = [next(everything) for _ in completions]
        baseline = fmean(sampled_rewards(completions, rewards))
        for completion, reward in zip(completions, rewards, strict=True):
            if is_offline(completion):
                advantages.append([float(x) * (reward - baseline) for x in completion.loss_mask])
            else:
                advantages.append(next(sampled))
    return advantages


def sampled_rewards(completions: Sequence[Completion], rewards: Sequence[float]) -> list[float]:
    """The rewards of the sampled ones."""
    return [r for c, r in zip(completions, rewards, strict=True) if not is_offline(c)]


def _rewards(
    experiences: Sequence[Experience], penalties: Sequence[Sequence[float]] | None
) -> Iterator[float]:
    """Reward of each completion with the penalties of its tokens."""
    rewards = [reward for e in experiences for reward in e.group.rewards]
    if penalties is None:
        return iter(rewards)
    masks = [c.loss_mask for e in experiences for c in e.group.completions]
    return (
        reward + sum(p for p, counts in zip(of_tokens, mask, strict=True) if counts)
        for reward, of_tokens, mask in zip(rewards, penalties, masks, strict=True)
    )
