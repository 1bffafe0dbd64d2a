"""One interval of a video: accuracy is the 1-D intersection over union with the gold interval.

Times are seconds from the start of the clip, as numbers, `mm:ss`, `hh:mm:ss` or "1 min 2 s"; the
interval is JSON (`{"time": [2, 6]}` and its kin) or prose ("from 2 to 6 seconds", "2 - 6"). An
interval that ends before it begins is no answer, nor are several.
"""

import math
import re
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.reading import AnswerText, NoAnswer, json_values, stated, unwrap
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import ProblemType, Sample

Interval = tuple[float, float]
"""Start and end in seconds."""


@register_task(ProblemType.temporal_grounding)
class TemporalGrounding(Task[list[float]]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        return (
            "Reason briefly, then give the start and end in seconds as "
            '<answer>{"time": [start, end]}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> list[float]:
        return list(read_interval(answer))

    def score(self, value: list[float], sample: Sample, config: RewardConfig) -> float:
        return iou((value[0], value[1]), _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        start, end = _gold(sample)
        return f'{{"time": [{start!r}, {end!r}]}}'


def iou(a: Interval, b: Interval) -> float:
    """Length of the intersection over length of the union, 0 to 1."""
    overlap = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    union = (a[1] - a[0]) + (b[1] - b[0]) - overlap
    return min(1.0, overlap / union) if union > 0 else 0.0


def read_interval(answer: AnswerText) -> Interval:
    """The one interval that an answer states: as JSON anywhere in it, in the tag, or in prose.

    Raises:
        NoAnswer: there is none, there are several, or it ends before it begins.
    """
    found = [pair for value in json_values(answer.tail) if (pair := _from_json(value))]
    if not found and answer.tagged:
        found = _from_prose(answer.text)
    if not found:
        # An untagged text may speak of other intervals before its answer.
        found = stated(answer, _from_line, _from_line)
    return _checked(found)


def _checked(found: list[Interval]) -> Interval:
    start, end = found[0]
    if any(pair != found[0] for pair in found):
        raise NoAnswer("several intervals")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise NoAnswer("time out of range")
    if end < start:
        raise NoAnswer(f"the interval ends at {end:g} s, before it begins at {start:g} s")
    return start, end


_PAIR_KEYS = ("time", "interval", "span", "segment", "timestamps", "timestamp")
_BOUND_KEYS = (("start", "end"), ("start_time", "end_time"), ("start_s", "end_s"), ("from", "to"))


def _from_json(value: Any) -> Interval | None:
    """An interval in one of the JSON shapes that models write, else None."""
    if isinstance(value, str):
        found = _from_prose(value)
        return found[0] if len(found) == 1 else None
    if isinstance(value, dict):
        fields = {str(key).strip().lower(): item for key, item in value.items()}
        for key in _PAIR_KEYS:
            if key in fields:
                return _from_json(fields[key])
        for start, end in _BOUND_KEYS:
            if start in fields and end in fields:
                return _from_json([fields[start], fields[end]])
        return None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list | dict):
        return _from_json(value[0])
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = (_time_in_json(item) for item in value)
    return None if start is None or end is None else (start, end)


def _time_in_json(value: Any) -> float | None:
    """Seconds of a JSON number or of a text in one of the time forms, else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str) and (match := _ONE_TIME.fullmatch(value.strip())):
        return _seconds(match["time"])
    return None


_PLAIN = r"\d{1,9}(?:\.\d{1,9})?"
_END = r"(?![A-Za-z])"
_CLOCK = rf"\d{{1,4}}:\d{{1,2}}(?::\d{{1,2}})?(?:\.\d{{1,9}})?(?:\s?s{_END})?"
_SPELLED = (
    rf"(?:\d{{1,4}}\s?(?:hours?|hrs?|h|小时){_END}[\s,]{{0,2}}(?:and\s)?)?"
    rf"(?:\d{{1,5}}(?:\.\d{{1,9}})?\s?(?:minutes?|mins?|m|分钟?){_END}[\s,]{{0,2}}(?:and\s)?)?"
    rf"(?:{_PLAIN}\s?(?:seconds?|secs?|s|秒){_END})?"
)
_TIME = rf"(?:{_CLOCK}|(?=\d){_SPELLED}(?<=[a-z时分钟秒])|{_PLAIN})"
_ONE_TIME = re.compile(rf"(?P<time>{_TIME})", re.IGNORECASE)
_ABOUT = r"(?:(?:about|around|approximately|at|is)\s){0,2}"
_NOT_MORE = r"(?![A-Za-z0-9_:%]|\.\d|\s?%)"
_RANGE = re.compile(
    rf"(?P<lead>\b(?:from|between|at|during|times?|interval|starts?|begins?)\s{_ABOUT})?"
    rf"(?<![A-Za-z0-9_.:-])(?P<start>{_TIME}){_NOT_MORE}\s{{0,3}}"
    rf"(?:-|–|—|−|~|～|to\b|until\b|till\b|through\b|and\b|至|到)\s{{0,3}}{_ABOUT}"
    rf"(?P<end>{_TIME}){_NOT_MORE}",
    re.IGNORECASE,
)
_BOUNDS = re.compile(
    rf"\b(?:start|begin)\w{{0,6}}(?:\stime)?[\s:=]{{0,3}}{_ABOUT}(?P<start>{_TIME}){_NOT_MORE}"
    rf"[^\n]{{0,40}}?"
    rf"\b(?:end|finish|stop)\w{{0,6}}(?:\stime)?[\s:=]{{0,3}}{_ABOUT}(?P<end>{_TIME}){_NOT_MORE}",
    re.IGNORECASE,
)
_BARE = re.compile(
    rf"(?:(?:time|interval)[\s:]{{0,2}})?{_ABOUT}(?P<start>{_PLAIN})\s{{0,3}}"
    rf"(?:-|–|—|−|~|～|to\b|and\b|,|，|至|到)\s{{0,3}}(?P<end>{_PLAIN})",
    re.IGNORECASE,
)
_UNIT = re.compile(r"([hms小分秒])[a-z时钟]*", re.IGNORECASE)


def _from_prose(text: str) -> list[Interval]:
    """All intervals that a text states beyond doubt; "10-15 people" is none."""
    if match := _BARE.fullmatch(unwrap(text[:200])):
        return [_interval(match)]
    matches = [match for match in _RANGE.finditer(text) if _is_time_range(match)]
    return [_interval(match) for match in matches or _BOUNDS.finditer(text)]


def _from_line(text: str) -> list[Interval] | None:
    return _from_prose(text) or None


def _is_time_range(match: re.Match[str]) -> bool:
    """Whether a word before it, a unit or a colon shows that two numbers are times."""
    return bool(match["lead"]) or ":" in match["end"] or _UNIT.search(match["end"]) is not None


def _interval(match: re.Match[str]) -> Interval:
    start, end = match["start"], match["end"]
    unit = _UNIT.search(end)
    if unit and re.fullmatch(_PLAIN, start):  # "2 to 3 minutes"
        start += unit[1]
    return _seconds(start), _seconds(end)


_PART = re.compile(r"(\d+(?:\.\d+)?)\s?([hms小分秒])", re.IGNORECASE)
_SECONDS_IN = {"h": 3600.0, "小": 3600.0, "m": 60.0, "分": 60.0, "s": 1.0, "秒": 1.0}


def _seconds(text: str) -> float:
    """Seconds of a text in one of the time forms.

    Raises:
        NoAnswer: a clock time with more than 59 minutes after hours, or 59 seconds.
    """
    if ":" in text:
        fields = [float(field) for field in text.rstrip("sS ").split(":")]
        if any(field >= 60 for field in fields[1:]):
            raise NoAnswer(f"{text!r} is no time")
        return sum(value * 60.0**power for power, value in enumerate(reversed(fields)))
    parts = _PART.findall(text)
    if not parts:
        return float(text)
    return sum(float(number) * _SECONDS_IN[unit.lower()] for number, unit in parts)


def _gold(sample: Sample) -> Interval:
    value = sample.answer
    found = None
    try:
        if isinstance(value, str):
            found = read_interval(AnswerText(value, tagged=True))
        elif pair := _from_json(value):
            found = _checked([pair])
    except NoAnswer:
        pass
    if found is None or found[0] == found[1]:
        raise GoldError(sample, "one interval [start, end] in seconds with start before end")
    return found
