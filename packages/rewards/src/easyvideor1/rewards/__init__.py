"""Verifiable rewards: what the model is asked, how its answer is read, how it is scored.

`instruction`, `extract`, `score`, `reward` and `render_gold` take a `Sample`; `score_many` scores a
batch under deadlines. Tasks are in `tasks/`, one file each. No torch, ray, vllm or transformers.
"""

from easyvideor1.rewards.batch import check_scoring, count_statuses, score_many
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import (
    GoldError,
    ScorerUnavailableError,
    Task,
    register_task,
    registered_types,
)
from easyvideor1.rewards.scoring import Extracted, extract, instruction, render_gold, reward, score

__all__ = [
    "AnswerText",
    "Extracted",
    "GoldError",
    "NoAnswer",
    "RewardConfig",
    "ScorerUnavailableError",
    "Task",
    "check_scoring",
    "count_statuses",
    "extract",
    "instruction",
    "register_task",
    "registered_types",
    "render_gold",
    "reward",
    "score",
    "score_many",
]
