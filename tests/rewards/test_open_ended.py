import random

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from easyvideor1.rewards import GoldError, RewardConfig, extract, render_gold, reward
from easyvideor1.rewards.config import OpenEndedConfig, OpenEndedMetric
from easyvideor1.rewards.tasks.open_ended import Tokenizer, chrf, rouge
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer) -> Sample:
    return Sample(id="q1", problem="What?", answer=answer, problem_type=ProblemType.open_ended)


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("A man rides a bike.", "A man is riding his bike"),
        ("The cats were running through gardens", "a cat runs through the garden"),
        ("nothing in common here", "Zebra xylophone quartz"),
        ("one two three four", "four three two one"),
        ("the the the the", "the cat sat on the mat"),
        ("He's 25 years-old (about)", "he is 25 years old"),
    ],
)
def test_english_scores_as_rouge_score_does(text: str, gold: str):
    """Our tokenizer changes nothing where their own keeps everything."""
    kinds = ["rouge1", "rouge2", "rougeL"]
    theirs = RougeScorer(kinds, use_stemmer=True).score(gold, text)
    expected = sum(theirs[kind].fmeasure for kind in kinds) / 3
    assert rouge(text, gold) == pytest.approx(expected)


WORDS = [
    "a", "the", "man", "woman", "cat", "riding", "rides", "bikes", "running", "ran", "street",
    "streets", "he's", "25", "red", "quickly",
]  # fmt: skip


def test_random_sentences_score_as_rouge_score_does():
    rng = random.Random(0)
    kinds = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(kinds, use_stemmer=True)
    for _ in range(500):
        text, gold = (" ".join(rng.choices(WORDS, k=rng.randint(2, 25))) for _ in range(2))
        theirs = scorer.score(gold, text)
        expected = sum(theirs[kind].fmeasure for kind in kinds) / 3
        assert rouge(text, gold) == pytest.approx(expected)


def test_chrf_is_sacrebleus():
    rng = random.Random(0)
    for _ in range(300):
        text, gold = (" ".join(rng.choices(WORDS, k=rng.randint(1, 20))) for _ in range(2))
        expected = sacrebleu.sentence_chrf(text, [gold]).score / 100
        assert chrf(text, gold) == pytest.approx(expected)
    assert chrf("男人跑步", "女人跑步") == pytest.approx(
        sacrebleu.sentence_chrf("男人跑步", ["女人跑步"]).score / 100
    )
    assert chrf("xyz", "A man") == 0.0


def test_chrf_is_chosen_by_a_setting():
    config = RewardConfig(open_ended=OpenEndedConfig(metric=OpenEndedMetric.chrf))
    sample = question("A man rides a bike.")
    accuracy = reward(sample, "<answer>A man rides.</answer>", config).parts["accuracy"]
    assert accuracy == chrf("A man rides.", "A man rides a bike.")
    assert accuracy != reward(sample, "<answer>A man rides.</answer>").parts["accuracy"]


def test_the_mean_is_the_one_worked_out_by_hand():
    # Unigrams 2 of 3 and 2 of 4, bigrams 1 of 2 and 1 of 3, longest common subsequence 2.
    by_hand = (2 * 2 / 7 + 2 * 1 / 5 + 2 * 2 / 7) / 3
    assert rouge("red car stops", "the red car went") == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "text",
    [
        "A man rides a bike.", "dog", "一个男人骑着自行车穿过街道和公园", "男", "彼は走る。",
        "강아지가 공원에서 뛰어요", "Собака бежит", "मेरा कुत्ता", "สุนัขวิ่ง", "👍", "3.5", "!?",
        "ﬁne ＡＢＣ",
    ],
)  # fmt: skip
def test_equal_texts_score_one_in_every_script(text: str):
    assert rouge(text, text) == 1.0
    assert chrf(text, text) == 1.0


def test_chinese_is_compared_by_character():
    assert Tokenizer().tokenize("我有2只dogs。") == ["我", "有", "2", "只", "dog"]
    assert rouge("男人跑步", "女人跑步") == pytest.approx((3 / 4 + 2 / 3 + 3 / 4) / 3)
    assert rouge("狗", "男人跑步") == 0.0


def test_disjoint_texts_score_zero():
    assert rouge("Zebra xylophone quartz.", "A man rides a bike.") == 0.0
    assert rouge("?", "A man") == 0.0
    assert rouge("👍", "👎") == 0.0
    assert rouge("a dog", "👍") == 0.0


def test_a_gold_answer_of_one_word_needs_no_bigram():
    assert rouge("dog", "Dog.") == 1.0
    assert rouge("a dog", "dog") == pytest.approx(2 / 3)


def test_long_runs_of_one_letter_do_not_break_the_stemmer():
    assert rouge("y" * 50_000, "A man rides a bike.") == 0.0


def test_without_a_tag_the_text_after_thinking_is_the_answer():
    sample = question("A man rides a bike.")
    score = reward(sample, "<think>Is it a horse?</think> A man rides a bike.")
    assert score.parts == {"accuracy": 1.0, "format": 0.0}


@pytest.mark.parametrize("text", ["", "  \n", "<answer></answer>", "<think>A man"])
def test_an_empty_text_is_no_answer(text: str):
    assert extract(text, question("A man")).status is ScoreStatus.no_answer


@pytest.mark.parametrize("gold", ["", "  ", ["a", "b"], {"text": "a"}])
def test_a_gold_answer_that_is_no_text_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected a text"):
        render_gold(question(gold))
