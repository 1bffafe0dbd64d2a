"""Dividing the examples of an update over the ranks by what they cost to compute.

The answers of a group share the features of their media, and mostly their prompt: a group on one
rank pays for them once, on two ranks twice. Groups therefore stay whole, unless splitting one
shortens the update by more than what is computed again. Pure functions; called by `ray_learner`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.token_tree import by_prompt

MIN_GAIN = 1e-3
"""A move must take this share of the mean load off the busier of its two ranks, so that the search
ends; less is below the accuracy of the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostModel:
    """FLOPs of an update per unit of its input.

    A weight takes part in one multiplication and one addition per token (or patch) in the forward
    pass, and in the backward pass in as many again for the gradient of its input, if anything
    before it is trained, and for its own, if it is: 2 per weight each, the count of Kaplan et al.,
    arXiv 2001.08361, section 2.1. Attention scores and the head are left out: the ratio of tower to
    language model is what balancing needs.
    """

    flops_per_token: float
    """Of the language model."""
    flops_per_patch: float
    """Of the vision tower."""
    shares_prompts: bool = False
    """Whether the answers of a group have their prompt computed once."""

    @property
    def patch_tokens(self) -> float:
        """What a patch costs, in tokens."""
        return self.flops_per_patch / self.flops_per_token

    @classmethod
    def of_sizes(
        cls,
        *,
        language_weights: int,
        trained_language_weights: int,
        vision_weights: float,
        passed_vision_weights: float,
        trained_vision_weights: float,
        shares_prompts: bool = False,
    ) -> "CostModel":
        """From the numbers of weights, and of those that are trained, of both parts.

        Gradients run through the whole language model whatever is trained, and through the passed
        weights of the vision tower.
        """
        vision = vision_weights + passed_vision_weights + trained_vision_weights
        return cls(
            flops_per_token=4.0 * language_weights + 2.0 * trained_language_weights,
            flops_per_patch=2.0 * vision,
            shares_prompts=shares_prompts,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupCost:
    """Of the answers to one prompt, in FLOPs."""

    examples: tuple[int, ...]
    """Indices of its examples."""
    shared: float
    """Paid once on every rank that holds any of them: the features of its media, and the prompt
    where answers share it."""
    own: tuple[float, ...]
    """Paid for each of them: its completion, and the prompt where each has its own."""

    @property
    def total(self) -> float:
        """On one rank."""
        return self.shared + sum(self.own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """Which rank computes what, and how long the model says that takes."""

    indices: list[list[int]]
    """[ranks] of examples; together each of them once."""
    shares: list[list[TrainExample]]
    """[ranks] these examples."""
    loads: list[float]
    """[ranks] FLOPs."""

    @property
    def makespan_over_mean(self) -> float:
        """Load of the busiest rank over the mean load: 1 is perfect, `ranks` is all on one."""
        mean = sum(self.loads) / len(self.loads)
        return max(self.loads) / mean if mean else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDivisions:
    """The divisions of all optimizer steps of an update, each over all ranks."""

    steps: list[Division]

    def share(self, rank: int) -> list[TrainExample]:
        """What a rank computes, step after step."""
        return [example for step in self.steps for example in step.shares[rank]]

    def cuts(self, rank: int) -> list[int]:
        """Where in its share the second and every further step begins."""
        lengths = [len(step.shares[rank]) for step in self.steps]
        return list(accumulate(lengths[:-1]))

    @property
    def makespan_over_mean(self) -> float:
        """As of `Division`, of all steps one after another."""
        mean = sum(sum(step.loads) / len(step.loads) for step in self.steps)
        return sum(max(step.loads) for step in self.steps) / mean if mean else 1.0


def divide_steps(
    examples: Sequence[TrainExample], num_steps: int, num_ranks: int, cost_model: CostModel
) -> StepDivisions:
    """Cut the examples into nearly equal parts, one per optimizer step; divide each over the ranks.

    In this order, so that every step trains on the same examples whatever the number of ranks.
    """
    count = len(examples)
    bounds = [count * step // num_steps for step in range(num_steps + 1)]
    parts = [examples[start:stop] for start, stop in pairwise(bounds)]
    return StepDivisions(steps=[divide(part, num_ranks, cost_model) for part in parts])


def divide(examples: Sequence[TrainExample], num_ranks: int, cost_model: CostModel) -> Division:
    """A share of the examples for each rank, of similar cost. The update does not depend on it.

    Whole groups first: the costliest to the least loaded rank, and so on (LPT). Then answers move
    from the busiest rank to the least loaded one, groups being split where that pays.

    Args:
        examples: those of one prompt form a group, wherever they stand.
        num_ranks: ranks; some get nothing where there are fewer examples.
        cost_model: of the model that is trained.
    """
    placement = _Placement(group_costs(examples, cost_model), num_ranks)
    placement.place_whole_groups()
    best, best_cost = placement.copy(), placement.cost
    while placement.relieve_busiest():
        if placement.cost < best_cost:
            best, best_cost = placement.copy(), placement.cost
    indices = [sorted(index for part in rank.values() for index in part) for rank in best.held()]
    return Division(
        indices=indices,
        shares=[[examples[index] for index in share] for share in indices],
        loads=best.loads,
    )


def group_costs(examples: Sequence[TrainExample], cost_model: CostModel) -> list[GroupCost]:
    """One entry per prompt, in order of first appearance."""
    groups = []
    for indices in by_prompt(examples):
        prompt = examples[indices[0]].prompt
        own = [len(examples[index].completion.token_ids) for index in indices]
        shared = cost_model.flops_per_patch * prompt.num_patches
        if cost_model.shares_prompts:
            shared += cost_model.flops_per_token * prompt.num_tokens
        else:
            own = [prompt.num_tokens + length for length in own]
        groups.append(
            GroupCost(
                examples=tuple(indices),
                shared=shared,
                own=tuple(cost_model.flops_per_token * length for length in own),
            )
        )
    return groups


class _Placement:
    """Which answers of which group lie on which rank. A part is a list of places in the group."""

    def __init__(self, groups: list[GroupCost], num_ranks: int):
        self.groups = groups
        self.parts: list[dict[int, list[int]]] = [{} for _ in range(num_ranks)]
        self.loads = [0.0] * num_ranks
        self.repeated = 0.0
        """Shared cost beyond once per group."""

    @property
    def cost(self) -> float:
        """The makespan plus what is computed more than once: splitting must lower their sum."""
        return max(self.loads) + self.repeated

    def copy(self) -> "_Placement":
        twin = _Placement(self.groups, len(self.loads))
        twin.parts = [{group: list(part) for group, part in rank.items()} for rank in self.parts]
        twin.loads, twin.repeated = list(self.loads), self.repeated
        return twin

    def held(self) -> list[dict[int, list[int]]]:
        """Per rank and group, indices of its examples."""
        return [
            {
                group: [self.groups[group].examples[place] for place in part]
                for group, part in rank.items()
            }
            for rank in self.parts
        ]

    def place_whole_groups(self) -> None:
        order = sorted(range(len(self.groups)), key=lambda g: -self.groups[g].total)
        for group in order:
            rank = self.loads.index(min(self.loads))
            self.parts[rank][group] = list(range(len(self.groups[group].own)))
            self.loads[rank] += self.groups[group].total

    def relieve_busiest(self) -> bool:
        """Make the best single move off the busiest rank; False where none pays."""
        source = self.loads.index(max(self.loads))
        target = self.loads.index(min(self.loads))
        if source == target:
            return False
        least = MIN_GAIN * sum(self.loads) / len(self.loads)
        best: tuple[float, int, list[int]] | None = None
        for group in self.parts[source]:
            for places in self._candidates(group, source, target):
                gain = self._gain(group, places, source, target)
                if gain > least and (best is None or gain > best[0]):
                    best = gain, group, places
        if best is None:
            return False
        self._move(best[1], best[2], source, target)
        return True

    def _candidates(self, group: int, source: int, target: int) -> list[list[int]]:
        """All answers of the group on `source`; and the longest that together do not exceed half
        of what the ranks differ by, without and with one more.
        """
        own, part = self.groups[group].own, self.parts[source][group]
        shared = 0.0 if group in self.parts[target] else self.groups[group].shared
        room = (self.loads[source] - self.loads[target] - shared) / 2
        chosen: list[int] = []
        left: list[int] = []
        for place in sorted(part, key=lambda place: -own[place]):
            fits = own[place] <= room
            (chosen if fits else left).append(place)
            room -= own[place] if fits else 0.0
        candidates = [part, chosen, [*chosen, left[-1]] if left else part]
        return [places for places in candidates if places]

    def _gain(self, group: int, places: list[int], source: int, target: int) -> float:
        """By how much the busier of both ranks gets less than it had, minus what is repeated."""
        given, taken, repeated = self._effect(group, places, source, target)
        after = max(self.loads[source] - given, self.loads[target] + taken)
        return self.loads[source] - after - max(0.0, repeated)

    def _effect(
        self, group: int, places: list[int], source: int, target: int
    ) -> tuple[float, float, float]:
        """FLOPs that `source` loses, that `target` gets, and that are repeated in addition."""
        costs = self.groups[group]
        moved = sum(costs.own[place] for place in places)
        given = moved + (costs.shared if len(places) == len(self.parts[source][group]) else 0.0)
        taken = moved + (0.0 if group in self.parts[target] else costs.shared)
        return given, taken, taken - given

    def _move(self, group: int, places: list[int], source: int, target: int) -> None:
        given, taken, repeated = self._effect(group, places, source, target)
        self.loads[source] -= given
        self.loads[target] += taken
        self.repeated += repeated
        moving = set(places)
        kept = [place for place in self.parts[source].pop(group) if place not in moving]
        if kept:
            self.parts[source][group] = kept
        self.parts[target].setdefault(group, []).extend(places)
