"""When and where something is: accuracy is half the IoU of the time and half that of the boxes.

The first half is temporal grounding's, the second tracking's: the mean IoU of the boxes over the
seconds that the answer or the gold track has. A box outside the time that the answer itself states
counts all the same.
"""

import json
from typing import Any

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.coordinates import in_answer_space, space_in_words
from easyvideor1.rewards.intervals import (
    Interval,
    checked_intervals,
    intervals_as_json,
    intervals_in_json,
    intervals_of,
    union_iou,
)
from easyvideor1.rewards.json_in_text import find_json, is_json_object
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.tracks import Track, track_as_json, track_in_json, track_iou, track_of
from easyvideor1.schema.records import Answer, ProblemType, Sample

Tube = tuple[list[Interval], Track]
"""Time and boxes."""


@register_task(ProblemType.spatial_temporal_grounding)
class SpatialTemporalGrounding(Task[dict[str, Any]]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        words = space_in_words(sample, config.grounding)
        return (
            f"Reason briefly, then give start and end in seconds and a box {words} for each second "
            'as <answer>{"time": [start, end], "boxes": {"0": [x1, y1, x2, y2], ...}}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> dict[str, Any]:
        found = [
            tube for value in find_json(answer.searched) if (tube := _tube(value.value)) is not None
        ]
        if not found:
            raise NoAnswer("no object with time and boxes")
        if any(tube != found[0] for tube in found):
            raise NoAnswer("several answers")
        return _as_json(found[0])

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_json_object(answer.text, "time", "boxes")

    def score(self, value: dict[str, Any], sample: Sample, config: RewardConfig) -> float:
        intervals, track = _gold(sample, config)
        in_time = union_iou(intervals_of(value["time"]), intervals)
        in_space = track_iou(track_of(value["boxes"]), track, config.grounding.mean)
        return 0.5 * in_time + 0.5 * in_space

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return json.dumps(_as_json(_gold(sample, config)))


def _tube(value: Any) -> Tube | None:
    """Time and boxes of an object that has both; its boxes may be none.

    Raises:
        NoAnswer: one of them is malformed.
    """
    if not isinstance(value, dict):
        return None
    boxes = next((value[key] for key in value if key.strip().lower() == "boxes"), None)
    intervals, track = intervals_in_json(value), track_in_json(boxes)
    return None if not intervals or track is None else (checked_intervals(intervals), track)


def _as_json(tube: Tube) -> dict[str, Any]:
    return {"time": intervals_as_json(tube[0]), "boxes": track_as_json(tube[1])}


def _gold(sample: Sample, config: RewardConfig) -> Tube:
    """The gold time, and the gold boxes in the space of the answers."""
    tube = _gold_tube(sample.answer)
    if tube is None:
        raise GoldError(
            sample, 'time and boxes, {"time": [start, end], "boxes": {"0": [x1, y1, x2, y2], …}}'
        )
    intervals, track = tube
    boxes = in_answer_space(track.values(), sample, config.grounding)
    return intervals, dict(zip(track, boxes, strict=True))


def _gold_tube(answer: Answer) -> Tube | None:
    if isinstance(answer, str):
        values = [found.value for found in find_json(answer)]
        answer = values[0] if len(values) == 1 else None
    try:
        tube = _tube(answer)
    except NoAnswer:
        return None
    if tube is None or not tube[1]:
        return None
    has_length = all(start < end for start, end in tube[0])
    has_area = all(x1 < x2 and y1 < y2 for x1, y1, x2, y2 in tube[1].values())
    return tube if has_length and has_area else None
