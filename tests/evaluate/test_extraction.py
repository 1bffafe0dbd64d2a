"""The forms in which models state a letter: what the strict and the official rules read in each."""

import json
from typing import Any

import pytest

from easyvideor1.evaluate.benchmark_config import ExtractorConfig, Rule
from easyvideor1.evaluate.official import LETTER_RULES, RULES, read, score_official
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.rewards import RewardConfig, reward
from easyvideor1.schema.records import (
    Prediction,
    PredictionStatus,
    ProblemType,
    Sample,
    ScoreStatus,
)
from tests.evaluate.benchmark_fixtures import NAMES, config_of, samples_of
from tests.rewards.judge_server import scripted_server

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
    Rule.first_character: {"B": "B", "B: basil": "B", " The answer is B": "T", " ": None},
    Rule.odv_bench: {
        "B": "B",
        "b. basil": "B",
        "(B)": "B",
        "The answer is B.": "B",
        "It is a dog": "A",
        "1,000 (B)": "B",
        "F": "F",
        "": None,
    },
    Rule.videomathqa: {"B. basil": "B", "The answer is C": "C", "no": None},
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


def typed(kind: ProblemType, answer: Any, **fields: Any) -> Sample:
    return Sample(id="t", problem="?", answer=answer, problem_type=kind, **fields)


@pytest.mark.parametrize(
    ("rule", "sample", "accuracies"),
    [
        (
            Rule.vsi_bench,
            typed(ProblemType.regression, "5"),
            {
                "5": 1.0,
                "4": 0.6,
                "6": 0.6,
                "5.": 1.0,
                "5 metres": 1.0,
                "about 5": 0,
                "nan": 0,
                "": 0,
            },
        ),
        (Rule.vsi_bench, typed(ProblemType.regression, "10"), {"12": 0.6, "11": 0.9}),
        (Rule.vsi_bench, typed(ProblemType.regression, "20"), {"11": 0.1}),
        (Rule.vsi_bench, question(), {"b": 1.0, "B.": 1.0, "(B)": 0, "B basil": 1.0}),
        (
            Rule.ovo_bench,
            typed(ProblemType.numerical, 12),
            {"12": 1.0, "12 times": 1.0, "1 or 2": 1.0, "012": 0, "twelve": 0},
        ),
        (
            Rule.ovo_bench,
            typed(ProblemType.boolean, "No"),
            {"No": 1.0, "N": 1.0, "no": 0, "Not yet": 1.0, "Yes": 0, "": 0},
        ),
        (Rule.ovo_bench, question(4, "A"), {"Answer: B": 1.0, "B": 0}),
        (
            Rule.mmmu,
            question(14, "N"),
            {"N": 1.0, "(M) or (N)": 1.0, "It may be M. It is N.": 0, "A": 0, "": 0, "n": 0},
        ),
        (
            Rule.mmmu,
            typed(ProblemType.open_ended, "1,200"),
            {"1200": 1.0, "The result is 1,200 m": 1.0, "x = 1.2e3": 1.0, "120": 0, "many": 0},
        ),
        (
            Rule.tempcompass,
            typed(ProblemType.boolean, "yes", extra={"task": "yes_no"}),
            {"Yes, it is": 1.0, "No": 0, "YES": 1.0, "": 0},
        ),
        (
            Rule.tempcompass,
            question(3),
            {"B": 1.0, "B. basil": 1.0, "B)": 1.0, "A": 0, "C. cedar": 0},
        ),
        (
            Rule.tempcompass,
            typed(
                ProblemType.multiple_choice,
                "B",
                options=("Option 1: It rains.", "Option 2: It snows."),
                extra={"task": "caption_matching"},
            ),
            {"Option 2": 1.0, "2.": 1.0, "It snows.": 1.0, "(2) It snows.": 1.0, "1": 0},
        ),
        (Rule.judge, question(), {"(B) basil": 1.0, "C": 0, "A dog": 0}),
    ],
)
def test_rules_of_several_kinds_count_as_their_scripts_do(
    rule: Rule, sample: Sample, accuracies: dict[str, float]
) -> None:
    found = {text: read(text, sample, ExtractorConfig(rule=rule)) for text in accuracies}
    assert all(reading.judge is None for reading in found.values())
    assert {text: reading.accuracy for text, reading in found.items()} == pytest.approx(accuracies)


@pytest.mark.parametrize("text", ["It is the second one", "I think yes"])
def test_what_words_do_not_decide_goes_to_the_judge(text: str) -> None:
    sample = typed(ProblemType.boolean, "yes", extra={"task": "yes_no"})
    reading = read(text, sample, ExtractorConfig(rule=Rule.tempcompass))
    assert reading.judge is not None and reading.judge.answer == text


def test_a_caption_is_held_to_the_question_about_it() -> None:
    (sample,) = [s for s in samples_of("tempcompass", "release") if s.category == "captioning"]
    reading = read("A letter is opened.", sample, config_of("tempcompass").extractor)
    assert reading.judge is not None
    assert reading.judge.question.startswith("What is the woman doing")
    assert reading.judge.gold == "B. opening a letter"


def test_reasoning_is_held_to_its_steps() -> None:
    five, *pairs = samples_of("videomathqa", "release")
    extractor = config_of("videomathqa").extractor
    reading = read("Half of 48 is 24: C", five, extractor)
    assert reading.accuracy == 1 and reading.extracted == "C"
    assert reading.steps is not None and "Half of 48" in reading.steps.gold
    assert all(read("A", pair, extractor).steps is None for pair in pairs)


@pytest.mark.parametrize(
    ("answer", "official", "strict"),
    [
        # From its bottom: King, 2; wanted from its top: Ace, 2.
        ("add Ace of Hearts to pile0, remove King of Spades from pile0", 0, 1),
        ("remove King of Spades from pile0 and then add ace of hearts to pile0", 0, 1),
        ("remove 2 of Clubs from pile0, add Ace of Hearts to pile0", 0, 0),
        ("add Ace of Hearts to pile1", 0, 0),
        (
            "remove King of Spades from pile0, remove 2 of Clubs from pile0, "
            "add Ace of Hearts to pile0, add 2 of Clubs to pile0",
            1,
            0,
        ),
    ],
)
def test_cards_are_dealt_and_the_script_reads_the_pile_upside_down(
    answer: str, official: int, strict: int
) -> None:
    sample = next(s for s in samples_of("videoreasonbench", "release") if s.answer is None)
    stored = Prediction(
        fingerprint="f",
        sample_id=sample.id,
        status=PredictionStatus.ok,
        text=f"Let me see. Final Answer: {answer}",
    )
    (outcome,) = score_predictions(
        [sample],
        [stored],
        repeats=1,
        reward=RewardConfig(),
        extractor=config_of("videoreasonbench").extractor,
    )
    assert (outcome.accuracy, outcome.strictly().accuracy) == (official, strict)


@pytest.mark.parametrize(
    ("answer", "accuracy"),
    [("(a1, a2)", 1), ("a1, a2", 1), ("(a1, e5), (a2, a1)", 1), ("(a1, b1)", 0), ("none", 0)],
)
def test_cups_are_swapped_from_the_hidden_state(answer: str, accuracy: int) -> None:
    (sample,) = [s for s in samples_of("videoreasonbench", "release") if s.extra["demo"] == "cup"]
    extractor = config_of("videoreasonbench").extractor
    assert read(f"Final Answer: {answer}", sample, extractor).accuracy == accuracy
    assert read(answer, sample, extractor).extracted is None, "it does not say Final Answer"


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("[12, 31]", 1),
        ("<answer>[14, 31]</answer>", 1),
        ("It is from 0:12 to 0:31.", 1),
        ("[18, 31]", 0),
        ("[12, 30, 40, 50]", 0),
        ("at noon", 0),
    ],
)
def test_a_span_is_right_above_its_iou(text: str, accuracy: int) -> None:
    sample = next(s for s in samples_of("vcr_bench", "release") if s.answer == "[12, 31]")
    assert read(text, sample, config_of("vcr_bench").extractor).accuracy == accuracy


@pytest.mark.parametrize(
    ("text", "accuracy"),
    [
        ("[100, 50, 220, 160]", 1),
        ("At [110, 60, 230, 170].", 1),
        ("[160, 50, 280, 160]", 0),
        ("[220, 160, 100, 50]", 0),
        ("[1, 2]", 0),
    ],
)
def test_a_box_is_right_above_its_iou(text: str, accuracy: int) -> None:
    sample = next(
        s
        for s in samples_of("vcr_bench", "release")
        if s.category.endswith("Grounding") and str(s.answer).count(",") == 3
    )
    assert read(text, sample, config_of("vcr_bench").extractor).accuracy == accuracy


def test_a_tube_has_an_iou_in_time_in_space_and_of_both() -> None:
    sample = next(s for s in samples_of("stvg", "release") if "waves" in s.problem)
    box = [200, 60, 250, 150]
    said = {"time": [0.0, 2.5], "boxes": {str(second): box for second in (0, 1, 2, 9)}}
    reading = read(f"<answer>{json.dumps(said)}</answer>", sample, ExtractorConfig(rule=Rule.tube))
    assert reading.parts == {"tIoU": 0.5, "sIoU": 1.0}
    assert reading.accuracy == pytest.approx(3 / 7), "seconds 0 to 5, and 9"


# --- the judge ----------------------------------------------------------------------------------


def graded(prompt: str) -> str:
    """A judge that gives 8 to what mentions rain, 3 to the rest."""
    return json.dumps({"score": 8 if "rain" in prompt.partition("<answer-")[2] else 3})


@pytest.mark.parametrize(
    ("name", "judge_from", "expected"),
    [("mlvu", None, [0.8, 0.3]), ("mmvu", 0.5, [1.0, 0.0]), ("videoreasonbench", 0.5, [1.0, 0.0])],
)
def test_free_answers_are_scored_by_the_judge_of_the_rewards(
    name: str, judge_from: float | None, expected: list[float]
) -> None:
    extractor = config_of(name).extractor
    assert extractor.judge_from == judge_from
    sample = Sample(id="f", problem="Why?", answer="It pours", problem_type=ProblemType.open_ended)
    texts = ["Final Answer: it is rain", "Final Answer: snow"]
    with scripted_server(graded) as server:
        reward_config = RewardConfig(judge=server.config())
        scores = score_official([(sample, text) for text in texts], extractor, reward_config)
    assert [score.parts["accuracy"] for score in scores] == expected
    assert all("It pours" in prompt for prompt in server.prompts)


def test_the_judge_grades_reasoning_beside_the_letter() -> None:
    five, *_ = samples_of("videomathqa", "release")
    with scripted_server(graded) as server:
        reward_config = RewardConfig(judge=server.config())
        extractor = config_of("videomathqa").extractor
        (score,) = score_official(
            [(five, "Half of 48 is 24, like rain: C")], extractor, reward_config
        )
    assert score.parts == {"accuracy": 1.0, "steps": 0.8}


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
