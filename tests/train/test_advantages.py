import math

import pytest

from easyvideor1.train.advantages import ADVANTAGES, group_advantages
from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName


def advantages(rewards: list[float], epsilon: float = 1e-6) -> list[float]:
    return group_advantages(rewards, AdvantageConfig(epsilon=epsilon))


def test_every_name_in_the_config_has_a_function():
    assert ADVANTAGES.keys() == set(AdvantageName)


def test_grpo_by_hand():
    # mean 0.5, squared deviations 4 x 0.25, sample variance 1/3
    expected = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    assert advantages([1.0, 0.0, 0.0, 1.0]) == pytest.approx(
        [expected, -expected, -expected, expected], abs=1e-12
    )
    # mean 2, sample deviation 2: exactly one deviation apart, up to epsilon
    assert advantages([0.0, 2.0, 4.0], epsilon=1e-12) == pytest.approx([-1.0, 0.0, 1.0])


def test_a_group_without_spread_gives_exactly_zero():
    # 0.1 has no exact mean in binary: a deviation of 1e-17 over epsilon would not be 0
    assert advantages([0.1] * 7, epsilon=1e-30) == [0.0] * 7
    assert advantages([0.3]) == [0.0]


def test_advantages_do_not_depend_on_the_scale_of_the_rewards():
    rewards = [0.0, 0.1, 0.9, 0.95]
    scaled = [100 * reward + 7 for reward in rewards]
    assert advantages(scaled, epsilon=1e-12) == pytest.approx(
        advantages(rewards, epsilon=1e-12), abs=1e-9
    )
