"""Text to read from an image or video: accuracy is 1 - word error rate, at least 0.

The error rates are jiwer's: insertions, deletions and substitutions over the length of the gold
text; in characters where that has characters of a script without spaces. Both texts are put into
Unicode's NFKC form, quotes and emphasis around the whole are taken off, case is folded, runs of
white space become one space, or none beside a character of a script without spaces.
`reward.ocr` sets the metric, keeps case, and leaves punctuation out.
"""

import re
import unicodedata

from easyvideor1.rewards.config import OcrConfig, OcrMetric, RewardConfig
from easyvideor1.rewards.modality import shown
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.scripts import UNSPACED
from easyvideor1.schema.records import ProblemType, Sample

QUICK_CHARS = 20_000
"""Of the gold text: up to this length an error rate takes tens of ms."""


@register_task(ProblemType.ocr)
class Ocr(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        what = f"the text in the {shown(sample)}" if sample.media else "the text that is read"
        return f"Reason briefly, then give exactly {what}, in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        if not answer.text:
            raise NoAnswer("empty")
        return answer.text

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        return text_accuracy(value, _gold(sample), config.ocr)

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return _gold(sample)

    def is_quick(self, text: str, sample: Sample, config: RewardConfig) -> bool:
        return len(str(sample.answer)) <= QUICK_CHARS

    def load(self) -> None:
        text_accuracy("a", "b", OcrConfig())


def text_accuracy(text: str, gold: str, config: OcrConfig) -> float:
    """How well `text` gives `gold`, 0 to 1.

    Example:
        >>> text_accuracy("hello word", "Hello world", OcrConfig())
        0.5
    """
    plain, plain_gold = normalised(text, config), normalised(gold, config)
    if plain == plain_gold:
        return float(bool(plain) or text.split() == gold.split())
    if config.metric == OcrMetric.exact or not plain_gold:  # no punctuation left to compare
        return 0.0
    by_character = config.metric == OcrMetric.cer
    if config.metric == OcrMetric.auto:
        by_character = _UNSPACED.search(plain_gold) is not None
    return _one_minus_error_rate(plain, plain_gold, by_character)


def _one_minus_error_rate(text: str, gold: str, by_character: bool) -> float:
    length, gold_length = (
        (len(text), len(gold)) if by_character else (len(text.split()), len(gold.split()))
    )
    if length >= 2 * gold_length:  # as many insertions at least: no need to count them
        return 0.0
    from jiwer import cer, wer

    rate = cer(gold, text) if by_character else wer(gold, text)
    return max(0.0, 1.0 - float(rate))


_UNSPACED = re.compile(f"[{UNSPACED}]")
_SPACE_BESIDE = re.compile(rf"(?<=[{UNSPACED}]) | (?=[{UNSPACED}])")
_QUOTES = (
    ("```", "```"), ("**", "**"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"),
    ("「", "」"), ("«", "»"),
)  # fmt: skip


def normalised(text: str, config: OcrConfig) -> str:
    """`text` in the form in which texts are compared."""
    text = _unquoted(unicodedata.normalize("NFKC", text).strip())
    if config.ignore_case:
        text = text.casefold()
    if config.ignore_punctuation:
        text = "".join(sign for sign in text if unicodedata.category(sign)[0] != "P")
    return _SPACE_BESIDE.sub("", " ".join(text.split()))


def _unquoted(text: str) -> str:
    for left, right in _QUOTES:
        inner = text[len(left) : -len(right)]
        if inner.strip() and text.startswith(left) and text.endswith(right):
            return inner if left not in inner and right not in inner else text
    return text


def _gold(sample: Sample) -> str:
    value = sample.answer
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    text = str(value).strip() if is_text else ""
    if not text:
        raise GoldError(sample, "the text to read")
    return text
