"""The rewards as reward functions of other trainers: EasyR1, verl and TRL.

EasyR1: `worker.reward.reward_function=…/compat.py:main`. verl:
`reward.custom_reward_function.path=…/compat.py`, `name=compute_score`. TRL: `trl_reward`, or what
`make_trl_reward` returns, among the `reward_funcs` of a trainer. docs/rewards.md shows each.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from easyvideor1.rewards.batch import score_many
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import read_answer
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.formats import without_letters
from easyvideor1.schema.records import Answer, Sample, Score, parse_problem_type

REWARD_NAME = "easyvideor1"
REWARD_TYPE = "batch"


def main(reward_inputs: Sequence[dict[str, Any]], **settings: Any) -> list[dict[str, float]]:
    """EasyR1's batch function: dicts with `overall`, `accuracy`, `format` and penalties.

    Args:
        reward_inputs: dicts with `response`, `ground_truth`, `problem_type` and, where a loader
            passes them, `response_length`, `problem`, `problem_id`, `options` and `extra`.
        settings: of the `reward` group, e.g. `accuracy_weight=1.0, format_weight=0.0`.

    Raises:
        ValueError: for an unknown problem type.
        UserError: for a setting that is none of the group.
    """
    items = [
        (
            _sample(
                values,
                problem_type=values["problem_type"],
                gold=values["ground_truth"],
                name=values.get("problem_id", index),
            ),
            values["response"],
        )
        for index, values in enumerate(reward_inputs)
    ]
    lengths = [values.get("response_length") for values in reward_inputs]
    scores = score_many(items, settings_to_config(settings), num_tokens=lengths)
    return [{"overall": score.value, **score.parts} for score in scores]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, float]:
    """verl's function: a dict with `score`, `acc` (the accuracy), `format` and penalties.

    Args:
        data_source: names the problem type where `extra_info` does not.
        solution_str: what the model wrote.
        ground_truth: the gold answer.
        extra_info: may hold `problem_type`, `options`, `problem`, `id`, `num_tokens`, `extra`.
        settings: of the `reward` group, from `custom_reward_function.reward_kwargs`.
        _: what verl passes for reward models.

    Raises:
        ValueError: for an unknown problem type.
        UserError: for a setting that is none of the group.
    """
    values = extra_info or {}
    sample = _sample(
        values,
        problem_type=values.get("problem_type") or data_source,
        gold=ground_truth,
        name=values.get("id", values.get("index", "verl")),
    )
    config = settings_to_config(settings or {})
    (score,) = score_many([(sample, solution_str)], config, num_tokens=[values.get("num_tokens")])
    return {"score": score.value, **_with_short_name(score)}


def _with_short_name(score: Score) -> dict[str, float]:
    """Parts of a score; verl takes `acc` for the metric that counts."""
    return {"acc" if name == "accuracy" else name: part for name, part in score.parts.items()}


TrlReward = Callable[..., list[float]]


def make_trl_reward(config: RewardConfig) -> TrlReward:
    """A reward function for TRL's trainers under `config`."""

    def easyvideor1(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        rows = [
            {name: values[row] for name, values in columns.items() if isinstance(values, list)}
            for row in range(len(completions))
        ]
        items = [
            (_trl_sample(row, index, prompt), _last_text(completion))
            for index, (row, prompt, completion) in enumerate(
                zip(rows, prompts, completions, strict=True)
            )
        ]
        lengths = [len(row["completion_ids"]) if "completion_ids" in row else None for row in rows]
        return [score.value for score in score_many(items, config, num_tokens=lengths)]

    return easyvideor1


def trl_reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
    """TRL's function under the default settings: the reward of each completion.

    Args:
        prompts: texts, or lists of messages.
        completions: texts, or lists of messages.
        columns: of the data set, each a list: `problem_type`, `answer` or `solution`, and
            `options`, `problem`, `id`, `extra` where they are; `completion_ids` give the lengths.

    Raises:
        ValueError: for a row without problem type or answer, or an unknown type.
    """
    return make_trl_reward(RewardConfig())(prompts, completions, **columns)


def settings_to_config(settings: Mapping[str, Any]) -> RewardConfig:
    """The `reward` group with some settings changed; values may be nested mappings.

    Raises:
        UserError: for an unknown setting or a value of the wrong type.
    """
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(OmegaConf.create(dict(settings)), resolve=True)
    return _config_of(json.dumps(plain, sort_keys=True))


@lru_cache(maxsize=16)
def _config_of(settings: str) -> RewardConfig:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        merged = OmegaConf.merge(OmegaConf.structured(RewardConfig), json.loads(settings))
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise UserError(f"reward settings: {str(error).splitlines()[0]}") from error
    assert isinstance(config, RewardConfig)
    return config


def _trl_sample(row: dict[str, Any], index: int, prompt: Any) -> Sample:
    gold = row.get("answer", row.get("solution"))
    if row.get("problem_type") is None:
        raise ValueError("the data set has no column problem_type, which says how to score")
    return _sample(
        {"problem": _last_text(prompt), **row},
        problem_type=row["problem_type"],
        gold=gold,
        name=row.get("id", index),
    )


def _last_text(text: Any) -> str:
    """A plain text, or the text of the last of some messages."""
    if isinstance(text, str):
        return text
    content = text[-1]["content"] if text else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _sample(values: Mapping[str, Any], *, problem_type: str, gold: Any, name: Any) -> Sample:
    options = values.get("options")
    return Sample(
        id=str(name),
        problem=values.get("problem") or "",
        answer=_gold(gold),
        problem_type=parse_problem_type(problem_type),
        options=() if options is None else without_letters([str(text) for text in options]),
        extra=dict(values.get("extra") or {}),
    )


def _gold(value: Any) -> Answer:
    """A gold answer without answer tags; arrays, as data frames hold them, as lists."""
    if isinstance(value, str):
        return read_answer(value).text
    return value.tolist() if hasattr(value, "tolist") else value
