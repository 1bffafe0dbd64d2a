"""Each estimator by hand and beside plain loops; what does not change it, and what it refuses."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from math import comb, sqrt
from typing import Any

import pytest
import torch

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Group, ProblemType, ScoreStatus, Source
from easyvideor1.train.advantage_formulas import pass_at_k, whiten
from easyvideor1.train.advantages import ADVANTAGES, AdvantageEstimator
from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName, Whitening
from easyvideor1.train.interfaces import Experience
from tests.train.algorithms.slow_advantages import Moments, slow_advantages
from tests.train.algorithms.steps import experience, random_step, score, scored

WITHIN_GROUPS = ("grpo", "group_mean", "rloo", "remax", "t_grpo", "pass_at_k")
OVER_THE_STEP = ("reinforce_pp", "reinforce_pp_baseline", "gdpo")

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name.value, {}) for name in AdvantageName),
    ("reinforce_pp", {"discount": 0.7}),
    ("gdpo", {"whiten": Whitening.token}),
    ("gdpo", {"keys": {"accuracy": 2.0, "format": -0.5, "kl": 1.0}}),
    ("ema_grpo", {"ema_decay": 0.3, "ema_clip": 1.0}),
    ("t_grpo", {"control_factor": 0.5, "control_bonus": 0.7, "right_from": 0.2}),
    ("pass_at_k", {"k": 1}),
    ("pass_at_k", {"k": 2}),
]
"""Every estimator with its defaults, and with its options changed."""


def config(name: str, **options: Any) -> AdvantageConfig:
    options = {"keys": {"accuracy": 1.0, "format": 1.0}} | options
    return AdvantageConfig(name=AdvantageName(name), **options)


def estimate(
    name: str, *experiences: Experience, penalties: Any = None, **options: Any
) -> list[list[float]]:
    return AdvantageEstimator(config(name, **options))(experiences, penalties)


def first(advantages: list[list[float]]) -> list[float]:
    """Of the first token of each completion."""
    return [of_tokens[0] for of_tokens in advantages]


def assert_close(ours: Sequence[Sequence[float]], expected: Sequence[Sequence[float]]) -> None:
    assert len(ours) == len(expected)
    for row, expected_row in zip(ours, expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-9, rel=1e-9)


def test_every_name_in_the_config_has_a_function():
    assert ADVANTAGES.keys() == set(AdvantageName)
    assert {*WITHIN_GROUPS, *OVER_THE_STEP, "ema_grpo"} == {name.value for name in AdvantageName}


# By hand


def test_grpo_by_hand():
    # mean 0.5, squared deviations 4 x 0.25, sample variance 1/3
    high = 0.5 / (sqrt(1 / 3) + 1e-6)
    advantages = first(estimate("grpo", experience([1.0, 0.0, 0.0, 1.0])))
    assert advantages == pytest.approx([high, -high, -high, high], abs=1e-12)
    # mean 2, sample deviation 2: exactly one deviation apart, up to epsilon
    advantages = first(estimate("grpo", experience([0.0, 2.0, 4.0]), epsilon=1e-12))
    assert advantages == pytest.approx([-1.0, 0.0, 1.0])


def test_group_mean_by_hand():
    groups = experience([1.0, 0.0, 0.0, 1.0]), experience([3.0, 0.0, 0.0])
    assert first(estimate("group_mean", *groups)) == [0.5, -0.5, -0.5, 0.5, 2.0, -1.0, -1.0]


def test_rloo_by_hand():
    # the others of a 1 have mean (0 + 0 + 1) / 3, those of a 0 have (1 + 0 + 1) / 3
    advantages = first(estimate("rloo", experience([1.0, 0.0, 0.0, 1.0])))
    assert advantages == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3], abs=1e-15)


def test_reinforce_pp_by_hand():
    # returns 1, 1 and 0: mean 2/3, sample variance (1/9 + 1/9 + 4/9) / 2 = 1/3
    answers = experience([1.0, 0.0], lengths=[2, 1])
    high = (1 / 3) / (sqrt(1 / 3) + 1e-6)
    assert_close(estimate("reinforce_pp", answers), [[high, high], [-2 * high]])


def test_reinforce_pp_with_penalties_and_a_discount_by_hand():
    # rewards of the tokens: -0.5, 1 - 0.25 and 0 - 1
    answers, penalties = experience([1.0, 0.0], lengths=[2, 1]), [[-0.5, -0.25], [-1.0]]
    # without a discount returns 0.25, 0.75 and -1: mean 0, variance (1/16 + 9/16 + 1) / 2
    advantages = estimate("reinforce_pp", answers, penalties=penalties, epsilon=1e-12)
    spread = sqrt(13 / 16)
    assert_close(advantages, [[0.25 / spread, 0.75 / spread], [-1 / spread]])
    # with 0.5: -0.5 + 0.375 = -0.125, 0.75 and -1: mean -0.125, deviation 0.875
    advantages = estimate("reinforce_pp", answers, penalties=penalties, discount=0.5, epsilon=1e-12)
    assert_close(advantages, [[0.0, 1.0], [-1.0]])


def test_reinforce_pp_baseline_by_hand():
    # 0.5 once and -0.5 three times: mean -0.25, variance (9/16 + 3 x 1/16) / 3 = 1/4
    answers = experience([1.0, 0.0], lengths=[1, 3])
    advantages = estimate("reinforce_pp_baseline", answers, epsilon=1e-12)
    assert_close(advantages, [[1.5], [-0.5] * 3])


def test_remax_by_hand():
    answers = experience([1.0, 0.0, 0.25], greedy=score(0.25))
    assert first(estimate("remax", answers)) == [0.75, -0.25, 0.0]


def test_gdpo_by_hand():
    # In units of u = 1/sqrt(2), the z-score of two rewards: the first group has u for accuracy and
    # nothing for its equal formats, the second 2u.
    both = score(2.0, accuracy=1, format=1)
    form, neither = score(1.0, accuracy=0, format=1), score(0.0, accuracy=0, format=0)
    groups = experience([both, form]), experience([both, neither], lengths=[2, 1])
    # over completions 1, -1, 2, -2: mean 0, variance 10 / 3
    spread = sqrt(10 / 3)
    expected = [[1 / spread], [-1 / spread], [2 / spread] * 2, [-2 / spread]]
    assert_close(estimate("gdpo", *groups, epsilon=1e-12), expected)
    # over tokens 1, -1, 2, 2, -2: mean 0.4, variance (0.36 + 1.96 + 2 x 2.56 + 5.76) / 4 = 3.3
    spread = sqrt(3.3)
    expected = [[0.6 / spread], [-1.4 / spread], [1.6 / spread] * 2, [-2.4 / spread]]
    assert_close(estimate("gdpo", *groups, whiten=Whitening.token, epsilon=1e-12), expected)


def test_ema_grpo_by_hand():
    estimator = AdvantageEstimator(config("ema_grpo", ema_decay=0.5, epsilon=1e-12))
    # first step: mean 0.75, second moment 0.75, variance 0.75 - 0.5625 = 0.1875
    spread = sqrt(0.1875)
    advantages = first(estimator([experience([1.0, 0.0, 1.0, 1.0])]))
    assert advantages == pytest.approx([0.25 / spread, -0.75 / spread, *[0.25 / spread] * 2])
    # another task has a first step of its own: mean 2, second moment 8, deviation 2
    other = experience([0.0, 4.0], task=ProblemType.temporal_grounding)
    assert first(estimator([other])) == pytest.approx([-1.0, 1.0])
    # moments (0.75 + 0.25) / 2 and (0.75 + 0.25) / 2: variance 0.5 - 0.25, deviation 0.5
    advantages = first(estimator([experience([0.0, 0.0, 0.0, 1.0])]))
    assert advantages == pytest.approx([-0.5, -0.5, -0.5, 1.5])
    assert estimator.metrics() == {
        "advantage/groups_with_signal": 1.0,
        "advantage/deviation/multiple_choice": pytest.approx(0.5),
        "advantage/deviation/temporal_grounding": pytest.approx(2.0),
    }


def test_ema_grpo_holds_an_advantage_within_its_clip():
    # one right answer of 100: 0.99 over a deviation of sqrt(0.01 - 0.0001) is 9.95
    rare = experience([1.0, *[0.0] * 99])
    assert first(estimate("ema_grpo", rare))[0] == 5.0
    assert first(estimate("ema_grpo", rare, ema_clip=20.0))[0] == pytest.approx(9.95, abs=1e-3)


@pytest.mark.parametrize(
    ("control", "factor", "bonus"),
    [
        ((0.0, 0.0), 1.0, 0.3),
        ((0.0, 0.0, 0.0, 1.0), 1.0, 0.3),  # as often as shuffled: 1 of 4
        ((0.0, 1.0), 1.0, 0.0),
        ((0.0, 0.4), 1.0, 0.3),  # 0.4 is not right
        ((0.0, 1.0), 0.5, 0.3),
        ((), 1.0, 0.0),  # an image has no control
    ],
)
def test_t_grpo_by_hand(control, factor, bonus):
    answers = [score(1.0, accuracy=1.0), score(0.1, accuracy=0.0), *[score(0.0, accuracy=0.0)] * 2]
    group = experience(answers, control=[score(a, accuracy=a) for a in control])
    advantages = first(estimate("t_grpo", group, control_factor=factor, epsilon=1e-12))
    # with the bonus 1.3, 0.1, 0 and 0: mean 0.35, variance 1.21 / 3
    with_bonus = [x / sqrt(1.21 / 3) for x in (0.95, -0.25, -0.35, -0.35)]
    # without 1, 0.1, 0 and 0: mean 0.275, variance (0.525625 + 0.030625 + 2 x 0.075625) / 3
    without = [x / sqrt(0.7075 / 3) for x in (0.725, -0.175, -0.275, -0.275)]
    assert advantages == pytest.approx(with_bonus if bonus else without)


def test_the_bonus_of_t_grpo_is_about_sampled_answers_alone():
    # One of three sampled answers is right and one of two shuffled ones: no bonus, although two of
    # all four are right. With no right one in the control, the sampled right answer alone has it.
    right, wrong = score(1.0, accuracy=1.0), score(0.0, accuracy=0.0)
    for control, bonus in (([right, wrong], 0.0), ([wrong, wrong], 0.3)):
        group = with_offline_last(experience([right, wrong, wrong, right], control=control))
        rewards = [score(x, accuracy=0.0) for x in (1.0 + bonus, 0.0, 0.0, 1.0)]
        expected = estimate("grpo", experience(rewards))
        assert_close(estimate("t_grpo", group), expected)


def test_a_group_of_offline_answers_alone_has_no_bonus():
    right, wrong = score(1.0, accuracy=1.0), score(0.0, accuracy=0.0)
    group = experience([right], control=[wrong])
    assert first(estimate("t_grpo", with_offline_last(group))) == [0.0]


def with_offline_last(one: Experience) -> Experience:
    """Another policy wrote the last completion of the group."""
    *sampled, last = one.group.completions
    completions = (*sampled, replace(last, source=Source.offline))
    return replace(one, group=replace(one.group, completions=completions))


def test_pass_at_k_by_hand():
    # one of four is right, sets of two: R = 1 - C(3,2) / C(4,2) = 1/2, sigma = 1/2
    # right (1 - 1/2) / (1/2) = 1, wrong (1 - 1/2 - C(2,1) / C(3,1)) / (1/2) = -1/3
    advantages = first(estimate("pass_at_k", experience([0.0, 1.0, 0.0, 0.0]), k=2))
    assert advantages == pytest.approx([-1 / 3, 1.0, -1 / 3, -1 / 3], abs=1e-5)
    # two are right, sets of three: every set has a right one, nothing is left to learn
    assert first(estimate("pass_at_k", experience([0.0, 1.0, 0.0, 1.0]), k=3)) == [0.0] * 4


def test_pass_at_k_of_right_and_wrong_answers_is_the_published_closed_form():
    for size, num_right, k in [(8, 1, 4), (8, 3, 4), (16, 5, 8), (5, 2, 1), (64, 7, 16)]:
        wrong = size - num_right
        rewards = torch.tensor([1.0] * num_right + [0.0] * wrong, dtype=torch.float64)
        expected_best = 1 - comb(wrong, k) / comb(size, k)
        sigma = sqrt(expected_best * (1 - expected_best)) + 1e-6
        right = (1 - expected_best) / sigma
        not_right = (1 - expected_best - comb(wrong - 1, k - 1) / comb(size - 1, k - 1)) / sigma
        advantages = pass_at_k(rewards, k=k, epsilon=1e-6).tolist()
        assert advantages == pytest.approx([right] * num_right + [not_right] * wrong, abs=1e-9)


# Beside plain loops


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("seed", range(3))
def test_estimators_equal_plain_loops_over_three_steps(name, options, seed):
    settings = config(name, **options)
    estimator, moments = AdvantageEstimator(settings), Moments()
    for step in range(3):
        experiences, penalties = random_step(10 * seed + step)
        expected = slow_advantages(settings, experiences, penalties, moments)
        assert any(abs(value) > 0.01 for row in expected for value in row)
        assert_close(estimator(experiences, penalties), expected)


def test_a_step_without_penalties_is_one_with_penalties_of_nothing():
    experiences, penalties = random_step(0)
    nothing = [[0.0] * len(row) for row in penalties]
    for name in AdvantageName:
        assert estimate(name, *experiences) == estimate(name, *experiences, penalties=nothing)


def test_penalties_at_tokens_of_a_tool_do_not_count():
    experiences, penalties = random_step(1)
    masks = [c.loss_mask for e in experiences for c in e.group.completions]
    assert not all(all(mask) for mask in masks)
    other = [
        [p if counts else p - 100.0 for p, counts in zip(row, mask, strict=True)]
        for row, mask in zip(penalties, masks, strict=True)
    ]
    for name in AdvantageName:
        advantages = estimate(name, *experiences, penalties=penalties)
        assert advantages == estimate(name, *experiences, penalties=other)
        assert all(
            value == 0 or counts
            for row, mask in zip(advantages, masks, strict=True)
            for value, counts in zip(row, mask, strict=True)
        )


# What does not change an advantage


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_the_order_of_prompts_and_completions_does_not_matter(name, options):
    experiences, penalties = random_step(7)
    advantages = estimate(name, *experiences, penalties=penalties, **options)
    rows = iter(zip(advantages, penalties, strict=True))
    by_group = [[next(rows) for _ in e.group.scores] for e in experiences]

    rng = random.Random(0)
    shuffled, expected, moved = [], [], []
    for index in rng.sample(range(len(experiences)), len(experiences)):
        order = rng.sample(range(len(by_group[index])), len(by_group[index]))
        shuffled.append(reordered(experiences[index], order))
        expected += [by_group[index][i][0] for i in order]
        moved += [by_group[index][i][1] for i in order]
    assert_close(estimate(name, *shuffled, penalties=moved, **options), expected)


def reordered(one: Experience, order: Sequence[int]) -> Experience:
    group = one.group
    return replace(
        one,
        group=Group(
            sample=group.sample,
            completions=tuple(group.completions[i] for i in order),
            scores=tuple(group.scores[i] for i in order),
        ),
    )


@pytest.mark.parametrize("name", WITHIN_GROUPS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_advantages_of_a_group_do_not_depend_on_the_rest_of_the_step(name, size):
    experiences, penalties = random_step(3, num_prompts=8)
    parts, start = [], 0
    for index in range(0, len(experiences), size):
        some = experiences[index : index + size]
        count = sum(len(e.group.scores) for e in some)
        parts += estimate(name, *some, penalties=penalties[start : start + count])
        start += count
    assert_close(parts, estimate(name, *experiences, penalties=penalties))


@pytest.mark.parametrize("name", OVER_THE_STEP)
def test_whitening_is_over_the_whole_step(name):
    experiences, _ = random_step(3, num_prompts=8)
    whole = estimate(name, *experiences)
    halves = estimate(name, *experiences[:4]) + estimate(name, *experiences[4:])
    assert max(abs(a[0] - b[0]) for a, b in zip(whole, halves, strict=True)) > 0.01

    by_token = estimate(name, *experiences, whiten=Whitening.token)
    masks = [c.loss_mask for e in experiences for c in e.group.completions]
    values = torch.tensor(
        [
            value
            for row, mask in zip(by_token, masks, strict=True)
            for value, counts in zip(row, mask, strict=True)
            if counts
        ]
    )
    assert values.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert values.std().item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", [*AdvantageName])
def test_a_group_without_spread_gives_exactly_zero(name):
    # 0.1 has no exact mean in binary: a deviation of 1e-17 over epsilon would not be 0
    tied = [scored(0.1, 1.0)] * 7
    group = experience(tied, lengths=range(1, 8), greedy=tied[0], control=tied[:3])
    advantages = estimate(name, group, epsilon=1e-30)
    assert advantages == [[0.0] * length for length in range(1, 8)]


@pytest.mark.parametrize("name", ["grpo", "group_mean", "rloo", "gdpo", "ema_grpo", "t_grpo"])
def test_a_completion_alone_has_no_baseline_and_no_advantage(name):
    assert estimate(name, experience([scored(0.3, 1.0)])) == [[0.0]]


def test_a_part_without_spread_adds_nothing_to_the_others():
    accuracies = [0.0, 0.2, 0.9]
    with_equal_formats = experience([scored(a, 0.1) for a in accuracies])
    alone = estimate("gdpo", with_equal_formats, keys={"accuracy": 1.0})
    assert estimate("gdpo", with_equal_formats, keys={"accuracy": 1.0, "format": 5.0}) == alone


def test_normalised_advantages_do_not_depend_on_the_scale_of_the_rewards():
    rewards = [0.0, 0.1, 0.9, 0.95]
    scaled = [100 * reward + 7 for reward in rewards]
    for name in ("grpo", "ema_grpo", "reinforce_pp", "reinforce_pp_baseline", "pass_at_k"):
        options: dict[str, Any] = {"epsilon": 1e-12} | ({"k": 2} if name == "pass_at_k" else {})
        plain = first(estimate(name, experience(rewards), **options))
        assert first(estimate(name, experience(scaled), **options)) == pytest.approx(
            plain, abs=1e-9
        )


def test_moving_deviations_survive_rewards_far_from_zero():
    far = [1e8 + reward for reward in (0.0, 1.0, 1.0, 1.0)]
    near = first(estimate("ema_grpo", experience([0.0, 1.0, 1.0, 1.0])))
    assert first(estimate("ema_grpo", experience(far))) == pytest.approx(near, abs=1e-6)


def test_whitening_counts_a_value_as_often_as_its_weight():
    values, weights = [1.0, 4.0, -2.0], [3, 1, 2]
    repeated = [v for v, w in zip(values, weights, strict=True) for _ in range(w)]
    tensor = torch.tensor(repeated, dtype=torch.float64)
    expected = (torch.tensor(values).double() - tensor.mean()) / (tensor.std() + 1e-6)
    ours = whiten(torch.tensor(values).double(), torch.tensor(weights), epsilon=1e-6)
    assert ours.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


# State, counts and refusals


def test_what_ema_grpo_remembers_is_continued_from_its_state():
    steps = [random_step(seed)[0] for seed in range(4)]
    straight = AdvantageEstimator(config("ema_grpo"))
    expected = [straight(step) for step in steps]

    stopped, resumed = (AdvantageEstimator(config("ema_grpo")) for _ in range(2))
    advantages = [stopped(step) for step in steps[:2]]
    resumed.load_state(json.loads(json.dumps(stopped.state())))
    advantages += [resumed(step) for step in steps[2:]]
    assert advantages == expected
    assert resumed.state() == straight.state()
    assert [AdvantageEstimator(config("ema_grpo"))(step) for step in steps][2:] != expected[2:]


def test_groups_with_something_to_learn_are_counted():
    estimator = AdvantageEstimator(config("grpo"))
    estimator([experience([1.0, 0.0]), experience([1.0, 1.0]), experience([0.1, 0.1])])
    assert estimator.metrics() == {"advantage/groups_with_signal": pytest.approx(1 / 3)}


def test_a_step_that_was_refused_whole_has_no_advantages():
    for name in AdvantageName:
        assert estimate(name) == []


@pytest.mark.parametrize("status", [s for s in ScoreStatus if s is not ScoreStatus.ok])
def test_an_answer_whose_scoring_failed_has_none_of_a_part(status):
    styled = [score(s, accuracy=1.0, style=s) for s in (1.0, 0.5)]
    zero = score(0.0, accuracy=0.0, style=0.0)
    failed = replace(zero, parts={"accuracy": 0.0, "format": 0.0}, status=status)
    keys = {"accuracy": 1.0, "style": 1.0}
    told = estimate("gdpo", experience([*styled, failed]), keys=keys)
    assert told == estimate("gdpo", experience([*styled, zero]), keys=keys)


def test_a_part_that_a_score_lacks_is_named_with_the_sample():
    group = experience([scored(1.0, 1.0), scored(0.0, 1.0)], name="clip-17")
    with pytest.raises(UserError, match=r"clip-17: .*'style'.* accuracy, format"):
        estimate("gdpo", group, keys={"accuracy": 1.0, "style": 1.0})


def test_a_group_smaller_than_k_is_named():
    with pytest.raises(UserError, match=r"clip-9 has 3 completions, .*k=4"):
        estimate("pass_at_k", experience([1.0, 0.0, 0.0], name="clip-9"))


def test_remax_needs_the_greedy_answer():
    with pytest.raises(ValueError, match="clip-3 has no greedy answer"):
        estimate("remax", experience([1.0, 0.0], name="clip-3"))


def test_penalties_must_fit_the_completions():
    answers = experience([1.0, 0.0], lengths=[2, 1])
    for penalties in ([[0.0, 0.0]], [[0.0], [0.0]]):
        with pytest.raises(ValueError):
            estimate("grpo", answers, penalties=penalties)
