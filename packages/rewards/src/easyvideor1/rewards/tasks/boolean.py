"""Yes-or-no questions: accuracy 1 if the stated answer is the gold one, else 0.

"Yes", "no", "true" and "false" count where they are the answer, not wherever they occur: "there is
no dog" and "I do not know" are no answers.
"""

import re

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer, out_of_json, stated, unwrap
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

_WORDS = {
    "yes": True, "true": True, "correct": True, "是": True, "是的": True, "对": True, "正确": True,
    "no": False, "false": False, "incorrect": False, "否": False, "不是": False, "不对": False,
    "错": False, "错误": False,
}  # fmt: skip
_GOLD_WORDS = {**_WORDS, "1": True, "0": False, "y": True, "n": False, "t": True, "f": False}
MAX_WORD_CHARS = 60


@register_task(ProblemType.boolean)
class Boolean(Task[bool]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return "Reason briefly, then give only yes or no in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        answer = out_of_json(answer)
        value = _parse(answer.text)
        if value is not None:
            return value
        try:
            return stated(answer, _parse, _parse_start, (_JUDGED,))
        except NoAnswer:
            value = _opening(answer.tail)
            if value is None:
                raise
            return value

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return _parse(answer.text) is not None

    def score(self, value: bool, sample: Sample, config: RewardConfig) -> float:
        return float(value == _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return "yes" if _gold(sample) else "no"


def _parse(text: str) -> bool | None:
    """A text that is nothing but one of the words."""
    return None if len(text) > MAX_WORD_CHARS else _WORDS.get(unwrap(text).casefold())


_START = re.compile(
    r"[\s*_`\"'(]*(yes|no|true|false|是的|不是|是|否|不对|对|错)[*_`\"')]*"
    r"(?=\s*\Z|\s*[.,;:!?。，；：！\n]|\s+[-–—]\s|\s+(?:because|since|as)\b)",
    re.IGNORECASE,
)
_JUDGED = re.compile(
    r"\b(?<!if )(?<!whether )(?:it|this|that|(?:the|this)\s+(?:statement|claim|description))"
    r"\s+is\s+(true|false|correct|incorrect)\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\b(yes|no|true|false)\b(?=\s*(?:[.,;:!?]|\Z))", re.IGNORECASE)


def _parse_start(text: str) -> bool | None:
    """The word at the start of a statement that goes on: `yes, because …`, not `no dog is seen`."""
    match = _START.match(text[:200])
    return _WORDS[match[1].casefold()] if match else None


def _opening(text: str) -> bool | None:
    """The word that opens a text which nowhere says the opposite: `Yes, the man …`."""
    value = _parse_start(text)
    said = {_WORDS[match[1].casefold()] for match in _VERDICT.finditer(text)}
    return None if value is None or (not value) in said else value


def _gold(sample: Sample) -> bool:
    value = sample.answer
    known = _GOLD_WORDS.get(str(value).strip().casefold())
    if known is None or not isinstance(value, str | int):
        raise GoldError(sample, "true or false, yes or no")
    return known
