import random

import pytest
from scipy.optimize import linear_sum_assignment

from easyvideor1.rewards.assignment import best_sum


def test_the_best_sum_is_not_the_greedy_one():
    assert best_sum([[0.6, 0.5], [0.55, 0.0]]) == pytest.approx(1.05)
    assert best_sum([[0.2]]) == 0.2
    assert best_sum([[0.2, 0.9, 0.3]]) == 0.9
    assert best_sum([[0.2], [0.9], [0.3]]) == 0.9
    assert best_sum([[0.0, 0.0], [0.0, 0.0]]) == 0.0


def test_the_best_sum_is_the_one_scipy_finds():
    rng = random.Random(0)
    for _ in range(500):
        rows, columns = rng.randint(1, 9), rng.randint(1, 9)
        values = [[rng.choice([0.0, rng.random()]) for _ in range(columns)] for _ in range(rows)]
        chosen = linear_sum_assignment(values, maximize=True)
        expected = sum(values[row][column] for row, column in zip(*chosen, strict=True))
        assert best_sum(values) == pytest.approx(expected, abs=1e-12)
