import pytest

from easyvideor1.rewards import GoldError, extract, render_gold, reward
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer = True) -> Sample:
    return Sample(id="q1", problem="Is it?", answer=answer, problem_type=ProblemType.boolean)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<answer>yes</answer>", True),
        ("<answer>No.</answer>", False),
        ("<answer>TRUE</answer>", True),
        ("<answer>**false**</answer>", False),
        ("<answer>Yes, he does.</answer>", True),
        ("<answer>Yes - he does</answer>", True),
        ("<answer>The answer is no.</answer>", False),
        ("Yes", True),
        ("Yes, the man walks.", True),
        ("**No**", False),
        (r"\boxed{No}", False),
        ("He stands still.\nNo", False),
        ("Answer: True", True),
        ("No, wait. The answer is yes.", True),
        ("The answer is yes, because he walks.", True),
        ("是的", True),
        ("不是。", False),
        ("答案是：对", True),
        ('<answer>{"answer": true}</answer>', True),
        ("<answer>The statement is false.</answer>", False),
        ("He walks, so it is true.", True),
        ("It is true that he walks, but the claim is false.", False),
        ("The answer is definitely no.", False),
    ],
)
def test_yes_and_no_are_read_where_they_are_the_answer(text: str, value: bool):
    assert extract(text, question()).value is value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer></answer>",
        "<answer>maybe</answer>",
        "<answer>yes and no</answer>",
        "<answer>yes, no</answer>",
        "<answer>Yes/No</answer>",
        "<answer>no dog</answer>",
        "<answer>not true</answer>",
        "<answer>1</answer>",
        "There is no dog.",
        "I do not know",
        "No-one is there",
        "Yes, he walks. No, he runs.",
        "The answer is not yes",
        "The statement is not true",
        "I do not know whether it is true",
        '<answer>{"answer": "maybe"}</answer>',
        "noyes",
    ],
)
def test_other_texts_are_no_answer(text: str):
    extracted = extract(text, question())
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


@pytest.mark.parametrize(
    ("gold", "rendered"),
    [
        (True, "yes"), (False, "no"), ("yes", "yes"), ("No", "no"), ("TRUE", "yes"),
        ("false", "no"), (1, "yes"), (0, "no"), ("1", "yes"), ("Y", "yes"), ("否", "no"),
    ],
)  # fmt: skip
def test_the_gold_answer_may_be_a_boolean_or_a_word(gold: Answer, rendered: str):
    assert render_gold(question(gold)) == f"<answer>{rendered}</answer>"
    other = {"yes": "no", "no": "yes"}[rendered]
    assert reward(question(gold), f"<answer>{rendered}</answer>").value == 1.0
    assert reward(question(gold), f"<answer>{other}</answer>").parts["accuracy"] == 0.0


@pytest.mark.parametrize("gold", ["maybe", "", 2, [True]])
def test_another_gold_answer_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected true or false"):
        render_gold(question(gold))
