"""A quantity to estimate: accuracy is the mean relative accuracy of VSI-Bench.

That is the share of the ten thresholds 0.5, 0.55, … 0.95 for which the relative error is at most
1 - threshold, in double precision as `np.linspace` gives them (Yang et al., arXiv 2412.14171, and
`mean_relative_accuracy` of their code): 95 for 100 scores 1, 70 scores 0.5; 4 for 5 scores 0.6,
since 0.2 is above the double 1 - 0.8. The error is relative to the absolute gold value. For a gold
value of 0, which has no relative error, 0 scores 1 and everything else 0. `50%` is read as 50 or as
0.5, whichever fits, unless the gold answer has the sign too.
"""

from functools import lru_cache
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.numbers import Number
from easyvideor1.rewards.reading import AnswerText
from easyvideor1.rewards.registry import Task, register_task
from easyvideor1.rewards.tasks.numerical import gold_number, is_number, read_number
from easyvideor1.schema.records import ProblemType, Sample


@register_task(ProblemType.regression)
class Regression(Task[dict[str, Any]]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give only the estimated number in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> dict[str, Any]:
        return read_number(answer).as_json()

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_number(answer.text)

    def score(self, value: dict[str, Any], sample: Sample, config: RewardConfig) -> float:
        number, gold = Number(**value), gold_number(sample)
        accuracy = mean_relative_accuracy(number.value, gold.value)
        if number.percent == gold.percent:
            return accuracy
        factor = 0.01 if number.percent else 100.0
        return max(accuracy, mean_relative_accuracy(number.value * factor, gold.value))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        gold_number(sample)
        return str(sample.answer)

    def load(self) -> None:
        _limits()


def mean_relative_accuracy(value: float, gold: float) -> float:
    """Share of the ten thresholds that the relative error of `value` passes."""
    if gold == 0:
        return float(value == 0)
    error = abs(value - gold) / abs(gold)
    return sum(error <= limit for limit in _limits()) / len(_limits())


@lru_cache(maxsize=1)
def _limits() -> tuple[float, ...]:
    """The largest relative error that each threshold lets pass."""
    import numpy as np

    return tuple((1 - np.linspace(0.5, 0.95, 10)).tolist())
