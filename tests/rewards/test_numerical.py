import pytest

from easyvideor1.rewards import GoldError, extract, render_gold, reward
from easyvideor1.rewards.numbers import Number, parse_number
from easyvideor1.rewards.reading import NoAnswer
from easyvideor1.schema.records import Answer, ProblemType, Sample


def question(answer: Answer = 5) -> Sample:
    return Sample(id="q1", problem="How many?", answer=answer, problem_type=ProblemType.numerical)


def accuracy(text: str, gold: Answer) -> float:
    return reward(question(gold), text).parts["accuracy"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.", 5),
        ("+5", 5),
        ("5.50", 5.5),
        (".5", 0.5),
        ("1,234", 1234),
        ("1,234,567.8", 1234567.8),
        ("12,34,567", 1234567),
        ("1\u202f234\u202f567", 1234567),
        (r"1{,}234", 1234),
        ("-3", -3),
        ("- 3", -3),
        ("−3", -3),
        ("–3", -3),
        ("minus three", -3),
        ("-$5.50", -5.5),
        ("$5", 5),
        ("1e3", 1000),
        ("1.5E-3", 0.0015),
        ("1/2", 0.5),
        ("-1/2", -0.5),
        ("2 1/2", 2.5),
        ("-2 1/2", -2.5),
        ("2½", 2.5),
        ("¾", 0.75),
        (r"\frac{1}{2}", 0.5),
        (r"$\frac{3}{4}$", 0.75),
        (r"\boxed{7}", 7),
        ("**7**", 7),
        ("１２", 12),
        ("x = 5", 5),
        ("5 + 7 = 12", 12),
        ("3 metres", 3),
        ("3m", 3),
        ("12 m2", 12),
        ("60 km/h", 60),
        ("5th", 5),
        ("about 3 people", 3),
        ("There are 5 cars.", 5),
        ("共3个", 3),
        ("3万", 30_000),
        ("3 million", 3_000_000),
        ("2.5 thousand", 2500),
        ("5k", 5000),
        ("two dozen", 24),
        ("two hundred", 200),
        ("one hundred and five", 105),
        ("Twenty-five cars.", 25),
        ("two point five", 2.5),
        ("a dozen", 12),
        ("a dozen eggs", 12),
        ("half a dozen", 6),
        ("half a million", 500_000),
        ("half a million people", 500_000),
        ("a million", 1_000_000),
        ("about a hundred people", 100),
        ("a hundred and five", 105),
        ("one hundred million", 100_000_000),
        ("half", 0.5),
        ("One half.", 0.5),
        ("two thirds", 2 / 3),
        ("one-third", 1 / 3),
        ("three and two fifths", 3.4),
        ("two and a half", 2.5),
        ("two and a half million", 2_500_000),
        ("about two and a half hours", 2.5),
        ("minus two and a half", -2.5),
        ("5 lakh", 500_000),
        ("1×10³", 1000),
        ("1.5 × 10^3", 1500),
        ("1.5 x 10^3 m", 1500),
        (r"$1.5 \times 10^{-3}$", 0.0015),
        ("2·10⁶", 2_000_000),
        ("3*10**5", 300_000),
        ("10^3", 1000),
        ("10³ people", 1000),
        ("-10^3", -1000),
        ("12 m²", 12),
        ("12m²", 12),
        ("12 m^2", 12),
        (r"$9.8\ \text{m/s}^{2}$", 9.8),
        ("9.8 m·s⁻²", 9.8),
        ("1.234,5", 1234.5),
        ("1.234.567", 1_234_567),
        ("1.234.567,89 €", 1234567.89),
        ("12,5 %", 12.5),
        ("3,50 €", 3.5),
        ("1'234'567.5", 1234567.5),
        ("1.234", 1.234),
        ("vingt et un", 21),
        ("Fünfundzwanzig", 25),
        ("doscientos", 200),
        ("ventuno", 21),
        ("vinte e um", 21),
        ("vijfentwintig", 25),
        ("二十五", 25),
        ("十", 10),
        ("三百零五", 305),
        ("三千五百", 3500),
        ("两万五千", 25_000),
        ("三千万", 30_000_000),
        ("一亿零三万", 100_030_000),
        ("二〇二四", 2024),
        ("一共有十二只狗", 12),
        ("两个", 2),
        ("3千万", 30_000_000),
        ("٣", 3),
        ("zero", 0),
    ],
)
def test_a_number_is_read_in_many_forms(text: str, value: float):
    assert parse_number(text).value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "", "no idea", "NaN", "inf", "1e999", "9" * 400, "H264", "3-5", "3 to 5", "3 or 4", "5, 6",
        "1,2,3", "12,34", "1.2.3", "3..5", "2023/05", "2023/05/01", "1/0", "3:45", "9**9**9",
        "2^10", "2¹⁰", "3²", "10^10^2", "5*10^3*2", "x10^2", "10^400", "10^-",
        r"\sqrt{4}", "2π", "3x", "1e99999999999999999999", "±3", "> 5", "at least 5",
        "more than 5", "not 5", "no one", "3 quarters", "three quarters", "a third", "a quarter",
        "hundreds of people", "several hundred", "a few thousand", "dozens", "two hundredths",
        "half of the cars", "nineteen eighty-four", "one or two", "seize", "once", "null",
        "三五", "三万五", "三百五", "一二三", "万", "一个穿红衣服的男人在跑步", "12,5", "12,5 kg",
        "1.2.345", "1,234.567,8", "1'23", "1 234 567", "3x^2", "2a²", "5+", "5 cm = 0.05 m",
        "1.234.56", "1 × 2",
        "5 people and 3 dogs", "x" * 501 + " 5", "\ud800", "yes",
    ],
)  # fmt: skip
def test_a_text_without_one_certain_number_has_none(text: str):
    with pytest.raises(NoAnswer):
        parse_number(text)


def test_a_number_remembers_how_it_was_written():
    assert parse_number("12.50 %") == Number(12.5, 2, percent=True)
    assert parse_number("1/3") == Number(1 / 3, None)
    assert parse_number("2.5 million") == Number(2_500_000, 0)
    assert parse_number("1.25×10^-2") == Number(0.0125, 4)
    assert parse_number("1.25×10^3") == Number(1250, 0)
    assert parse_number("two thirds") == Number(2 / 3, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The answer is 5 cars because 2 are red.", 5),
        ("Answer: 12 (5 red and 7 blue)", 12),
        ("I see 3 dogs and 4 cats.\n7", 7),
        (r"3 and 4 make \boxed{7}", 7),
        ("3 and 4 make **7**", 7),
        ("There are 5 cars.", 5),
        ("<answer>I see 3 and 4, so the answer is 7.</answer>", 7),
        ("about 12.5 square metres", 12.5),
        ('<answer>{"answer": 12.5}</answer>', 12.5),
        ('{"count": 3, "answer": "12.5 m"}', 12.5),
        ('<answer>{"answer": [1, 2]}</answer>', None),
        ("In the first 10 seconds nothing is seen, so I do not know.", None),
        ("I see 3 dogs and 4 cats.", None),
        ("<answer>9**9**9</answer>", None),
        ("", None),
    ],
)
def test_a_stated_number_is_read_from_prose(text: str, value: float | None):
    extracted = extract(text, question())
    assert (extracted.value and extracted.value["value"]) == value


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        ("5", 5, True),
        ("5.0", 5, True),
        ("5", "5.0", True),
        ("five", 5, True),
        ("5.001", 5, False),
        ("1001", 1000, False),
        ("-3", 3, False),
        ("0.1", 0.1, True),
        ("0.10", 0.1, True),
        ("1/3", "0.333", True),
        ("0.33", "1/3", True),
        ("0.3", "1/3", False),
        ("3.14", 3.14159, True),
        ("3.1416", 3.14159, True),
        ("3.15", 3.14159, False),
        ("3", 3.2, False),
        ("0.00", 0.001, False),
        ("0.05", 0.048, False),
        ("50%", 0.5, True),
        ("50%", 50, True),
        ("50", "50%", True),
        ("0.5", "50%", True),
        ("50%", "50%", True),
        ("33.3%", "0.333", True),
        ("33%", "1/3", True),
        ("5%", 0.5, False),
        ("404.6", "2023/5", True),
    ],
)
def test_equal_numbers_are_right(text: str, gold: Answer, right: bool):
    assert accuracy(f"<answer>{text}</answer>", gold) == float(right)


def test_the_gold_answer_scores_one_in_every_form():
    for gold in (5, -0.125, 1e22, 1e-9, 0, "1,234.5", "50%", "3/4", "twenty-one", "3 metres"):
        assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize("gold", ["many", "", "3 to 5", True, [5], float("inf")])
def test_a_gold_answer_that_is_no_number_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected one number"):
        render_gold(question(gold))
