import pytest

from easyvideor1.rewards import GoldError, extract, instruction, render_gold, reward
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus


def question(*options: str, answer: str = "B") -> Sample:
    return Sample(
        id="q1",
        problem="Which?",
        answer=answer,
        problem_type=ProblemType.multiple_choice,
        options=options,
    )


COLOURS = question("Red", "Blue", "Green", "White")
ANIMALS = question("A cat", "A dog")
MANY = question(*(f"item {number}" for number in range(1, 15)), answer="M")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<answer>B</answer>", "B"),
        ("<answer>b</answer>", "B"),
        ("<answer> B. </answer>", "B"),
        ("<answer>\nB\n</answer>", "B"),
        ("<answer>(B)</answer>", "B"),
        ("<answer>[B]</answer>", "B"),
        ("<answer>{B}</answer>", "B"),
        ("<answer>**B**</answer>", "B"),
        ('<answer>"B"</answer>', "B"),
        ("<answer>Ｂ</answer>", "B"),
        (r"<answer>\boxed{B}</answer>", "B"),
        (r"<answer>$\boxed{\text{B}}$</answer>", "B"),
        (r"<answer>\(B\)</answer>", "B"),
        ("<answer>B. Blue</answer>", "B"),
        ("<answer>B.Blue</answer>", "B"),
        ("<answer>B: Blue</answer>", "B"),
        ("<answer>B) Blue</answer>", "B"),
        ("<answer>(B) Blue</answer>", "B"),
        ("<answer>B - Blue</answer>", "B"),
        ("<answer>B Blue</answer>", "B"),
        ("<answer>b) blue</answer>", "B"),
        ("<answer>**B.** Blue</answer>", "B"),
        ("<answer>Option B</answer>", "B"),
        ("<answer>the letter B</answer>", "B"),
        ("<answer>Blue</answer>", "B"),
        ("<answer>the blue.</answer>", "B"),
        ("<answer>B. It is the sky's colour.</answer>", "B"),
        ("<answer>B, because it is blue</answer>", "B"),
        ("<answer>B\nIt is blue.</answer>", "B"),
        ("<answer>The answer is B</answer>", "B"),
        ("<Answer>B</ANSWER>", "B"),
        ('<answer>{"answer": "B"}</answer>', "B"),
        ('<answer>```json\n{"answer": "(B)"}\n```</answer>', "B"),
        ("<answer>It is B.</answer>", "B"),
        ("<answer>A</answer> Wait. <answer>B</answer>", "B"),
        ("<think>Maybe A.</think>\n<answer>B</answer>", "B"),
        ("<think><answer>A</answer></think>B", "B"),
        ("Maybe A.</think>B", "B"),
    ],
)
def test_a_letter_in_the_answer_tag_is_read(text: str, letter: str):
    assert extract(text, COLOURS).value == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("B. text", "B"),
        ("(B)", "B"),
        ("**B**", "B"),
        (r"\boxed{B}", "B"),
        (r"So it is \boxed{\text{B}}.", "B"),
        ("The car is blue, so **B**", "B"),
        ("The car is not red, so **B**", "B"),
        ("**A** is wrong, **B** is right", "B"),
        ("The answer is B.", "B"),
        ("The answer is **B**", "B"),
        ("**Answer:** B", "B"),
        ("**Final Answer**: (B)", "B"),
        ("Answer:\nB", "B"),
        ("The correct option is: B. Blue", "B"),
        ("The answer to the question is B", "B"),
        ("The answer is blue because the sky is.", "B"),
        ("The answer is A because it is red.", "A"),
        ("The answer is B, not A", "B"),
        ("The answer is A. No, the answer is B.", "B"),
        ("Therefore, the final answer is: (A)", "A"),
        ("The answer is B\nThank you for asking.", "B"),
        ("I first look at it.\nI choose option C.", "C"),
        ("Option B is correct.", "B"),
        ("A. Red - no\nB. Blue - yes\n\nB", "B"),
        ("答案是B", "B"),
        ("答案：B", "B"),
        ("我选B", "B"),
        ("选项B是正确的", "B"),
        ('{"answer": "B", "reason": "it is blue"}', "B"),
        ("The answer is most likely B.", "B"),
        ("The answer seems to be B.", "B"),
        ("The car is blue, so it is B.", "B"),
    ],
)
def test_a_letter_stated_in_prose_is_read(text: str, letter: str):
    extracted = extract(text, COLOURS)
    assert (extracted.value, extracted.format) == (letter, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer></answer>",
        "<answer>  </answer>",
        "<answer>E</answer>",
        "<answer>A, B</answer>",
        "<answer>A B</answer>",
        "<answer>A and B</answer>",
        "<answer>A/B</answer>",
        "<answer>AB</answer>",
        "<answer>Both A and B</answer>",
        "<answer>A\nB</answer>",
        "<answer>A. Red\nB. Blue</answer>",
        "<answer>A.\nNo wait, B.</answer>",
        "<answer>B. Red</answer>",
        "<answer>Blue and Red</answer>",
        "<answer>E.g. blue</answer>",
        "<answer>violet</answer>",
        "<answer>?</answer>",
        "<answer>5</answer>",
        "a dog is seen",
        "A dog is seen",
        "I think so",
        "A. Red\nB. Blue\nC. Green\nD. White",
        "The answer is A or B",
        "The answer is A, B",
        "The answer is either A or B",
        "The answer is blue or red",
        "The answer is B. Red",
        "The answer is not B",
        "The answer is not **B**",
        "I don't think the answer is B",
        "neither A nor B is correct",
        "**A** or **B**",
        "The answer is A dog",
        "<think>It must be <answer>B</answer>",
        "<answer>B</answer></think>",
        '<answer>{"answer": "A or B"}</answer>',
        '<answer>{"answer": "A", "option": "B"}</answer>',
        '<answer>{"answer": "A"} {"answer": "B"}</answer>',
        "It is A big car",
    ],
)
def test_a_text_without_one_clear_letter_is_no_answer(text: str):
    extracted = extract(text, COLOURS)
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)
    assert extracted.detail


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is A dog.", "B"),
        ("The answer is A dog…", "B"),
        ("A dog", "B"),
        ("answer: dog", "B"),
        ("I pick A dog", "B"),
        ("I pick A", "A"),
        ("I pick A or B", None),
        ("The answer is A.", "A"),
        ("The answer is A cat, not a dog", "A"),
        ("The answer is A big dog", None),
    ],
)
def test_an_article_is_no_letter(text: str, letter: str | None):
    assert extract(text, ANIMALS).value == letter


def test_the_pronoun_is_no_letter_where_i_is_an_option():
    nine = question(*(f"option {number}" for number in range(1, 10)), answer="I")
    assert extract("I think so", nine).value is None
    assert extract("The answer is I think hard to tell", nine).value is None
    assert extract("<answer>I</answer>", nine).value == "I"


def test_letters_go_as_far_as_the_options():
    assert extract("<answer>M</answer>", MANY).value == "M"
    assert extract("<answer>O</answer>", MANY).value is None
    all_letters = question(*(f"item {number}" for number in range(26)), answer="Z")
    assert extract("<answer>Z</answer>", all_letters).value == "Z"
    two = question("yes", "no", answer="A")
    assert extract("<answer>C</answer>", two).value is None
    assert extract("<answer>no</answer>", two).value == "B"


def test_without_options_any_letter_is_read():
    assert extract("<answer>Q</answer>", question(answer="Q")).value == "Q"


def test_the_longest_option_text_wins():
    prices = question("3", "3.5", "35", answer="B")
    assert extract("The answer is 3.5 because it says so", prices).value == "B"
    assert extract("The answer is 3.7", prices).value is None
    colours = question("Blue", "Blue and white")
    assert extract("The answer is blue and white stripes", colours).value == "B"


def test_options_that_share_a_text_are_told_apart_by_letter_alone():
    twins = question("red", "red", "blue")
    assert extract("<answer>red</answer>", twins).value is None
    assert extract("<answer>B. red</answer>", twins).value == "B"


def test_a_letter_beats_an_option_text_of_one_letter():
    shuffled = question("B", "C", "A")
    assert extract("<answer>B</answer>", shuffled).value == "B"


@pytest.mark.parametrize("gold", ["B", "(B)", "B.", "Blue", "blue", "B. Blue"])
def test_the_gold_answer_may_be_letter_or_text(gold: str):
    sample = question("Red", "Blue", answer=gold)
    assert render_gold(sample) == "<answer>B</answer>"
    assert reward(sample, "<answer>B</answer>").value == 1.0
    assert reward(sample, "<answer>A</answer>").parts == {"accuracy": 0.0, "format": 1.0}


@pytest.mark.parametrize("gold", ["E", "A, B", "violet", "", 3, True])
def test_a_gold_answer_that_names_no_option_is_an_error(gold: str):
    sample = question("Red", "Blue", "Green", "White", answer=gold)
    with pytest.raises(GoldError, match=r"q1: answer: got .* expected a letter from A to D"):
        reward(sample, "<answer>A</answer>")


def test_more_options_than_letters_are_an_error():
    with pytest.raises(GoldError, match="at most 26 options, not 27"):
        render_gold(question(*map(str, range(27)), answer="A"))


def test_the_instruction_asks_for_a_letter():
    assert "letter" in instruction(COLOURS)
    assert "<answer></answer>" in instruction(COLOURS)
