"""Yes-or-no questions: accuracy 1 if the stated answer is the gold one, else 0."""

import re

from easyvideor1.rewards.reading import AnswerText, NoAnswer, stated, unwrap
from easyvideor1.rewards.registry import Task, register_task
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

_WORDS = {
    "yes": True, "true": True, "correct": True, "是": True, "是的": True, "对": True, "正确": True,
    "no": False, "false": False, "incorrect": False, "否": False, "不是": False, "不对": False,
    "错": False, "错误": False,
}  # fmt: skip
_GOLD = {**_WORDS, "1": True, "0": False, "y": True, "n": False, "t": True, "f": False}
_START = re.compile(
    r"[\s*_`\"'(]*(yes|no|true|false|是的|不是|是|否|对|错)(?=[\W_]|\Z)", re.IGNORECASE
)
_AFTERTHOUGHT = re.compile(r"[\s*]*(?:and|or|/|或|and/or)\s*(?:yes|no|true|false)\b", re.IGNORECASE)


@register_task(ProblemType.boolean)
class Boolean(Task[bool]):
    def instruction(self, sample: Sample) -> str:
        return "Reason briefly, then give only yes or no in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample) -> bool:
        value = _parse(answer.text)
        if value is None:
            value = _opening(answer.text)
        return stated(answer, _parse, _parse_start) if value is None else value

    def score(self, value: bool, sample: Sample) -> float:
        return float(value == _gold(sample))

    def render_gold(self, sample: Sample) -> str:
        return "yes" if _gold(sample) else "no"


def _parse(text: str) -> bool | None:
    """A text that is nothing but yes or no in one of its words."""
    if len(text) > 100:
        return None
    return _WORDS.get(unwrap(text).casefold())


def _parse_start(text: str) -> bool | None:
    """`Yes, because …` in a statement; `no dog is seen` is not one."""
    match = _START.match(text)
    if match is None or _AFTERTHOUGHT.match(text, match.end()):
        return None
    rest = text[match.end() :].lstrip("*_`\"')")
    return (
        _WORDS[match.group(1).casefold()]
        if not rest
        or rest[0] in ".,;:!?。，；：\n-–—"
        or re.match(r"\s+(?:because|since|as)\b", rest)
        else None
    )


def _opening(text: str) -> bool | None:
    """`Yes, the man …`: the answer opens a text that states no other one."""
    value = _parse_start(text)
    others = {
        m.group(1).casefold()
        for m in re.finditer(r"\b(yes|no|true|false)\b(?=\s*(?:[.,;:!?]|\Z))", text, re.IGNORECASE)
    }
    return value if value is not None and all(_WORDS[word] is value for word in others) else None


def _gold(sample: Sample) -> bool:
    value = sample.answer
    if isinstance(value, bool):
        return value
    known = _GOLD.get(unwrap(str(value)).casefold())
    if known is None:
        raise UserError(f"sample {sample.id}: answer {value!r} is neither yes nor no")
    return known
