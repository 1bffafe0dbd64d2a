"""The rewards as an EasyR1 reward file: `worker.reward.reward_function=…/compat.py:main`.

EasyR1 passes no options, so a multiple-choice answer is read as a letter alone.
"""

from collections.abc import Sequence
from typing import Any

from easyvideor1.rewards.batch import score_many
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import read_answer
from easyvideor1.schema.records import Sample, parse_problem_type

REWARD_NAME = "easyvideor1"
REWARD_TYPE = "batch"


def main(
    reward_inputs: Sequence[dict[str, Any]],
    accuracy_weight: float = 0.9,
    format_weight: float = 0.1,
    deadline_s: float = 5.0,
) -> list[dict[str, float]]:
    """Scores of a batch in EasyR1's form: dicts with `overall`, `format` and `accuracy`.

    Args:
        reward_inputs: dicts with `response`, `ground_truth`, `problem_type`; others are ignored
            but for `problem_id` and, where a loader passes them, `options`.
        accuracy_weight: of `RewardConfig`, as the following two.

    Raises:
        ValueError: for an unknown problem type.
    """
    config = RewardConfig(
        accuracy_weight=accuracy_weight, format_weight=format_weight, deadline_s=deadline_s
    )
    items = [
        (_sample(index, values), values["response"]) for index, values in enumerate(reward_inputs)
    ]
    return [{"overall": score.value, **score.parts} for score in score_many(items, config)]


def _sample(index: int, values: dict[str, Any]) -> Sample:
    gold = values["ground_truth"]
    return Sample(
        id=str(values.get("problem_id", index)),
        problem="",
        answer=read_answer(gold).text if isinstance(gold, str) else gold,
        problem_type=parse_problem_type(values["problem_type"]),
        options=tuple(values.get("options") or ()),
    )
