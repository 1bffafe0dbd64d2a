"""Free text: accuracy is the mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L against the gold text.

rouge-score computes them (Lin, ACL 2004, W04-1013) with our tokenizer, which keeps every script:
its own drops all but ASCII, so that no Chinese answer could score. Where the gold text is one token
long there is no bigram, and ROUGE-2 is left out of the mean. With `reward.open_ended.metric=chrf`
accuracy is sacrebleu's chrF (Popović, WMT 2015, W15-3049) of the sentence, over 100; with `judge`
it is the grade of a judge.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any

from easyvideor1.rewards.config import OpenEndedMetric, RewardConfig
from easyvideor1.rewards.judge import Grade, Request, judge_of
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.scripts import UNSPACED
from easyvideor1.schema.records import ProblemType, Sample

QUICK_PRODUCT = 4_000_000
"""Characters of answer times characters of gold text up to which ROUGE takes tens of ms."""
QUICK_CHARS = 40_000
"""Characters of both texts up to which chrF takes tens of ms."""
MAX_STEMMED_CHARS = 40
"""No English word is longer, and the stemmer recurses once per letter of "yyyy…"."""

_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")


class Tokenizer:
    """Lower-case words of all scripts; by character where they are written without spaces.

    ASCII words are stemmed (Porter).
    """

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self._stem = lru_cache(maxsize=65_536)(PorterStemmer().stem)

    def tokenize(self, text: str) -> list[str]:
        """Tokens of `text`; the method that rouge-score calls."""
        return [
            self._stem(word) if word.isascii() and 3 < len(word) <= MAX_STEMMED_CHARS else word
            for word in _TOKEN.findall(unicodedata.normalize("NFKC", text).lower())
        ]


@register_task(ProblemType.open_ended)
class OpenEnded(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give the final answer in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        if not answer.text:
            raise NoAnswer("empty")
        return answer.text

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        metric = chrf if config.open_ended.metric == OpenEndedMetric.chrf else rouge
        return metric(value, _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        num_chars, num_gold = len(text), len(str(sample.answer))
        if config.open_ended.metric == OpenEndedMetric.chrf:
            return num_chars + num_gold <= QUICK_CHARS
        return num_chars * num_gold <= QUICK_PRODUCT

    def check(self, config: RewardConfig) -> None:
        if config.open_ended.metric is OpenEndedMetric.judge:
            judge_of(config.judge)

    def needs_judge(self, sample: Sample, config: RewardConfig) -> bool:
        return config.open_ended.metric == OpenEndedMetric.judge

    def judge_request(self, value: str, sample: Sample, config: RewardConfig) -> Request:
        return Grade(sample.problem, _gold(sample), value)

    def load(self) -> None:
        _tools()
        _chrf()


def rouge(text: str, gold: str) -> float:
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L, 0 to 1; equal texts score 1 in every script."""
    tokenizer, scorer = _tools()
    num_gold = len(tokenizer.tokenize(gold))
    if num_gold == 0:  # nothing but signs
        return float(text.split() == gold.split())
    scores = scorer.score(gold, text)
    kinds = ("rouge1", "rouge2", "rougeL") if num_gold > 1 else ("rouge1", "rougeL")
    return min(1.0, sum(float(scores[kind].fmeasure) for kind in kinds) / len(kinds))


def chrf(text: str, gold: str) -> float:
    """chrF of a text, 0 to 1: F2 of its character n-grams up to six, white space left out."""
    if text.split() == gold.split():
        return 1.0  # the library has no n-grams of a text of nothing but rare white space
    return min(1.0, max(0.0, _chrf().sentence_score(text, [gold]).score / 100))


@lru_cache(maxsize=1)
def _chrf() -> Any:
    from sacrebleu.metrics import CHRF

    return CHRF()


@lru_cache(maxsize=1)
def _tools() -> tuple[Tokenizer, Any]:
    """Tokenizer and scorer, made on first use: their imports take over a second."""
    from rouge_score.rouge_scorer import RougeScorer

    tokenizer = Tokenizer()
    return tokenizer, RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=tokenizer)


def _gold(sample: Sample) -> str:
    value = sample.answer
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if not text:
        raise GoldError(sample, "a text to compare with")
    return text
