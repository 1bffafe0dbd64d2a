"""Which of two responses is better: accuracy 1 if the stated label is the gold one, else 0.

Labels are response 1, response 2 and tie, in the words of LLaVA-Critic and its kin. Without a gold
label a judge decides: about a pair of responses (`{"responses": […, …]}`, or two options) it finds
the label; against a reference (`{"reference": …}`) it compares the model's own answer with it;
without either, it grades that answer.
"""

import re
import unicodedata
from enum import Enum, auto

from easyvideor1.rewards.config import PreferenceMode, RewardConfig
from easyvideor1.rewards.judge import Grade, Pair, Request, judge_of
from easyvideor1.rewards.reading import AnswerText, NoAnswer, stated, unwrap
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

MAX_LABEL_CHARS = 300
"""A label with a few words around it is shorter."""


class _Kind(Enum):
    """What decides about the answer."""

    label = auto()
    """A gold label."""
    pair = auto()
    """The label that a judge gives to a pair of responses."""
    reference = auto()
    """A judge that compares the answer with a reference."""
    grade = auto()
    """A judge that grades the answer."""


@register_task(ProblemType.preference)
class Preference(Task[str]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        if _kind(sample, config) in (_Kind.reference, _Kind.grade):
            return "Reason briefly, then give the final answer in <answer></answer>."
        first, second = ("A", "B") if sample.options else ("Response 1", "Response 2")
        return f"Reason briefly, then give only {first}, {second} or tie in <answer></answer>."

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> str:
        if _kind(sample, config) in (_Kind.label, _Kind.pair):
            label = _parse(answer.text)
            return label or stated(answer, _parse, _parse_start, _STATEMENTS)
        if not answer.text:
            raise NoAnswer("empty")
        return answer.text

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        is_text = _kind(sample, config) in (_Kind.reference, _Kind.grade)
        return is_text or _parse(answer.text) is not None

    def score(self, value: str, sample: Sample, config: RewardConfig) -> float:
        return float(value == _gold_label(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        label = _gold_label(sample)
        if label == "tie":
            return label
        return "AB"[int(label) - 1] if sample.options else f"Response {label}"

    def check_gold(self, sample: Sample, config: RewardConfig) -> None:
        if _kind(sample, config) is _Kind.label:
            _gold_label(sample)

    def check(self, config: RewardConfig) -> None:
        if config.preference.mode is PreferenceMode.judge:
            judge_of(config.judge)

    def needs_judge(self, sample: Sample, config: RewardConfig) -> bool:
        return _kind(sample, config) is not _Kind.label

    def judge_request(self, value: str, sample: Sample, config: RewardConfig) -> Request:
        kind = _kind(sample, config)
        if kind is _Kind.pair:
            return Pair(sample.problem, *_responses(sample))
        if kind is _Kind.reference:
            return Pair(sample.problem, value, _reference(sample))
        gold = "" if sample.answer is None else self.render_gold(sample, config)
        return Grade(sample.problem, gold, value)

    def score_verdict(
        self, verdict: float, value: str, sample: Sample, config: RewardConfig
    ) -> float:
        if _kind(sample, config) is not _Kind.pair:
            return verdict
        return float(value == {1.0: "1", 0.0: "2"}.get(verdict, "tie"))


def _kind(sample: Sample, config: RewardConfig) -> _Kind:
    gold, mode = sample.answer, config.preference.mode
    if mode is PreferenceMode.label:
        return _Kind.label
    if isinstance(gold, dict):
        return _Kind.pair if "responses" in gold else _Kind.reference
    if gold is None:
        return _Kind.pair if len(sample.options) == 2 else _Kind.grade
    return _Kind.grade if mode is PreferenceMode.judge else _Kind.label


def _responses(sample: Sample) -> tuple[str, str]:
    gold = sample.answer
    found = gold["responses"] if isinstance(gold, dict) else list(sample.options)
    texts = [one for one in found if isinstance(one, str) and one.strip()] if found else []
    if isinstance(found, list) and len(found) == len(texts) == 2:
        return texts[0], texts[1]
    raise GoldError(sample, 'two texts as {"responses": ["…", "…"]}')


def _reference(sample: Sample) -> str:
    found = sample.answer.get("reference") if isinstance(sample.answer, dict) else None
    if isinstance(found, str) and found.strip():
        return found
    raise GoldError(sample, 'a text as {"reference": "…"}')


def _gold_label(sample: Sample) -> str:
    value = sample.answer
    is_label = isinstance(value, str | int) and not isinstance(value, bool)
    label = _parse(str(value)) if is_label else None
    if label is None:
        raise GoldError(sample, 'a label: "Response 1", "Response 2" or "tie", 1 or 2, A or B')
    return label


# --- labels in words ----------------------------------------------------------------------------
# Names of the responses become ① and ② first, so that what is said about them has short patterns.

_NOUN = (
    r"(?:response|answer|assistant|model|option|candidate|output|reply|caption|description"
    r"|completion)"
)
_NAME = re.compile(
    rf"(?:the\s+)?(?:{_NOUN}\s*[#(\[]?\s*(?P<name>1|2|one|two|a|b|i|ii)[)\]]?(?!\w)"
    rf"|(?P<order>first|second|1st|2nd|former|latter)(?:\s+(?:{_NOUN}|one))?(?!\w)"
    r"|(?:回答|回复|答案|选项)\s*(?P<han>[12ab二]|一(?!样)))",
)
_BARE_AT_START = re.compile(
    r"\A[\s(\[*]*(?P<bare>[12ab])[)\]*]*(?=\s*(?:\Z|[.,;:!?<>=。，]|(?:is|because|since|as|wins)\b))"
)
_FIRST = {"1", "one", "a", "i", "first", "1st", "former", "一"}

_MORE = r"(?:(?:clearly|slightly|significantly|much|far|overall|the|definitely|marginally)\s+){0,3}"
_IS = rf"\s*(?:is|was|seems|appears to be|更|比较)\s*{_MORE}"
_BETTER = r"(?:better|best|preferred|preferable|superior|stronger|winner|好|优)"
_THAN = r"(?:\s+(?:than|over|to)\s+[①②])?(?:\s+overall)?"
_CHOOSE = r"(?:prefer|choose|pick|select|favou?r|go with|vote for)s?"
_BETTER_ONE = rf"(?:the\s+)?(?:better|best|preferred|winning|superior)(?:\s+(?:{_NOUN}|one))?"
_ALIKE = (
    r"(?:equally\s+\w+|equal|the same|same|tied|a tie|comparable|similar|on par"
    r"|of (?:the )?(?:equal|same|similar) quality)"
)
_BOTH = rf"(?:①\s*(?:and|&|和|与)\s*②|②\s*(?:and|&|和|与)\s*①|(?:both|the two|two)(?:\s+{_NOUN}s)?)"

_SIDE_WINS = (
    re.compile(rf"(?P<side>[①②])(?:{_IS}{_BETTER}(?:\s+(?:{_NOUN}|one))?{_THAN}|\s*wins)"),
    re.compile(rf"(?:i\s+|we\s+)?{_CHOOSE}\s+(?P<side>[①②])(?:\s+over\s+[①②])?"),
    re.compile(rf"{_BETTER_ONE}\s*(?:is|:|=)?\s*[(\[*]*(?P<side>[①②12ab])[)\]*]*(?!\w)"),
    re.compile(r"(?P<side>[①②])\s*>{1,2}\s*[①②ab]"),
    re.compile(r"(?P<side>[①②])"),
)
_SIDE_LOSES = (
    re.compile(rf"(?P<side>[①②]){_IS}(?:worse|inferior|weaker|less \w+){_THAN}"),
    re.compile(r"(?P<side>[①②])\s*<{1,2}\s*[①②ab]"),
)
_TIE = (
    re.compile(rf"(?:{_BOTH}|they|it)\s*(?:are|is)\s*(?:all\s+|both\s+)?{_ALIKE}"),
    re.compile(r"[①②]\s*={1,2}\s*[①②ab]"),
    re.compile(r"neither\s*(?:of them\s*|[①②]\s*(?:nor\s*[①②]\s*)?)?(?:is|wins)?\s*(?:better)?"),
    re.compile(rf"(?:it(?:'s| is)\s+)?(?:a\s+)?(?:tie|draw)(?!\w)|{_ALIKE}(?!\w)|no preference"),
    re.compile(r"平局|平手|(?:两个回答|两者|两个)?(?:都|质量)?(?:一样|同样|相同)好?"),
)
_GOES_ON = re.compile(r"\s*(?:\Z|[.,;:!。，；)\]*]|\b(?:because|since|as|due|in terms|for)\b)")
_TURNS = re.compile(r"[\s.,;*]*(?:and|or|but|&|/)?\s*(?:[①②12](?!\w)|not\b|only\b)")


def _parse(text: str) -> str | None:
    """The label that a short text states and nothing else."""
    if len(text) > MAX_LABEL_CHARS:
        return None
    label, rest = _label(text)
    return label if not rest.strip(" .。!*)]\"'") else None


def _parse_start(text: str) -> str | None:
    """The label at the start of a statement that goes on with a reason."""
    label, rest = _label(text[:MAX_LABEL_CHARS])
    return label if _GOES_ON.match(rest) and not _TURNS.match(rest) else None


def _label(text: str) -> tuple[str | None, str]:
    """The label at the start of a text, and what follows it."""
    text = " ".join(unicodedata.normalize("NFKC", unwrap(text)).casefold().split())
    text = _BARE_AT_START.sub(_mark, _NAME.sub(_mark, text))
    for patterns, label_of in (
        (_TIE, lambda match: "tie"),
        (_SIDE_LOSES, lambda match: "2" if _is_first(match["side"]) else "1"),
        (_SIDE_WINS, lambda match: "1" if _is_first(match["side"]) else "2"),
    ):
        for pattern in patterns:
            if match := pattern.match(text):
                return label_of(match), text[match.end() :]
    return None, text


def _mark(match: re.Match[str]) -> str:
    name = next(group for group in match.groups() if group is not None)
    return "①" if _is_first(name) else "②"


def _is_first(name: str) -> bool:
    return name == "①" or name in _FIRST


_SAID = (
    rf"(?:the\s+)?(?:{_NOUN}\s*[12ab]\b|(?:first|second)\s+{_NOUN})\s+(?:is|was)\s+"
    rf"{_MORE}(?:{_BETTER}|worse)\b",
    rf"{_CHOOSE}\s+(?:the\s+)?{_NOUN}\s*[12ab]\b",
    rf"{_BETTER_ONE}\s*(?:is|:)\s",
    rf"(?:(?:both|the two|two)\s+{_NOUN}s|{_NOUN}\s*[12ab]\s+and\s+{_NOUN}\s*[12ab])"
    rf"\s+are\s+{_ALIKE}",
)
_STATEMENTS = (
    re.compile(
        r"\b(?:verdict|judge?ment|preference|label)\s*(?:is|:)\s*([^\n]{1,200})", re.IGNORECASE
    ),
    # Looked ahead for, since the next statement may stand in the same line.
    *(re.compile(rf"\b(?=({said}[^\n]{{0,200}}))", re.IGNORECASE) for said in _SAID),
)
