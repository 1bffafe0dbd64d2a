"""Free text: accuracy is the mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L against the gold text.

rouge-score computes them (Lin, ACL 2004, W04-1013) with our tokenizer, which keeps every script:
its own drops all but ASCII, so that no Chinese answer could score. Where the gold text is one token
long there is no bigram, and ROUGE-2 is left out of the mean.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

QUICK_PRODUCT = 4_000_000
"""Characters of answer times characters of gold text up to which ROUGE takes tens of ms."""
MAX_STEMMED_CHARS = 40
"""No English word is longer, and the stemmer recurses once per letter of "yyyy…"."""

_BY_CHARACTER = (  # Han and kana: written without spaces
    r"\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"[{_BY_CHARACTER}]|[^\W_{_BY_CHARACTER}]+")


class Tokenizer:
    """Lower-case words of all scripts; Han and kana by character; ASCII words stemmed (Porter)."""

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
        return rouge(value, _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        return len(text) * len(str(sample.answer)) <= QUICK_PRODUCT

    def load(self) -> None:
        _tools()


def rouge(text: str, gold: str) -> float:
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L, 0 to 1; equal texts score 1 in every script."""
    tokenizer, scorer = _tools()
    num_gold = len(tokenizer.tokenize(gold))
    if num_gold == 0:  # nothing but signs
        return float(text.split() == gold.split())
    scores = scorer.score(gold, text)
    kinds = ("rouge1", "rouge2", "rougeL") if num_gold > 1 else ("rouge1", "rougeL")
    return min(1.0, sum(float(scores[kind].fmeasure) for kind in kinds) / len(kinds))


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
