import pytest

from easyvideor1.rewards.reading import (
    MAX_STATED_CHARS,
    AnswerText,
    out_of_json,
    read_answer,
    unwrap,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", AnswerText("", tagged=False)),
        ("  red ", AnswerText("red", tagged=False)),
        ("<answer>red</answer>", AnswerText("red", tagged=True, single=True)),
        ("so <answer>\n red \n</answer> done", AnswerText("red", tagged=True, single=True)),
        ("<Answer >red< / ANSWER>", AnswerText("red", tagged=True, single=True)),
        ("<answer>a</answer><answer>b</answer>", AnswerText("b", tagged=True)),
        ("<answer>a<answer>b</answer>", AnswerText("b", tagged=True)),
        ("<answer>a</answer>b</answer>", AnswerText("a", tagged=True)),
        ("</answer><answer>a", AnswerText("a", tagged=True)),
        ("<answer>a", AnswerText("a", tagged=True)),
        ("<answer></answer>", AnswerText("", tagged=True, single=True)),
        ("<think>x</think>red", AnswerText("red", tagged=False)),
        ("<thinking>x</thinking>red", AnswerText("red", tagged=False)),
        ("x</think>y</think>red", AnswerText("red", tagged=False)),
        ("red<think>x", AnswerText("red", tagged=False)),
        ("<think>x <answer>a</answer>", AnswerText("", tagged=False)),
        ("<answer>a</answer></think><answer>b</answer>", AnswerText("b", True, True)),
    ],
)
def test_the_answer_is_cut_out_of_the_text(text: str, expected: AnswerText):
    assert read_answer(text) == expected


def test_the_tail_of_a_long_text_begins_with_a_whole_word():
    tail = AnswerText("123456 " * MAX_STATED_CHARS, tagged=False).tail
    assert len(tail) <= MAX_STATED_CHARS
    assert tail.startswith("123456 ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(B)", "B"),
        (" **B**. ", "B"),
        ("`B`", "B"),
        ("“B”。", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"$\boxed{B}$", "B"),
        (r"\(B\)", "B"),
        ("(A) or (B)", "(A) or (B)"),
        ("**A** **B**", "**A** **B**"),
        ("()", "()"),
        ("", ""),
    ],
)
def test_what_stands_around_an_answer_is_taken_off(text: str, expected: str):
    assert unwrap(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"answer": " red "}', "red"),
        ("{'Final Answer': 'red', 'why': 'x'}", "red"),
        ('```json\n{"answer": 5}\n```', "5"),
        ('{"answer": true}', "true"),
        ('{"answer": null}', '{"answer": null}'),
        ('{"answer": ["a"]}', '{"answer": ["a"]}'),
        ('{"colour": "red"}', '{"colour": "red"}'),
        ('{"answer": "a", "result": "b"}', '{"answer": "a", "result": "b"}'),
        ('{"answer": "a"} or so', '{"answer": "a"} or so'),
        ('so {"answer": "a"}', 'so {"answer": "a"}'),
        ("red", "red"),
        ("", ""),
    ],
)
def test_an_answer_in_an_object_is_taken_out(text: str, expected: str):
    assert out_of_json(AnswerText(text, tagged=True)).text == expected
