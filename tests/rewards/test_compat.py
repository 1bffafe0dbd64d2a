"""The rewards under other trainers, called as their code calls a reward function."""

import asyncio
import importlib.util
import inspect
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easyvideor1.rewards import RewardConfig, compat
from easyvideor1.rewards.compat import make_trl_reward, trl_reward
from easyvideor1.rewards.config import OverlongConfig
from easyvideor1.schema.errors import UserError

COMPAT = Path(inspect.getfile(compat))

INPUTS = [
    {"response": "<answer>B</answer>", "response_length": 9, "ground_truth": "B",
     "data_type": "video", "problem_type": "multiple choice", "problem": None, "problem_id": 1},
    {"response": "<answer>no</answer>", "ground_truth": "<answer>yes</answer>",
     "problem_type": "binary classification"},
    {"response": '<answer>{"time": [2, 6]}</answer>', "ground_truth": '{"time": [4, 8]}',
     "problem_type": "temporal grounding"},
    {"response": "5", "ground_truth": "5", "problem_type": "number"},
]  # fmt: skip


def loaded_from_file():
    """The module as trainers load it: from its path, under another name."""
    spec = importlib.util.spec_from_file_location("custom_reward", COMPAT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- EasyR1 -------------------------------------------------------------------------------------


def test_the_easyr1_function_scores_a_batch_in_its_form():
    scores = compat.main(INPUTS)
    assert scores == [
        {"overall": 1.0, "accuracy": 1.0, "format": 1.0},
        {"overall": pytest.approx(0.1), "accuracy": 0.0, "format": 1.0},
        {"overall": pytest.approx(0.4), "accuracy": pytest.approx(1 / 3), "format": 1.0},
        {"overall": pytest.approx(0.9), "accuracy": 1.0, "format": 0.0},
    ]
    assert compat.main(INPUTS[1:2], accuracy_weight=0.5, format_weight=0.5)[0]["overall"] == 0.5


def test_easyr1_gets_type_and_keyword_arguments_from_the_module():
    """As its BatchFunctionRewardManager does: kwargs bound, one call with the list of inputs."""
    module = loaded_from_file()
    assert (module.REWARD_TYPE, module.REWARD_NAME) == ("batch", "easyvideor1")
    function = partial(module.main, **{"accuracy_weight": 1.0, "format_weight": 0.0})
    assert [score["overall"] for score in function(INPUTS)] == pytest.approx([1, 0, 1 / 3, 1])


def test_options_are_used_where_they_are_passed():
    values = {"response": "<answer>blue</answer>", "ground_truth": "B",
              "problem_type": "multiple choice"}  # fmt: skip
    lettered, bare = ["A. Red", "B. Blue"], np.array(["Red", "Blue"])
    inputs = [values, {**values, "options": lettered}, {**values, "options": bare}]
    assert [score["accuracy"] for score in compat.main(inputs)] == [0.0, 1.0, 1.0]


def test_settings_may_be_nested_and_a_wrong_one_is_named():
    overlong = {"max_tokens": 8, "buffer_tokens": 4}
    (score,) = compat.main(INPUTS[:1], overlong=overlong)
    assert (score["overlong"], score["overall"]) == (-1.0, 0.0)
    with pytest.raises(UserError, match="'acuracy_weight' not in 'RewardConfig'"):
        compat.main(INPUTS, acuracy_weight=1.0)
    with pytest.raises(UserError, match="sum to 1"):
        compat.main(INPUTS, accuracy_weight=1.0)


def test_an_unknown_problem_type_is_an_error():
    with pytest.raises(ValueError, match="unknown problem type 'riddle'"):
        compat.main([{"response": "B", "ground_truth": "B", "problem_type": "riddle"}])


# --- verl ---------------------------------------------------------------------------------------


async def verl_run_single(compute_score, item: dict, response: str, **router) -> dict:
    """What verl 0.9's NaiveRewardManager.run_single does with a function that is not async."""
    extra_info = item.get("extra_info", {})
    extra_info["num_turns"] = None
    extra_info["rollout_reward_scores"] = {}
    result = await asyncio.get_running_loop().run_in_executor(
        None,
        lambda: compute_score(
            data_source=item["data_source"],
            solution_str=response,
            ground_truth=item["reward_model"]["ground_truth"],
            extra_info=extra_info,
            **router,
        ),
    )
    score = result["score"] if isinstance(result, dict) else result
    return {"reward_score": score, "reward_extra_info": dict(result)}


def verl_item(problem_type: str, gold, **extra) -> dict:
    return {"data_source": "my/videos", "reward_model": {"style": "rule", "ground_truth": gold},
            "extra_info": {"problem_type": problem_type, "index": 7, **extra}}  # fmt: skip


def test_verl_scores_one_answer_at_a_time():
    compute_score = loaded_from_file().compute_score
    item = verl_item("temporal grounding", np.array([4, 8]))
    result = asyncio.run(verl_run_single(compute_score, item, '<answer>{"time": [2, 6]}</answer>'))
    assert result["reward_score"] == pytest.approx(0.4)
    assert result["reward_extra_info"] == {
        "score": pytest.approx(0.4), "acc": pytest.approx(1 / 3), "format": 1.0,
    }  # fmt: skip


def test_verl_may_name_the_type_by_the_source_and_pass_what_is_for_others():
    compute_score = loaded_from_file().compute_score
    item = verl_item("", "B", options=np.array(["A. Red", "B. Blue"])) | {"data_source": "mcq"}
    router = {"reward_router_address": "127.0.0.1:1", "reward_model_tokenizer": None}
    result = asyncio.run(verl_run_single(compute_score, item, "<answer>blue</answer>", **router))
    assert result["reward_score"] == 1.0


def test_verl_binds_settings_as_keyword_arguments():
    kwargs = {"settings": {"tasks": {"numerical": {"format_weight": 0.0}}}}
    compute_score = partial(loaded_from_file().compute_score, **kwargs)
    result = asyncio.run(verl_run_single(compute_score, verl_item("number", 5), "5"))
    assert result["reward_score"] == 1.0


def test_verl_scores_from_many_threads():
    compute_score = loaded_from_file().compute_score

    async def all_at_once() -> list[dict]:
        items = [verl_item("number", index) for index in range(32)]
        return await asyncio.gather(
            *(verl_run_single(compute_score, item, "<answer>7</answer>") for item in items)
        )

    results = asyncio.run(all_at_once())
    assert [result["reward_extra_info"]["acc"] for result in results] == [
        float(index == 7) for index in range(32)
    ]


# --- TRL ----------------------------------------------------------------------------------------


def trl_calculate_rewards(reward_func, inputs: list[dict], completions: list) -> list[float]:
    """What TRL 1.16's GRPOTrainer._calculate_rewards does with a function that is not async."""
    prompts = [example["prompt"] for example in inputs]
    completion_ids_list = [[0] * (index + 1) for index in range(len(inputs))]
    keys = [key for key in inputs[0] if key not in ["prompt", "completion", "completion_ids"]]
    reward_kwargs: dict[str, Any] = {key: [example[key] for example in inputs] for key in keys}
    reward_kwargs["trainer_state"] = object()
    reward_kwargs["log_extra"] = lambda column, values: None
    reward_kwargs["log_metric"] = lambda name, value: None
    output = reward_func(
        prompts=prompts, completions=completions, completion_ids=completion_ids_list,
        **reward_kwargs,
    )  # fmt: skip
    assert len(output) == len(prompts)
    return output


def test_trl_scores_conversations_by_the_columns_of_the_data_set():
    question = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}]
    inputs = [
        {"prompt": question, "problem_type": "mcq", "answer": "B", "options": ["Red", "Blue"]},
        {"prompt": question, "problem_type": "number", "answer": 5, "options": None},
    ]
    completions = [
        [{"role": "assistant", "content": "<answer>blue</answer>"}],
        [{"role": "assistant", "content": [{"type": "text", "text": "5"}]}],
    ]
    assert trl_calculate_rewards(trl_reward, inputs, completions) == pytest.approx([1.0, 0.9])


def test_trl_scores_plain_texts_and_knows_their_lengths():
    config = RewardConfig(overlong=OverlongConfig(max_tokens=2, buffer_tokens=2))
    reward_func = make_trl_reward(config)
    inputs = [{"prompt": "?", "problem_type": "boolean", "solution": "yes"}] * 3
    rewards = trl_calculate_rewards(reward_func, inputs, ["<answer>yes</answer>"] * 3)
    assert rewards == pytest.approx([0.5, 0.0, 0.0])
    assert reward_func.__name__ == "easyvideor1"  # under which TRL logs it


def test_trl_data_without_a_problem_type_are_an_error():
    with pytest.raises(ValueError, match="no column problem_type"):
        trl_calculate_rewards(trl_reward, [{"prompt": "?", "answer": "B"}], ["B"])
