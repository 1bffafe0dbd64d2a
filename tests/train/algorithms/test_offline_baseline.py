"""Advantages of mixed groups: whose rewards the baseline is made of, and which are dropped."""

from dataclasses import replace

import pytest

from easyvideor1.schema.records import Source
from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    OfflineConfig,
    OfflineNegative,
    OfflineTreatment,
)
from easyvideor1.train.examples import count_dropped, to_examples
from easyvideor1.train.interfaces import Experience
from easyvideor1.train.metrics import summarize
from tests.train.algorithms.steps import experience, random_step

ALONE = OfflineConfig(in_baseline=False)
CHORD = OfflineConfig(treatment=OfflineTreatment.chord, in_baseline=False)
MEAN = AdvantageConfig(name=AdvantageName.group_mean)


def offline_at(one: Experience, *places: int) -> Experience:
    """The experience with some of its completions from elsewhere."""
    completions = tuple(
        replace(c, source=Source.offline) if place in places else c
        for place, c in enumerate(one.group.completions)
    )
    return replace(one, group=replace(one.group, completions=completions))


def mixed_step() -> list[Experience]:
    return [
        offline_at(experience([0.0, 1.0, 0.0, 1.0], lengths=[1, 2, 1, 3]), 3),
        experience([1.0, 0.0], name="s1"),
        # offline ones first, one better and one worse than the sampled mean of 0.5
        offline_at(experience([1.0, 0.0, 0.5, 0.5], name="s2"), 0, 1),
    ]


def rounded(advantages: list[list[float]]) -> list[list[float]]:
    return [[round(x, 9) for x in values] for values in advantages]


def test_with_offline_rewards_the_baseline_is_the_mean_of_all():
    """LUFFY: R - mean over the whole group, no deviation."""
    advantages = AdvantageEstimator(MEAN, OfflineConfig())(mixed_step())
    assert advantages == [
        [-0.5],
        [0.5, 0.5],
        [-0.5],
        [0.5] * 3,
        [0.5],
        [-0.5],
        [0.5],
        [-0.5],
        [0.0],
        [0.0],
    ]


def test_without_them_it_is_the_mean_of_the_sampled_ones():
    advantages = AdvantageEstimator(MEAN, ALONE)(mixed_step())
    third = 1 / 3
    assert rounded(advantages) == rounded(
        [
            [-third],
            [2 * third, 2 * third],
            [-third],
            [2 * third] * 3,
            [0.5],
            [-0.5],
            # the sampled ones are tied
            [0.5],
            [-0.5],
            [0.0],
            [0.0],
        ]
    )


def test_penalties_count_on_both_sides():
    (one, *_) = mixed_step()
    penalties = [[-0.3], [-0.3, -0.3], [0.0], [-0.1, -0.1, -0.1]]
    advantages = AdvantageEstimator(MEAN, ALONE)([one], penalties)
    # rewards -0.3, 0.4, 0.0 with mean 1/30; the offline one has 0.7
    expected = [-0.3 - 1 / 30, 0.4 - 1 / 30, -1 / 30, 0.7 - 1 / 30]
    assert [values[0] for values in advantages] == pytest.approx(expected)


@pytest.mark.parametrize("name", list(AdvantageName))
def test_experts_are_in_nobody_s_baseline(name):
    """CHORD: what sampled completions are worth is what they are without the experts."""
    steps, penalties = random_step(3)
    mixed = [offline_at(e, len(e.group.completions) - 1) for e in steps]
    if name is AdvantageName.t_grpo:  # one reward of its own for those with a control
        steps = [replace(e, control=()) for e in steps]
    alone, own_penalties, start = [], [], 0
    for one in steps:
        size = len(one.group.completions)
        group = replace(
            one.group, completions=one.group.completions[:-1], scores=one.group.scores[:-1]
        )
        alone.append(replace(one, group=group))
        own_penalties += penalties[start : start + size - 1]
        start += size
    config = AdvantageConfig(name=name, k=3, keys={"accuracy": 1.0, "format": 1.0})
    if name is AdvantageName.t_grpo:
        mixed = [replace(e, control=()) for e in mixed]
    found = iter(AdvantageEstimator(config, CHORD)(mixed, penalties))
    expected = iter(AdvantageEstimator(config, CHORD)(alone, own_penalties))
    for one in mixed:
        for completion in one.group.completions:
            values = next(found)
            assert len(values) == len(completion.token_ids)
            if completion.source is Source.policy:
                assert values == next(expected)
    assert next(expected, None) is None


def test_worse_offline_completions_are_left_out_and_counted():
    step = mixed_step()
    advantages = AdvantageEstimator(MEAN, ALONE)(step)
    kept = to_examples(step, advantages, ALONE)
    assert len(kept) == 9
    assert count_dropped(step, kept) == {"offline/dropped": 1.0}
    offline = [e for e in kept if e.completion.source is Source.offline]
    assert [e.advantages[0] > 0 for e in offline] == [True, True]
    # A sampled one is never dropped, nor is any by CHORD or where they are kept.
    assert sum(e.advantages[0] < 0 for e in kept) == 3
    for config in (replace(ALONE, negative=OfflineNegative.keep), CHORD):
        everything = to_examples(step, advantages, config)
        assert [e.advantages for e in everything] == advantages
        assert count_dropped(step, everything) == {"offline/dropped": 0.0}


def test_the_gain_is_what_offline_rewards_have_over_the_sampled_ones_of_their_group():
    metrics = summarize(mixed_step())
    # 1 - 1/3 and 0.5 - 0.5; the group without offline ones says nothing
    assert metrics["offline/gain"] == pytest.approx((2 / 3 + 0) / 2)
    assert metrics["offline/share"] == 0.3
    assert metrics["reward/offline"] == pytest.approx(2 / 3)
    assert "offline/gain" not in summarize([experience([1.0, 0.0])])
