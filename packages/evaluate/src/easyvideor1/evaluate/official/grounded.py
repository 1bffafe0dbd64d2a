"""Official rules of answers with times and boxes: STVG's tubes and VCR-Bench's spans and boxes."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from easyvideor1.evaluate.benchmark_config import ExtractorConfig
from easyvideor1.evaluate.official.reading import Reading, strict_or_judge, with_steps
from easyvideor1.rewards import RewardConfig, extract
from easyvideor1.rewards.boxes import box_iou
from easyvideor1.rewards.coordinates import in_answer_space
from easyvideor1.rewards.intervals import intervals_of, read_intervals, union_iou
from easyvideor1.rewards.reading import NoAnswer, read_answer
from easyvideor1.rewards.tracks import track_in_json, track_of
from easyvideor1.schema.records import Sample, ScoreStatus

GROUNDING = RewardConfig().grounding
"""Spaces of boxes that a sample does not declare."""


def tube(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """IoU in time, over the seconds with both boxes (space) and with either box (tube).

    The accuracy is that of the tube. Source: appletea233/LLaVA-ST, inference/src/metrics.py,
    eval_stvg, where a second is one of 100 frames.
    """
    found = extract(text, sample)
    if found.status is not ScoreStatus.ok:
        return Reading(parts={"tIoU": 0.0, "sIoU": 0.0})
    gold: Any = sample.answer
    intervals = intervals_of([gold["time"]])
    track = track_in_json(gold["boxes"]) or {}
    boxes = dict(zip(track, in_answer_space(track.values(), sample, GROUNDING), strict=True))
    given = track_of(found.value["boxes"])
    common = boxes.keys() & given.keys()
    either = boxes.keys() | given.keys()
    total = sum(box_iou(given[second], boxes[second]) for second in sorted(common))
    return Reading(
        extracted=found.value,
        accuracy=total / max(1, len(either)),
        parts={
            "tIoU": union_iou(intervals_of(found.value["time"]), intervals),
            "sIoU": total / max(1, len(common)),
        },
    )


def interval(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """The IoU of the one interval that is stated, as shared time over the time both span.

    Source: jiyanggao/TALL, main.py, calculate_IoU; intervals that do not meet score 0.
    """
    found = extract(text, sample)
    if found.status is not ScoreStatus.ok or len(intervals_of(found.value)) != 1:
        return Reading()
    gold: Any = sample.answer
    return Reading(
        extracted=found.value, accuracy=_hull_iou(intervals_of(found.value)[0], gold["time"])
    )


def _hull_iou(a: Sequence[float], b: Sequence[float]) -> float:
    hull = max(a[1], b[1]) - min(a[0], b[0])
    shared = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    return shared / hull if hull > 0 else 0.0


SPAN_IOU, BOX_IOU = 0.7, 0.5
"""Above which a span, and a box, is right (zhishuifeiqian/VCR-Bench, eval_code/eval.py)."""
_BOX = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


def vcr_bench(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """A gold span or box asks for an IoU above its bound; letters are read strictly.

    Other free answers go to the judge, and the reasoning of every answer too.
    """
    if not text.strip():
        return Reading()
    gold = None if sample.options else _numbers(sample.answer)
    if gold is None:
        reading = strict_or_judge(text, sample, config)
    else:
        reading = _span(text, gold) if len(gold) == 2 else _box(text, gold)
    return with_steps(reading, text, sample, "reasoning")


def _numbers(answer: Any) -> list[float] | None:
    """A gold answer that is a list of two or four numbers."""
    try:
        value = ast.literal_eval(answer) if isinstance(answer, str) else answer
    except (ValueError, SyntaxError):
        return None
    is_list = isinstance(value, list) and len(value) in (2, 4)
    return value if is_list and all(isinstance(x, int | float) for x in value) else None


def _span(text: str, gold: list[float]) -> Reading:
    try:
        spans = read_intervals(read_answer(text))
    except NoAnswer:
        return Reading()
    if len(spans) != 1:
        return Reading()
    return Reading(extracted=list(spans[0]), accuracy=float(_hull_iou(spans[0], gold) > SPAN_IOU))


def _box(text: str, gold: list[float]) -> Reading:
    found = _BOX.findall(read_answer(text).text)
    if not found:
        return Reading()
    left, top, right, bottom = map(float, found[-1])
    x1, y1, x2, y2 = gold
    has_area = left < right and top < bottom
    iou = box_iou((left, top, right, bottom), (x1, y1, x2, y2)) if has_area else 0.0
    return Reading(extracted=[left, top, right, bottom], accuracy=float(iou > BOX_IOU))
