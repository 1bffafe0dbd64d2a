import json
import pickle
import subprocess
import sys

import pytest

from easyvideor1.rewards import (
    GoldError,
    RewardConfig,
    Task,
    extract,
    instruction,
    register_task,
    registered_types,
    registry,
    render_gold,
    reward,
    score,
)
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

GOLD: dict[str, list[Answer]] = {
    "multiple_choice": ["B", "Blue", "(B)"],
    "numerical": [5, -0.5, "1,234", "50%", "3/4", "two"],
    "boolean": [True, False, "yes", "No"],
    "math": [r"\frac{1}{2}", "x=5", 5, [[1, 2], [3, 4]]],
    "ocr": ["Hello, world", "你好世界", 7],
    "regression": [5, 0, -2.5, "12.5 m"],
    "temporal_grounding": [[4, 8], {"time": [0.5, 2]}, [[4, 8], [9, 12]]],
    "spatial_grounding": [
        [0, 0, 100, 100],
        {"bbox_2d": [1, 2, 3.5, 4]},
        [[0, 0, 1, 1], [2, 2, 3, 3]],
    ],
    "spatial_temporal_grounding": [
        {"time": [0, 1.5], "boxes": {"0": [0, 0, 10, 10], "1": [0, 0, 10, 10.5]}}
    ],
    "preference": ["Response 2", "tie"],
    "tracking": [{"boxes": {"0": [0, 0, 10, 10], "00:01": [0, 0, 10, 10]}}, {"2.5": [1, 2, 3, 4]}],
    "code": [
        {"language": "python", "entry": "add", "tests": ["assert add(1, 2) == 3"]},
        {"inputs": ["1 2\n"], "outputs": ["3\n"]},
        {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]},
    ],
    "svg_code": ["<svg xmlns='http://www.w3.org/2000/svg'><rect width='9' height='4'/></svg>"],
    "html_code": ["<p>Hello <b>world</b></p>"],
    "open_ended": ["A man rides a bike.", "dog", "一个男人", 7],
}
"""Gold answers of each type, in the forms that data files hold."""


def sample(problem_type: str, answer: Answer) -> Sample:
    return Sample(
        id="q1",
        problem="?",
        answer=answer,
        problem_type=ProblemType(problem_type),
        options=("Red", "Blue", "Green") if problem_type == "multiple_choice" else (),
    )


SAMPLES = [sample(kind, answer) for kind, answers in GOLD.items() for answer in answers]


def test_every_registered_type_is_tested_here():
    assert {kind.value for kind in registered_types()} == set(GOLD)


@pytest.mark.parametrize("gold", SAMPLES, ids=lambda s: f"{s.problem_type.value}-{s.answer}")
def test_the_gold_answer_scores_one(gold: Sample):
    result = reward(gold, render_gold(gold))
    assert (result.value, result.status) == (1.0, ScoreStatus.ok)
    assert result.parts == {"accuracy": 1.0, "format": 1.0}
    json.dumps(result.extracted, allow_nan=False)


@pytest.mark.parametrize("gold", SAMPLES[::3], ids=lambda s: s.problem_type.value)
def test_the_instruction_is_short_and_names_the_answer_tag(gold: Sample):
    text = instruction(gold)
    assert "<answer>" in text
    assert "</answer>" in text
    assert len(text) <= 200


@pytest.mark.parametrize(
    ("text", "format_part"),
    [
        ("Reason. <answer>B</answer>", 1.0),
        ("<think>Reason.</think><answer>B. Blue</answer> Done.", 1.0),
        ("<answer>violet</answer>", 0.5),
        ("<answer>A, B</answer>", 0.5),
        ("<answer>A</answer><answer>B</answer>", 0.5),
        ("<answer>B", 0.5),
        ("<answer></answer>", 0.0),
        ("The answer is B", 0.0),
        ("<think><answer>B</answer></think>B", 0.0),
        ("", 0.0),
    ],
)
def test_the_format_part_is_about_the_answer_tag(text: str, format_part: float):
    assert reward(sample("multiple_choice", "B"), text).parts["format"] == format_part


@pytest.mark.parametrize(
    ("problem_type", "as_asked", "read_all_the_same"),
    [
        ("multiple_choice", ["B", "(b)", "**B**", "B. Blue"], ["The answer is B.", "so: **B**"]),
        ("boolean", ["yes", "No.", "true"], ["Yes, he does", "The answer is no."]),
        ("numerical", ["5", "1,234.5", "50%", "3 metres"], ["I see 3 cars, so the answer is 3."]),
        ("regression", ["5", "12.5 m"], ["I would say the answer is 5 metres."]),
        ("temporal_grounding", ['{"time": [2, 6]}'], ["2 - 6", "from 2 to 6 seconds", "[2, 6]"]),
        ("spatial_grounding", ['{"boxes": [0, 0, 9, 9]}'], ["[0, 0, 9, 9]"]),
        ("tracking", ['{"boxes": {"0": [0, 0, 9, 9]}}'], ['{"0": [0, 0, 9, 9]}']),
        ("spatial_temporal_grounding", ['{"time": [0, 1], "boxes": {"0": [0, 0, 9, 9]}}'],
         ['```json\n{"time": [0, 1], "boxes": {"0": [0, 0, 9, 9]}}\n```']),
        ("preference", ["Response 1", "tie", "2"], ["I looked at both. Response 1 is better."]),
    ],
)  # fmt: skip
def test_an_answer_in_another_form_than_asked_for_counts_half(
    problem_type: str, as_asked: list[str], read_all_the_same: list[str]
):
    question = sample(problem_type, GOLD[problem_type][0])
    for form, texts in ((1.0, as_asked), (0.5, read_all_the_same)):
        for text in texts:
            extracted = extract(f"<answer>{text}</answer>", question)
            assert (extracted.status, extracted.format) == (ScoreStatus.ok, form), text


def test_the_reward_weighs_accuracy_and_format():
    right, wrong = sample("multiple_choice", "B"), sample("multiple_choice", "A")
    text = "<answer>B</answer>"
    assert reward(right, text).value == 1.0
    assert reward(wrong, text).value == pytest.approx(0.1)
    assert reward(right, "B").value == pytest.approx(0.9)
    config = RewardConfig(accuracy_weight=0.25, format_weight=0.75)
    assert reward(wrong, text, config).value == 0.75
    assert score(extract(text, wrong), wrong, config) == reward(wrong, text, config)


def test_no_answer_is_a_status_and_scores_no_accuracy():
    result = reward(sample("boolean", False), "<answer>perhaps</answer>")
    assert (result.status, result.extracted) == (ScoreStatus.no_answer, None)
    assert result.parts == {"accuracy": 0.0, "format": 0.5}
    assert result.detail


def test_a_hidden_gold_answer_can_be_extracted_from_but_not_scored():
    hidden = sample("multiple_choice", None)
    assert extract("<answer>B</answer>", hidden).value == "B"
    assert instruction(hidden)
    with pytest.raises(GoldError, match="q1: answer: got None, expected one that is not hidden"):
        reward(hidden, "<answer>B</answer>")
    with pytest.raises(GoldError):
        render_gold(hidden)


def test_a_gold_error_crosses_process_boundaries():
    with pytest.raises(GoldError) as caught:
        render_gold(sample("boolean", "maybe"))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.expected) == (str(caught.value), caught.value.expected)


def test_a_type_without_a_task_is_an_error_that_lists_the_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(registry._TASKS, ProblemType.svg_code)
    unknown = sample("svg_code", "<svg/>")
    with pytest.raises(UserError, match=r"q1: no reward for problem_type 'svg_code'.*boolean"):
        reward(unknown, "<answer><svg/></answer>")


def test_a_type_is_registered_once():
    class Second(Task[str]):
        """Never used."""

    with pytest.raises(ValueError, match="'boolean' is registered already: Boolean"):
        register_task(ProblemType.boolean)(Second)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accuracy_weight": 0.5}, "sum to 1, got 0.5 and 0.1"),
        ({"accuracy_weight": 1.5, "format_weight": -0.5}, "must not be negative"),
        ({"deadline_s": 0}, "reward.deadline_s must be above 0"),
        ({"workers": 0}, "reward.workers must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str):
    with pytest.raises(UserError, match=message):
        RewardConfig(**settings)


def test_importing_the_rewards_imports_nothing_heavy():
    code = (
        "import sys, easyvideor1.rewards, easyvideor1.rewards.config, easyvideor1.rewards.cli;"
        "print(sorted({'torch', 'ray', 'vllm', 'transformers', 'numpy', 'nltk', 'pandas'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
