"""Completions to rewards: what `easyvideor1.rewards` is told about them. For `ray_runtime`."""

from collections.abc import Sequence

from easyvideor1.rewards import RewardConfig, score_many
from easyvideor1.schema.records import Completion, Sample, Score


def score_completions(
    answers: Sequence[tuple[Sample, Completion]], config: RewardConfig
) -> list[Score]:
    """The score of each completion; its length is that of the tokens the policy wrote itself."""
    items = [(sample, completion.text) for sample, completion in answers]
    lengths = [sum(completion.loss_mask) for _, completion in answers]
    return score_many(items, config, num_tokens=lengths)
