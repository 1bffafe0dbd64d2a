"""Tracks: a box for each of some seconds, read from JSON, and how well two of them agree."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from easyvideor1.rewards.boxes import (
    BOX_KEYS,
    Box,
    box_in_json,
    box_iou,
    boxes_in_json,
    checked_boxes,
)
from easyvideor1.rewards.config import GroundingMean
from easyvideor1.rewards.intervals import seconds_of
from easyvideor1.rewards.reading import NoAnswer

Track = dict[float, Box]
"""Second to box."""


def track_iou(track: Mapping[float, Box], gold: Mapping[float, Box], mean: GroundingMean) -> float:
    """Mean IoU of the boxes of the same second, 0 to 1; over which seconds, `mean` says.

    A second that one of the two tracks does not have counts 0.
    """
    common = track.keys() & gold.keys()
    match mean:
        case GroundingMean.union:
            num_seconds = len(track) + len(gold) - len(common)
        case GroundingMean.gold:
            num_seconds = len(gold)
        case GroundingMean.common_keys:
            num_seconds = len(common)
    if num_seconds == 0:
        return 0.0
    return min(1.0, sum([box_iou(track[t], gold[t]) for t in common]) / num_seconds)


MAX_TIME_CHARS = 40
MAX_FIELDS = 16
"""Of an object that has a field for its boxes; one with more is the boxes by second."""
_TIME_KEYS = ("time", "timestamp", "second", "seconds", "t")


def track_in_json(value: Any) -> Track | None:
    """The track in one of the JSON shapes that models and data sets write, else None.

    The shapes are `{"0": box, "1": box}` and `[{"time": 0, "bbox_2d": box}, …]`, each alone or as
    `boxes` of an object. Keys are times in any form: "3", "3.0" and "00:03" are the same second.

    Raises:
        NoAnswer: a second has two boxes, or a box is malformed.
    """
    if isinstance(value, dict) and len(value) <= MAX_FIELDS:
        named = [item for key, item in value.items() if _plain(key) in BOX_KEYS]
        value = named[0] if named else value
    if isinstance(value, dict):
        return _track(value.items())
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return _track((_time_in(item), item) for item in value)
    return None


def _plain(key: Any) -> str:
    return str(key).strip().lower()


def _time_in(fields: dict) -> Any:
    times = [item for key, item in fields.items() if _plain(key) in _TIME_KEYS]
    return times[0] if len(times) == 1 else None


def _track(pairs: Iterable[tuple[Any, Any]]) -> Track | None:
    track: Track = {}
    for time, item in pairs:
        is_key = type(time) is str and len(time) <= MAX_TIME_CHARS
        second = _second_of_text(time) if is_key else _second(time)
        box = box_in_json(item)
        if box is None:
            boxes = boxes_in_json(item)
            box = boxes[0] if boxes and len(boxes) == 1 else None
        if second is None or box is None:
            return None
        if track.setdefault(second, box) != box:
            raise NoAnswer(f"second {second:g} has two boxes")
    checked_boxes(track.values())
    return track


def _second(time: Any) -> float | None:
    """The second that a time field means, to the millisecond."""
    second = seconds_of(time)
    return round(second, 3) if second is not None and math.isfinite(second) else None


@lru_cache(maxsize=8192)
def _second_of_text(text: str) -> float | None:
    """Cached, as the keys of all tracks are much the same."""
    second = seconds_of(text)
    return None if second is None else round(second, 3)


def track_as_json(track: Mapping[float, Box]) -> dict[str, list[float]]:
    """A track in the shape the instruction asks for, by second."""
    return {_key(second): [*box] for second, box in track.items()}


@lru_cache(maxsize=8192)
def _key(second: float) -> str:
    return str(int(second)) if second.is_integer() else repr(second)


def track_of(value: Mapping[str, list[float]]) -> Track:
    """The track that `track_as_json` wrote."""
    return {float(second): (a, b, c, d) for second, (a, b, c, d) in value.items()}
