import random

import jiwer
import pytest

from easyvideor1.rewards import GoldError, RewardConfig, extract, render_gold, reward
from easyvideor1.rewards.config import OcrConfig, OcrMetric
from easyvideor1.rewards.tasks.ocr import normalised, text_accuracy
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer = "hello world") -> Sample:
    return Sample(id="q1", problem="What does it say?", answer=answer, problem_type=ProblemType.ocr)


def accuracy(text: str, gold: str, **settings: object) -> float:
    if "metric" in settings:
        settings["metric"] = OcrMetric(settings["metric"])
    return text_accuracy(text, gold, OcrConfig(**settings))


@pytest.mark.parametrize(
    ("text", "gold", "expected"),
    [
        ("hello world", "hello world", 1),
        ("hello word", "hello world", 0.5),
        ("hello", "hello world", 0.5),
        ("hello big world", "hello world", 0.5),
        ("HELLO World", "hello world", 1),
        ("hello\n  world ", "hello world", 1),
        ("a b c d e f", "hello world", 0),
        ("zebra", "hello", 0),
        ("ＥＸＩＴ", "EXIT", 1),
        ("ﬁre exit", "fire exit", 1),
        ('"EXIT"', "EXIT", 1),
        ("“EXIT”", "EXIT", 1),
        ("`EXIT`", "**EXIT**", 1),
        ("EXIT", '"EXIT"', 1),
        ("exit.", "exit", 0),
        ("Straße", "STRASSE", 1),
        ("你好世间", "你好世界", 0.75),
        ("你 好\n世 界", "你好世界", 1),
        ("你好 world", "你好world", 1),
        ("สวัสดี", "สวัสดี", 1),
        ("こんにちは", "こんにちわ", 0.8),
        ("안녕 세계", "안녕 세상", 0.5),
        ("你好你好你好你好", "你好", 0),
        ("7", "7", 1),
        ("?", "!", 0),
    ],
)
def test_by_default_words_count_and_characters_in_scripts_without_spaces(text, gold, expected):
    assert accuracy(text, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "text", "gold", "expected"),
    [
        ({"metric": "cer"}, "hello word", "hello world", 10 / 11),
        ({"metric": "cer"}, "exit.", "exit", 0.75),
        ({"metric": "wer"}, "你好世间", "你好世界", 0),
        ({"metric": "exact"}, "hello word", "hello world", 0),
        ({"metric": "exact"}, "Hello  World", "hello world", 1),
        ({"ignore_case": False}, "Hello world", "hello world", 0.5),
        ({"ignore_case": False, "metric": "exact"}, "Hello", "hello", 0),
        ({"ignore_punctuation": True}, "Exit!", "exit", 1),
        ({"ignore_punctuation": True}, "你好，世界。", "你好世界", 1),
        ({"ignore_punctuation": True}, "?!", "?!", 1),
        ({"ignore_punctuation": True}, "?", "!", 0),
        ({"ignore_punctuation": True}, "?", "exit", 0),
        ({"ignore_punctuation": True}, "exit", "?", 0),
    ],
)
def test_settings_choose_what_counts(settings: dict, text: str, gold: str, expected: float):
    assert accuracy(text, gold, **settings) == pytest.approx(expected)


WORDS = ["exit", "EXIT", "the", "a", "No", "entry!", "25", "km/h", "über", "été", "-", "…"]
SIGNS = "出口入停车场一二三abc 12，。"


def test_error_rates_are_jiwers():
    rng = random.Random(0)
    for _ in range(300):
        gold = " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 25)))
        kept = [word for word in gold.split() if rng.random() < 0.8] or ["exit"]
        for answer in (text, " ".join(kept)):
            a, b = (normalised(t, OcrConfig()) for t in (answer, gold))
            assert accuracy(answer, gold) == pytest.approx(max(0, 1 - jiwer.wer(b, a)))
            assert accuracy(answer, gold, metric="cer") == pytest.approx(
                max(0, 1 - jiwer.cer(b, a))
            )
        gold = "出" + "".join(rng.choices(SIGNS, k=rng.randint(1, 20)))
        text = "".join(rng.choices(SIGNS, k=rng.randint(1, 45)))
        a, b = (normalised(t, OcrConfig()) for t in (text, gold))
        assert accuracy(text, gold) == pytest.approx(max(0, 1 - jiwer.cer(b, a)))


def test_the_reward_is_one_minus_the_error_rate():
    score = reward(question(), "<answer>hello word</answer>")
    assert score.parts == {"accuracy": 0.5, "format": 1.0}
    exact = RewardConfig(ocr=OcrConfig(metric=OcrMetric.exact))
    assert reward(question(), "<answer>hello word</answer>", exact).parts["accuracy"] == 0
    assert reward(question(), "<think>Hm.</think>hello world").parts["accuracy"] == 1


@pytest.mark.parametrize("text", ["", " \n", "<answer></answer>", "<think>hello world"])
def test_an_empty_text_is_no_answer(text: str):
    assert extract(text, question()).status is ScoreStatus.no_answer


@pytest.mark.parametrize("gold", ["hello", "!?", "你好", 7, 1.5, '"quoted"', "'", "**", "a\x00b"])
@pytest.mark.parametrize("metric", list(OcrMetric))
@pytest.mark.parametrize("ignore_punctuation", [True, False])
def test_the_gold_answer_scores_one(gold: Answer, metric: OcrMetric, ignore_punctuation: bool):
    config = RewardConfig(ocr=OcrConfig(metric=metric, ignore_punctuation=ignore_punctuation))
    assert reward(question(gold), render_gold(question(gold), config), config).value == 1.0


@pytest.mark.parametrize("gold", ["", "  ", True, ["a"], {"text": "a"}])
def test_a_gold_answer_that_is_no_text_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected the text to read"):
        render_gold(question(gold))


@pytest.mark.timeout(30)  # a pattern in quadratic time would take far longer
def test_long_runs_of_white_space_are_read_in_linear_time():
    for text in (" " * 200_000 + "x", "a" + "\n" * 200_000 + "b", "你" + " " * 200_000 + "好"):
        assert text_accuracy(text, "Hello, world", OcrConfig()) == 0.0
