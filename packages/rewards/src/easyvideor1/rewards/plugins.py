"""Reward functions from a file, `reward.function=PATH.py:NAME`, in the signature of EasyR1.

A module may set `REWARD_TYPE`: `batch` (the default: one call with a list of dicts, in this process
and without a deadline) or `sequential` (one call with one dict per answer, each in a worker under
`reward.deadline_s`). Called by `batch`.
"""

import importlib.util
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.scoring import failure
from easyvideor1.rewards.workers import Handover, Job
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample, Score, ScoreStatus

DEFAULT_NAME = "main"
TYPES = ("batch", "sequential")


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A function of the user's."""

    name: str
    """As in `reward.function`."""
    call: Callable[..., Any]
    is_batch: bool


@lru_cache(maxsize=16)
def load_function(spec: str) -> RewardFunction:
    """The function that `PATH.py:NAME` means; without a name it is `main`.

    Raises:
        UserError: there is no such file or function, or the file cannot be imported.
    """
    location, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", DEFAULT_NAME)
    path = Path(location).expanduser()
    if not path.is_file():
        raise UserError(f"reward.function={spec}: there is no file {location}")
    module_spec = importlib.util.spec_from_file_location(f"reward_function_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"reward.function={spec}: {location} is no Python file")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"reward.function={spec}: cannot be imported: {reason}") from error
    call, kind = getattr(module, name, None), getattr(module, "REWARD_TYPE", TYPES[0])
    if not callable(call):
        raise UserError(f"reward.function={spec}: {location} has no function {name}")
    if kind not in TYPES:
        raise UserError(
            f"reward.function={spec}: REWARD_TYPE is {kind!r}, expected one of {', '.join(TYPES)}"
        )
    return RewardFunction(name=spec, call=call, is_batch=kind == "batch")


def score_many(
    items: Sequence[tuple[Sample, str]], num_tokens: Sequence[int | None], config: RewardConfig
) -> list[Score]:
    """The score of each (sample, text) by `config.function`, in order.

    Raises:
        UserError: the function cannot be loaded, or a `batch` function fails.
    """
    assert config.function is not None
    function = load_function(config.function)
    inputs = [
        _reward_input(sample, text, count)
        for (sample, text), count in zip(items, num_tokens, strict=True)
    ]
    if not inputs:
        return []
    if function.is_batch:
        return _score_batch(function, inputs, config)
    handovers = [
        Handover([Job(*item, _score_one, (one, config), config.deadline_s)], config.workers)
        for item, one in zip(items, inputs, strict=True)
    ]
    return [score for handover in handovers for score in handover.scores()]


def _reward_input(sample: Sample, text: str, num_tokens: int | None) -> dict[str, Any]:
    """What EasyR1 passes for an answer, and what else the sample holds."""
    gold = sample.answer
    return {
        "response": text,
        "response_length": num_tokens,
        "ground_truth": gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False),
        "data_type": sample.data_type,
        "problem_type": sample.problem_type.value,
        "problem": sample.problem,
        "problem_id": sample.id,
        "options": list(sample.options),
        "source": sample.source,
        "category": sample.category,
        "extra": sample.extra,
    }


def _score_batch(
    function: RewardFunction, inputs: list[dict[str, Any]], config: RewardConfig
) -> list[Score]:
    try:
        results = list(function.call(inputs, **config.function_options))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"reward.function={function.name} failed: {reason}") from error
    if len(results) != len(inputs):
        raise UserError(
            f"reward.function={function.name} returned {len(results)} results for "
            f"{len(inputs)} answers"
        )
    return [_as_score(result) for result in results]


def _score_one(sample: Sample, text: str, options: tuple[dict[str, Any], RewardConfig]) -> Score:
    """In a worker: one answer by a `sequential` function."""
    reward_input, config = options
    assert config.function is not None
    try:
        call = load_function(config.function).call
        return _as_score(call(reward_input, **config.function_options))
    except Exception as error:
        return failure(ScoreStatus.error, f"{type(error).__name__}: {error}")


def _as_score(result: Any) -> Score:
    """A score from a dict with `overall`; where it has no `accuracy`, that is `overall`."""
    if not isinstance(result, Mapping) or "overall" not in result:
        return failure(ScoreStatus.error, f"no dict with 'overall': {str(result)[:100]}")
    try:
        parts = {str(name): float(value) for name, value in result.items()}
    except (TypeError, ValueError, OverflowError):
        parts = {}
    if not parts or not all(math.isfinite(value) for value in parts.values()):
        return failure(ScoreStatus.error, f"not all values are finite numbers: {str(result)[:100]}")
    value = parts.pop("overall")
    return Score(value=value, parts={"accuracy": value, "format": 0.0, **parts})
