"""One interval of a video: accuracy is the 1-D intersection over union with the gold interval.

Times are seconds from the start of the clip, as numbers, `mm:ss`, `hh:mm:ss` or "1 min 2 s"; the
interval is JSON (`{"time": [2, 6]}` and its kin) or prose ("from 2 to 6 seconds", "2 - 6"). An
interval that ends before it begins, and a text with several, is no answer.
"""

import math
import re
from typing import Any

from easyvideor1.rewards.reading import AnswerText, NoAnswer, json_values, unwrap
from easyvideor1.rewards.registry import Task, register_task
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample

Interval = tuple[float, float]

_PAIR_KEYS = ("time", "interval", "span", "segment", "timestamps", "timestamp")
_BOUND_KEYS = (("start", "end"), ("start_time", "end_time"), ("start_s", "end_s"), ("from", "to"))


@register_task(ProblemType.temporal_grounding)
class TemporalGrounding(Task[list[float]]):
    def instruction(self, sample: Sample) -> str:
        return (
            "Reason briefly, then give the start and end in seconds as "
            '<answer>{"time": [start, end]}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample) -> list[float]:
        return list(read_interval(answer.text))

    def score(self, value: list[float], sample: Sample) -> float:
        return iou((value[0], value[1]), _gold(sample))

    def render_gold(self, sample: Sample) -> str:
        start, end = _gold(sample)
        return f'{{"time": [{start!r}, {end!r}]}}'


def iou(a: Interval, b: Interval) -> float:
    """Length of the intersection over length of the union, 0 to 1."""
    overlap = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    union = (a[1] - a[0]) + (b[1] - b[0]) - overlap
    return overlap / union if union > 0 else 0.0


_CLOCK = r"\d{1,4}:\d{1,2}(?::\d{1,2})?(?:\.\d+)?"
_SECONDS = r"\d{1,9}(?:\.\d{1,9})?"
_SPELLED = (
    r"(?:\d{1,4}\s*(?:hours?|hrs?|h)\b[\s,]{0,2}(?:and\s)?)?"
    r"(?:\d{1,5}(?:\.\d{1,9})?\s*(?:minutes?|mins?|m)\b[\s,]{0,2}(?:and\s)?)?"
    rf"(?:{_SECONDS}\s*(?:seconds?|secs?|s)\b)?"
)
_TIME = rf"(?:{_CLOCK}(?:\s*s\b)?|(?=\d)(?:(?:{_SPELLED})(?<=[a-z])|{_SECONDS}))"
_RANGE = re.compile(
    rf"(?<![\w.:\-])(?P<start>{_TIME})\s*(?:-|–|—|−|~|～|to\b|and\b|until\b|till\b|through\b|,|，|至|到)\s*"
    rf"(?:(?:the\s)?(?:end|ends|ending)\s*(?:at|:|=)?\s*)?(?P<end>{_TIME})(?![\w:%]|\.\d)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(h|m|s)", re.IGNORECASE)
_FACTOR = {"h": 3600.0, "m": 60.0, "s": 1.0}


def read_interval(text: str) -> Interval:
    """The one interval that `text` states, in seconds.

    Raises:
        NoAnswer: there is none, there are several, or it ends before it begins.
    """
    found = [interval for value in json_values(text) if (interval := _from_json(value))]
    if not found:
        found = [(seconds(m["start"]), seconds(m["end"])) for m in _RANGE.finditer(text)]
    if not found:
        raise NoAnswer("no interval")
    if any(interval != found[0] for interval in found):
        raise NoAnswer("several intervals")
    start, end = found[0]
    if not (math.isfinite(start) and math.isfinite(end)):
        raise NoAnswer("time out of range")
    if end < start:
        raise NoAnswer(f"the interval ends at {end:g} s, before it begins at {start:g} s")
    return start, end


def _from_json(value: Any) -> Interval | None:
    """An interval in one of the JSON shapes that models write, or None."""
    if isinstance(value, dict):
        fields = {str(key).strip().lower(): item for key, item in value.items()}
        for key in _PAIR_KEYS:
            if key in fields:
                return _pair(fields[key])
        for start, end in _BOUND_KEYS:
            if start in fields and end in fields:
                return _pair([fields[start], fields[end]])
        return None
    return _pair(value)


def _pair(value: Any) -> Interval | None:
    if isinstance(value, str):
        match = _RANGE.search(value)
        return (seconds(match["start"]), seconds(match["end"])) if match else None
    if isinstance(value, dict):
        return _from_json(value) if len(value) <= 4 else None
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = (_time(item) for item in value)
    return None if start is None or end is None else (start, end)


def _time(value: Any) -> float | None:
    """Seconds of a JSON number or of a string in one of the time forms."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str) and re.fullmatch(_TIME, value.strip(), re.IGNORECASE):
        return seconds(value)
    return None


def seconds(text: str) -> float:
    """Seconds of a time as `_TIME` matches it: `62`, `62.5 s`, `1:02`, `0:01:02`, `1 min 2 s`.

    Example:
        >>> seconds("1:02"), seconds("1 min 2 s"), seconds("62")
        (62.0, 62.0, 62.0)
    """
    text = text.strip().lower()
    if ":" in text:
        total = 0.0
        for part in text.rstrip(" s").split(":"):
            total = total * 60 + float(part)
        return total
    parts = _PART.findall(text)
    if not parts:
        return float(text)
    return sum(float(number) * _FACTOR[unit] for number, unit in parts)


def _gold(sample: Sample) -> Interval:
    value = sample.answer
    try:
        found = read_interval(value) if isinstance(value, str) else _from_json(value)
    except NoAnswer:
        found = None
    if found is None or not found[0] < found[1] or not math.isfinite(found[1]):
        raise UserError(
            f"sample {sample.id}: answer {value!r} is not one interval; "
            "expected [start, end] in seconds with start before end"
        )
    return found
