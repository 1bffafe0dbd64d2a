import random
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify import LatexExtractionConfig, parse, verify

from easyvideor1.rewards import (
    GoldError,
    RewardConfig,
    extract,
    instruction,
    render_gold,
    reward,
    score_many,
)
from easyvideor1.rewards.expression_size import is_bounded
from easyvideor1.rewards.math_text import bare, is_expression, to_latex
from easyvideor1.rewards.tasks.math import Math, equal
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer = "5") -> Sample:
    return Sample(id="q1", problem="Solve.", answer=answer, problem_type=ProblemType.math)


def accuracy(gold: Answer, text: str) -> float:
    return reward(question(gold), f"<answer>{text}</answer>").parts["accuracy"]


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        # numbers
        (r"\frac{1}{2}", "0.5"), ("1/2", r"\frac{2}{4}"), ("2", r"\sqrt{4}"), (5, "5"),
        (2.5, "5/2"),
        ("0.50", "0.5"), ("0.333333", "1/3"), ("1024", "2**10"), ("1024", "2^10"), ("8", "2^(1+2)"),
        ("0.001", "1e-3"), ("0.001", "10^-3"), ("1500", r"1.5\times 10^3"), ("1500", "1.5×10³"),
        ("1234", "1,234"), ("1234", "1 234"), ("50000", r"50\,000"), ("1234567", "1{,}234{,}567"),
        ("1/3", r"0.\overline{3}"), ("1/6", r"0.1\bar{6}"), ("3/2", "1 1/2"), ("1.5", "1½"),
        ("7/2", r"3\frac{1}{2}"), ("-3/4", r"-\frac{3}{4}"), ("-3/4", "−3/4"), ("2", "two"),
        ("two thirds", "2/3"), ("120", "5!"), ("10", r"\binom{5}{2}"), ("3:4", "3/4"),
        # percent
        ("0.5", "50%"), ("0.5", r"50\%"), ("50", "50%"), ("50%", "1/2"), ("0.035", r"3.5\%"),
        ("0.5", "50 percent"),
        # roots, powers, functions, constants
        (r"\sqrt{2}", "sqrt(2)"), ("sqrt(2)", "√2"), (r"\sqrt{3+1}", "sqrt((1+2)+1)"),
        ("pi/2", r"\frac{\pi}{2}"), ("2π", r"2\pi"), ("e^2", "exp(2)"), ("ln(2)", r"\ln 2"),
        ("2", r"\log_2 4"), ("x^{8}", "x^2^3"), ("abs(x-1)", "|x-1|"), (r"\infty", "infinity"),
        # expressions
        ("(x-1)(x+2)", "x^2+x-2"), ("x^2+x-2", "x**2 + x - 2"), ("2x+1", "1+2*x"),
        (r"\sin^2 x+\cos^2 x", "1"), ("sin(x)", r"\sin x"), ("3+4i", "4i+3"), ("x²+1", "1+x^2"),
        # units
        ("5 cm", "5"), ("5", "5 cm"), ("5 m", "500 cm"), ("10 m/s", "36 km/h"), ("1 h", "60 min"),
        (r"5\text{ cm}", "5cm"), (r"3\sqrt{2}\text{ m}^2", "3√2 square meters"), ("12", "$12"),
        ("12", "12 dollars"), ("90", r"90^\circ"), ("90", "90 degrees"), ("90", "90°"),
        ("6 h", "6h"), ("2 m", "2m"), (r"9.8\ \mathrm{m/s}^2", "9.8 m/s^2"),
        # assignments, equations, inequalities
        ("5", "x=5"), ("x=5", "5"), ("x=5", "x = 5"), ("5", "y = 5"), ("y=2x+1", "y = 1 + 2x"),
        ("x>3", "3 < x"), ("x >= 3", r"x \ge 3"), ("x ≤ 3", r"x \leq 3"), ("x=5", "x = 5 cm"),
        # sets, intervals, tuples
        (r"\{1,2\}", r"\{2,1\}"), (r"\{1,2\}", "1, 2"), (r"\{1,2\}", "{2, 1}"),
        ("1,2", "x = 1 or x = 2"), ("3,-3", "±3"), ("(1,2)", "(1, 2)"), ("[1,2)", "[1, 2)"),
        (r"(-\infty,3]\cup[5,\infty)", "(-∞, 3] ∪ [5, ∞)"), ("[1,2)", r"1 \le x < 2"),
        (r"x \in [1,2)", "[1, 2)"), ("x<3", r"(-\infty, 3)"), (r"\emptyset", "∅"),
        # matrices
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "[[1, 2], [3, 4]]"),
        ([[1, 2], [3, 4]], r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
        ([[1, 2], [3, 4]], "Matrix([[1,2],[3,4]])"), ([[0.5, 1]], "[[1/2, 1]]"),
        # what is no mathematics
        ("no solution", "No solution"), (r"\text{even}", "even"), ("C", "C"),
        ("2^{100000}", "2^{100000}"),
        # around the expression
        ("7", r"\boxed{7}"), (r"$\frac{3}{4}$", "0.75."), (r"\boxed{7}", "$7$"), ("5", "**5**"),
        ("5", "The answer is $5$."), ("5", r"So the result is \(5\), as 2+3=5."), ("7", "`7`"),
        (r"\int_0^1 x dx", r"\int_0^1 x dx"),
    ],
)  # fmt: skip
def test_equal_answers_are_right(gold: Answer, text: str):
    assert accuracy(gold, text) == 1.0


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("1/2", "1/3"), ("0.33", "1/3"), ("5", "-5"), ("2.5", "9**9**9"), ("2.5", "9^{9^9}"),
        ("x=5", "y=5"), ("[1,2)", "(1,2)"), ("(1,2)", "(2, 1)"), (r"\{1,2\}", r"\{1,3\}"),
        ("5 m", "5 cm"), ("5 m", "5 s"), ("5 m", "5 m^2"), ("x+1", "x+2"), ("even", "odd"),
        ([[1, 2], [3, 4]], "[[1,2],[4,3]]"), ("2x+1", "3x+1"), ("50", "5%"), ("1000", "1,00"),
        ("1/2", r"\int_0^1 x dx"), ("55", r"\sum_{i=1}^{10} i"), ("5", "5 or 6"), ("5", "x"),
        ("x > 3", "x < 3"), ("2^{100000}", "2^{100001}"), ("5", "5, 6"), ("5", "yes"),
        ("11/2", "1 1/2"), ("1 1/2", "11/2"),
    ],
)  # fmt: skip
def test_other_answers_are_wrong(gold: Answer, text: str):
    assert accuracy(gold, text) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "", "I do not know", "The answer is unclear.", "9**9**9", "10^{10^{10}}", "(10^9)!", "1/0",
        r"\binom{100000000}{50000000}", "(" * 140 + "1" + ")" * 140, "{" * 300, "1+" * 200 + "1",
        r"\frac{", "((5!)!)!", "2^{-10^{10}}", "(x+y+z+1)^{60}", "x^{100000}", "\\", "[[1,2],[3]]",
        ":".join(["12"] * 24), "/".join(["12"] * 24), "^".join([r"\pi"] * 24), "(x+1)^{1000}",
        r"\int " * 9 + "x", r"\prod_{i=1}^{100000} i", r"\lim_{x\to 0}\frac{\sin x}{x}",
        r"\frac{d}{dx}x^2",
    ],
)  # fmt: skip
def test_what_cannot_be_read_or_computed_is_no_answer(text: str):
    extracted = extract(f"<answer>{text}</answer>", question())
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"So \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"We get $x^2$ and $x = 3$. The answer is $\frac{1}{2}$, since 2+2=4.", r"\frac{1}{2}"),
        ("The final answer is 1/2.", "1/2"),
        ("Adding both gives it.\n**1/2**", "1/2"),
        ("Adding both gives it.\n$$\\frac{1}{2}$$", r"\frac{1}{2}"),
        ("<answer>First $x=2$.\nThe answer is $(1, 2]$</answer>", "(1, 2]"),
        ("<answer>$$x = 5$$</answer>", "x = 5"),
        ("<think>\\boxed{4}</think> Hm.", None),
        ("The answer is yes", None),
        ("I get 3 and 4 here.", None),
        ("Thank you", None),
    ],
)
def test_an_expression_stated_in_prose_is_read(text: str, value: str | None):
    assert extract(text, question("9")).value == value


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("2**10", "2^{10}"),
        ("2**-1", "2^{-1}"),
        ("9**9**9", "9^{9^{9}}"),
        ("sqrt((x+1)*2)", r"\sqrt{(x+1)*2}"),
        ("x^(n+1)", "x^{n+1}"),
        ("1.5e-3", r"1.5\times 10^{-3}"),
        ("√2 + √(3)", r"\sqrt{2} + \sqrt{3}"),
        ("x²⁰", "x^{20}"),
        ("2·3", r"2\cdot 3"),
        ("pi r", r"\pi  r"),
        ("epic", "epic"),
        ("sinus", "sinus"),
        ("[[1, x], [3, 4]]", r"\begin{bmatrix}1& x \\ 3& 4\end{bmatrix}"),
        ("x >= 1", r"x \ge  1"),
        ("5 != 6", r"5 \ne  6"),
        ("5! = 120", r"5! = 120"),
        ("0.1\\overline{36}", r"\frac{135}{990}"),
        ("1 234 567", "1234567"),
        ("1 23", "1 23"),
        ("twenty-one", "21"),
        ("x", "x"),
    ],
)
def test_plain_text_becomes_latex(text: str, latex: str):
    assert to_latex(text) == latex


def test_brackets_that_mean_something_stay():
    assert bare("$(1, 2]$.") == "(1, 2]"
    assert bare(r"\boxed{\{1, 2\}}") == r"\{1, 2\}"
    assert bare(r"\boxed{1} + \boxed{2}") == r"\boxed{1} + \boxed{2}"
    assert bare("$1$ and $2$") == "$1$ and $2$"
    assert bare("5!") == "5!"


def test_prose_and_depth_are_no_expressions():
    assert is_expression("5 square meters per hour")
    assert is_expression(r"x = \text{the value of it}")
    assert not is_expression("it is 5")
    assert not is_expression("one two three four five six")
    assert not is_expression("((((((((1))))))))")


@pytest.mark.parametrize(
    ("expression", "bounded"),
    [
        ("9**9", True), ("9**9**9", False), ("2**(-10**10)", False), ("factorial(1000)", True),
        ("factorial(10**6)", False), ("x**1000", True), ("x**1001", False), ("(x+1)**100", True),
        ("(x+1)**900", False), ("(x+y+z)**100", False), ("exp(exp(9))", True),
        ("exp(exp(exp(9)))", False), ("oo", True),
        ("2**(1/3)", True), ("sin(10**300)", True), ("Sum(x, (x, 1, 100))", True),
        ("Sum(x, (x, 1, 10**6))", False), ("gamma(10**5)", False), ("2**x", True),
    ],
)  # fmt: skip
def test_the_size_of_an_expression_is_known_before_it_is_computed(expression: str, bounded: bool):
    assert is_bounded(sympy.parse_expr(expression, evaluate=False)) is bounded


X, Y = sympy.symbols("x y", real=True)


def expressions() -> list[Any]:
    rng = random.Random(0)

    def grow(depth: int) -> Any:
        if depth == 0:
            return rng.choice([X, Y, sympy.pi, sympy.Integer(rng.randint(-9, 9)),
                               sympy.Rational(rng.randint(1, 9), rng.randint(2, 9))])  # fmt: skip
        a, b = grow(depth - 1), grow(depth - 1)
        return rng.choice([a + b, a - b, a * b, a**2, sympy.sqrt(1 + b**2), sympy.sin(a), 3 * a])

    return [grow(rng.randint(1, 2)) for _ in range(120)]


def test_generated_expressions_are_judged_as_math_verify_judges_them():
    config = [LatexExtractionConfig()]
    latex = [sympy.latex(expression) for expression in expressions()]
    pairs = [(a, a) for a in latex[:20]]
    pairs += [(sympy.latex(sympy.expand(e)), sympy.latex(e)) for e in expressions()[20:70]]
    pairs += list(zip(latex[:50], latex[50:100], strict=True))
    pairs += [(f"x = {a}", a) for a in latex[100:]]
    verdicts = []
    for gold, text in pairs:
        theirs = verify(parse(f"${gold}$", config), parse(f"${text}$", config))
        assert equal(text, gold) == theirs, (text, gold)
        verdicts.append(theirs)
    assert 60 < sum(verdicts) < len(verdicts)


def test_numbers_are_judged_as_math_verify_judges_them():
    config = [LatexExtractionConfig()]
    rng = random.Random(0)
    for _ in range(300):
        value = rng.choice([rng.randint(-20, 20), rng.randint(-200, 200) / 10])
        gold, text = str(value), str(rng.choice([value, value + 0.1, -value, round(value), value]))
        theirs = verify(parse(f"${gold}$", config), parse(f"${text}$", config))
        assert equal(text, gold) == theirs, (text, gold)


def test_answers_that_are_equal_at_sight_need_no_worker():
    task, config = Math(), RewardConfig()
    for gold, text in [("5", "5"), ("5", "6"), ("0.5", "0.50"), (r"\frac{1}{2}", r"\frac{1}{2} ")]:
        assert task.is_quick(f"<answer>{text}</answer>", question(gold), config)
    for gold, text in [("5", "x=5"), (r"\frac{1}{2}", "0.5"), ("5", "9**9**9")]:
        assert not task.is_quick(f"<answer>{text}</answer>", question(gold), config)


def test_a_batch_with_hostile_answers_is_scored():
    slow = (
        r"<answer>\int_0^\infty \frac{\sin x}{x} \frac{\sin 2x}{x} \cos^9(x^2+\sqrt{x}) dx</answer>"
    )
    items = [
        (question(), "<answer>x = 5</answer>"),
        (question(), "<answer>9**9**9</answer>"),
        (question(r"\int_0^\infty e^{-x^2 + \sin^7 x} \cos(x^3+\sqrt{x}) dx"), slow),
        (question("1/2"), "<answer>0.5</answer>"),
    ]
    scores = score_many(items, RewardConfig(deadline_s=20))
    assert [score.parts["accuracy"] for score in scores] == [1.0, 0.0, 0.0, 1.0]
    assert scores[1].status is ScoreStatus.no_answer


@pytest.mark.parametrize("gold", [5, 0.5, "x=5", r"$\frac{1}{2}$", "no solution", [[1, 2], [3, 4]]])
def test_the_gold_answer_scores_one_in_every_form(gold: Answer):
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize("gold", ["", "$$", True, [1, 2], {"a": 1}, []])
def test_a_gold_answer_that_is_no_expression_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected an expression in LaTeX"):
        render_gold(question(gold))


def test_the_instruction_asks_for_latex():
    assert "LaTeX" in instruction(question())


FRAGMENTS = st.sampled_from(
    ["1", "2", "x", "y", "+", "-", "*", "/", "^", "**", "(", ")", "[", "]", "{", "}", ",", "=",
     "<", ">", r"\frac", r"\sqrt", r"\pi", r"\infty", r"\cup", r"\{", r"\}", "%", "!", "|", "$",
     " ", "e", "i", r"\text{", "cm", "m/s", "²", "√", "π", "×", "or", "sqrt(", "log", "0.",
     r"\overline{3}", r"\begin{pmatrix}", r"\end{pmatrix}", "&", "\\\\", "\x00", "\ud800", "٣",
     "a_1", "1e9"]
)  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(FRAGMENTS, max_size=9).map("".join))
def test_any_text_is_scored(text: str):
    for gold in ("5", r"\frac{x}{2}", "[1,2)"):
        score = reward(question(gold), f"<answer>{text}</answer>")
        assert score.parts["accuracy"] in (0.0, 1.0)
        assert score.status in (ScoreStatus.ok, ScoreStatus.no_answer)
