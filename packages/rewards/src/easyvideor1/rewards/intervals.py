"""Intervals of time out of a text, and how well two sets of them overlap.

Times are seconds from the start of the clip, as numbers, `mm:ss`, `hh:mm:ss` or "1 min 2 s". An
interval is JSON (`{"time": [2, 6]}` and its kin) or prose ("from 2 to 6 seconds", "2 - 6"); several
are a list. One that ends before it begins makes the whole answer none.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from easyvideor1.rewards.listed import all_listed, read_listed
from easyvideor1.rewards.reading import AnswerText, NoAnswer, unwrap

Interval = tuple[float, float]
"""Start and end in seconds."""


def union_iou(a: Sequence[Interval], b: Sequence[Interval]) -> float:
    """Seconds that both sets cover over seconds that either covers, 0 to 1.

    Example:
        >>> union_iou([(0, 2), (4, 6)], [(1, 2), (4, 7)])
        0.6
    """
    a, b = _disjoint(a), _disjoint(b)
    overlap = 0.0
    i = j = 0
    while i < len(a) and j < len(b):
        overlap += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    union = _length(a) + _length(b) - overlap
    return min(1.0, overlap / union) if union > 0 else 0.0


def _disjoint(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """The same seconds in order, as intervals that do not overlap."""
    if len(intervals) == 1:
        return intervals
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


def read_intervals(answer: AnswerText) -> list[Interval]:
    """The intervals that an answer states: as JSON, in the tag, or in prose.

    Raises:
        NoAnswer: there is none, there are alternatives, or one ends before it begins.
    """
    return checked_intervals(read_listed(answer, intervals_in_json, _in_prose))


def checked_intervals(intervals: list[Interval]) -> list[Interval]:
    """`intervals`, if they are sound.

    Raises:
        NoAnswer: a time is not finite, or one ends before it begins.
    """
    for start, end in intervals:
        if not (math.isfinite(start) and math.isfinite(end)):
            raise NoAnswer("time out of range")
        if end < start:
            raise NoAnswer(f"the interval ends at {end:g} s, before it begins at {start:g} s")
    return intervals


_LIST_KEYS = (
    "time", "interval", "span", "segment", "timestamp", "timestamps", "times", "intervals", "spans",
    "segments",
)  # fmt: skip
_BOUND_KEYS = (("start", "end"), ("start_time", "end_time"), ("start_s", "end_s"), ("from", "to"))


def intervals_in_json(value: Any, depth: int = 4) -> list[Interval] | None:
    """The intervals in one of the JSON shapes that models and data sets write, else None.

    Args:
        value: the JSON value.
        depth: how many objects may stand within each other.

    Raises:
        NoAnswer: a text in it states alternatives, or a clock time is none.
    """
    if isinstance(value, str):
        return _in_prose(value)
    if isinstance(value, dict):
        if depth == 0:
            return None
        fields = {str(key).strip().lower(): item for key, item in value.items()}
        for key in _LIST_KEYS:
            if key in fields:
                return intervals_in_json(fields[key], depth - 1)
        for start, end in _BOUND_KEYS:
            if start in fields and end in fields:
                return _pair(fields[start], fields[end])
        return None
    if not isinstance(value, list):
        return None
    if len(value) == 2 and (pair := _pair(*value)):
        return pair
    intervals: list[Interval] = []
    for item in value:
        some = _item(item, depth)
        if not some:
            return None
        intervals += some
    return intervals


def _item(value: Any, depth: int) -> list[Interval] | None:
    """The interval of an item in a list of intervals."""
    if isinstance(value, list):
        return _pair(*value) if len(value) == 2 else None
    return intervals_in_json(value, depth) if isinstance(value, dict | str) else None


def _pair(start: Any, end: Any) -> list[Interval] | None:
    first, last = seconds_of(start), seconds_of(end)
    return None if first is None or last is None else [(first, last)]


def intervals_of(value: list) -> list[Interval]:
    """The intervals that `intervals_as_json` wrote."""
    pairs = value if value and isinstance(value[0], list) else [value]
    return [(start, end) for start, end in pairs]


def intervals_as_json(intervals: list[Interval]) -> list:
    """Intervals in the shape the instruction asks for: a pair, or a list of pairs."""
    pairs = [[start, end] for start, end in intervals]
    return pairs[0] if len(pairs) == 1 else pairs


def seconds_of(value: Any) -> float | None:
    """Seconds of a JSON number or of a text in one of the time forms, else None."""
    if isinstance(value, str):
        match = _ONE_TIME.fullmatch(value.strip())
        return _seconds(match["time"]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


_PLAIN = r"\d{1,9}(?:\.\d{1,30})?"
_END = r"(?![A-Za-z])"
_CLOCK = rf"\d{{1,4}}:\d{{1,2}}(?::\d{{1,2}})?(?:\.\d{{1,30}})?(?:\s?s{_END})?"
_SPELLED = (
    rf"(?:\d{{1,4}}\s?(?:hours?|hrs?|h|小时){_END}[\s,]{{0,2}}(?:and\s)?)?"
    rf"(?:\d{{1,5}}(?:\.\d{{1,9}})?\s?(?:minutes?|mins?|m|分钟?){_END}[\s,]{{0,2}}(?:and\s)?)?"
    rf"(?:{_PLAIN}\s?(?:seconds?|secs?|s|秒){_END})?"
)
_TIME = rf"(?:{_CLOCK}|(?=\d){_SPELLED}(?<=[a-z时分钟秒])|{_PLAIN})"
_ONE_TIME = re.compile(rf"(?P<time>{_TIME})", re.IGNORECASE)
_ABOUT = r"(?:(?:about|around|approximately|at|is)\s){0,2}"
_NOT_MORE = r"(?![A-Za-z0-9_:%]|\.\d|\s?%)"
_TO = r"(?:-|–|—|−|~|～|to\b|until\b|till\b|through\b|and\b|至|到)"
_RANGE = re.compile(
    rf"(?P<lead>\b(?:from|between|at|during|times?|interval|starts?|begins?)\s{_ABOUT})?"
    rf"(?<![A-Za-z0-9_.:-])(?P<start>{_TIME}){_NOT_MORE}\s{{0,3}}"
    rf"{_TO}\s{{0,3}}{_ABOUT}"
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
    rf"(?:(?:time|interval)[\s:]{{0,2}})?{_ABOUT}(?P<start>{_TIME})\s{{0,3}}"
    rf"(?:{_TO}|,|，)\s{{0,3}}(?P<end>{_TIME})",
    re.IGNORECASE,
)
_CLOCKS = re.compile(  # JSON but for the quotes that a clock time needs
    rf"\[\s{{0,3}}(?P<start>{_CLOCK})\s{{0,3}},\s{{0,3}}(?P<end>{_CLOCK})\s{{0,3}}\]"
)
_UNIT = re.compile(r"([hms小分秒])[a-z时钟]*", re.IGNORECASE)


def _in_prose(text: str) -> list[Interval] | None:
    """The intervals that a text states beyond doubt; "10-15 people" is none.

    Raises:
        NoAnswer: it states alternatives, or a time is none.
    """
    if len(text) <= 200 and (match := _BARE.fullmatch(unwrap(text))):
        return [_interval(match)]
    matches = [match for match in _RANGE.finditer(text) if _is_time_range(match)]
    matches = matches or list(_CLOCKS.finditer(text)) or list(_BOUNDS.finditer(text))
    if not matches:
        return None
    return all_listed(text, [([_interval(match)], *match.span()) for match in matches])


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
