"""The forms in which models state a letter: what the strict and the official rules read in each."""

import pytest

from easyvideor1.evaluate.benchmark_config import ExtractorConfig, Rule
from easyvideor1.evaluate.official import LETTER_RULES, RULES, read, score_official
from easyvideor1.rewards import RewardConfig, reward
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus
from tests.evaluate.benchmark_fixtures import NAMES, config_of

TEXTS = (
    "amber", "basil", "cedar", "dune", "ember", "fjord", "grove",
    "heath", "isle", "jade", "kelp", "larch", "moss", "nettle",
)  # fmt: skip


def question(count: int = 4, gold: str = "B") -> Sample:
    return Sample(
        id="q",
        problem="Which?",
        answer=gold,
        problem_type=ProblemType.multiple_choice,
        options=TEXTS[:count],
    )


STATED = [
    "B",
    "B.",
    "B. basil",
    "(B)",
    "(B) basil",
    "**B**",
    "**B.** basil",
    "\\boxed{B}",
    "$\\boxed{\\text{B}}$",
    "<answer>B</answer>",
    "<answer>B. basil</answer>",
    "<answer>(B) basil</answer>",
    "The answer is B.",
    "The answer is **B**.",
    "The best answer is: B",
    "Final Answer: (B)",
    "final answer is: (B)",
    "Therefore, the final answer is: B",
    "basil",
    "答案是B",
    "答案：B。",
    "选B",
    "正确答案是 B。",
    "<think>It could be A or C.</think>B",
    "<think>A. amber?</think>\n<answer>B</answer>",
    "It shows two of them.\n\nB",
]


@pytest.mark.parametrize("text", STATED)
def test_the_strict_reading_takes_every_way_to_state_a_letter(text: str) -> None:
    score = reward(question(), text)
    assert (score.extracted, score.parts["accuracy"]) == ("B", 1.0)


@pytest.mark.parametrize(
    "text",
    ["", " ", "The answer is A dog", "A dog runs", "B and C", "E", "Z", "9", "I cannot tell", ")"],
)
def test_the_strict_reading_never_guesses(text: str) -> None:
    score = reward(question(), text)
    assert score.status is ScoreStatus.no_answer and score.parts["accuracy"] == 0


@pytest.mark.parametrize("count", range(5, 15))
def test_letters_reach_as_far_as_the_options(count: int) -> None:
    last, beyond = "ABCDEFGHIJKLMNO"[count - 1], "ABCDEFGHIJKLMNO"[count]
    for form in ("{}", "({})", "**{}**", "\\boxed{{{}}}", "<answer>{}</answer>", "答案是{}"):
        assert reward(question(count, last), form.format(last)).parts["accuracy"] == 1
        outside = reward(question(count, last), form.format(beyond))
        assert outside.status is ScoreStatus.no_answer


PREFIXES = ("The best answer is", "The answer is", "Answer:")

OFFICIAL = {
    Rule.first_letter: {
        "B. basil": "B",
        "(B) basil": "B",
        "**B**": "B",
        "\\boxed{B}": "B",
        "<answer>B. basil</answer>": "B",
        # The first capital of any word: what such a script takes for a letter.
        "The answer is A dog, so B": "A",
        "Because of that, C": "B",
        "答案是B": "B",
        "<think>A?</think>C": "C",
        "no": None,
        "": None,
    },
    Rule.last_letter: {
        "B. basil": "B",
        "The answer is B. It is not D.": "B",
        "The answer is a dog": "A",
        "A or B": "B",
        "答案是B": "B",
        "none": None,
    },
    Rule.before_bracket: {
        "B": "B",
        "B) basil": "B",
        "(B) basil": "B",
        "B. basil": "B. basil",
        ") B": None,
        "": None,
    },
    Rule.polished: {
        "B": "B",
        "B. basil": "B",
        "(B) basil": "B",
        "The answer is B": "T",
        "**B**": "*",
        "": None,
    },
    Rule.first_word: {"B) basil": "(b)", "B. basil": "(b.", "basil": "(basil", "": None},
    Rule.marked_letter: {
        "<answer>B</answer>": "B",
        "<answer>B: basil</answer> A: no": "B",
        "C or A": "C",
        "Answer: D": "A",
        "nothing": None,
    },
    Rule.tagged_text: {
        "<answer>B</answer>": "B",
        "<answer>B. basil</answer>": "B. basil",
        "B": "B",
        "<answer>Therefore the final answer is: B</answer>": "B",
        "": None,
    },
}


@pytest.mark.parametrize("rule", LETTER_RULES)
def test_official_rules_read_what_their_scripts_read(rule: Rule) -> None:
    config = ExtractorConfig(rule=rule, letters="ABCD", prefixes=list(PREFIXES))
    found = {text: read(text, question(), config).extracted for text in OFFICIAL[rule]}
    assert found == OFFICIAL[rule]


def test_every_rule_but_strict_has_a_function() -> None:
    assert set(RULES) == set(Rule) - {Rule.strict}


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_like_the_gold_one_is_right_by_the_benchmark_s_own_rule(name: str) -> None:
    extractor = config_of(name).extractor
    assert extractor.rule is not Rule.strict and extractor.source
    if extractor.rule in LETTER_RULES:
        (score,) = score_official([(question(), "B")], extractor, RewardConfig())
        assert score.parts["accuracy"] == 1 and score.status is ScoreStatus.ok


def test_free_answers_wait_for_a_judge() -> None:
    sample = Sample(id="f", problem="Why?", answer="It rains", problem_type=ProblemType.open_ended)
    extractor = config_of("mlvu").extractor
    (score, empty) = score_official([(sample, "Rain."), (sample, " ")], extractor, RewardConfig())
    assert score.status is ScoreStatus.unavailable and "reward.judge.base_url" in score.detail
    assert empty.status is ScoreStatus.no_answer
