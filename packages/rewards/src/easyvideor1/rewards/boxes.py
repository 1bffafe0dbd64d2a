r"""Boxes out of a text, and how well they overlap.

A box is `[x1, y1, x2, y2]`, left, top, right, bottom. It is JSON (`[1, 2, 3, 4]`, `{"bbox_2d":
[…]}`, `{"boxes": […]}`, `{"x1": …}`, lists of these), two corners "(x1,y1),(x2,y2)", four numbers
in brackets, or any of these in a `<box>` tag. One whose right or bottom edge lies before its left
or top edge makes the whole answer none.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from easyvideor1.rewards.assignment import best_sum
from easyvideor1.rewards.json_in_text import find_json
from easyvideor1.rewards.listed import all_listed, read_listed
from easyvideor1.rewards.reading import AnswerText, NoAnswer, unwrap

Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""

MAX_COORDINATE = 1e9
MAX_BOXES = 100
"""In one answer about one image: to match them to gold boxes takes the third power of their number
in steps."""


def box_iou(a: Box, b: Box) -> float:
    """Area of the intersection over area of the union, 0 to 1."""
    (left, top, right, bottom), (x1, y1, x2, y2) = a, b
    # Comparisons: `min` and `max` take twice the time, and a track has many boxes.
    width = (right if right < x2 else x2) - (left if left > x1 else x1)
    height = (bottom if bottom < y2 else y2) - (top if top > y1 else y1)
    if width <= 0 or height <= 0:
        return 0.0
    overlap = width * height
    union = (right - left) * (bottom - top) + (x2 - x1) * (y2 - y1) - overlap
    return min(1.0, overlap / union)


def matched_iou(boxes: Sequence[Box], gold: Sequence[Box]) -> float:
    """Sum of the IoUs of the best one-to-one match over the larger number of boxes, 0 to 1.

    Boxes left out and boxes too many both cost.
    """
    if len(boxes) == len(gold) == 1:
        return box_iou(boxes[0], gold[0])
    if not boxes or not gold:
        return 0.0
    ious = [[box_iou(box, other) for other in gold] for box in boxes]
    return min(1.0, best_sum(ious) / max(len(boxes), len(gold)))


def read_boxes(answer: AnswerText) -> list[Box]:
    """The boxes that an answer states: as JSON, in `<box>` tags, or as coordinates in prose.

    Raises:
        NoAnswer: there is none, there are alternatives or too many, or one is malformed.
    """
    if tagged := _BOX_TAG.findall(answer.text[:MAX_TAGGED_CHARS]):
        boxes = [box for content in tagged for box in _in_box_tag(content)]
    else:
        boxes = read_listed(answer, boxes_in_json, _in_prose)
    if len(boxes) > MAX_BOXES:
        raise NoAnswer(f"more than {MAX_BOXES} boxes")
    return checked_boxes(boxes)


B = TypeVar("B", bound=Iterable[Box])


def checked_boxes(boxes: B) -> B:
    """`boxes`, if they are sound.

    Raises:
        NoAnswer: a coordinate is out of range, or an edge lies on the wrong side of its opposite.
    """
    low, high = -MAX_COORDINATE, MAX_COORDINATE
    for x1, y1, x2, y2 in boxes:
        if not (low <= x1 <= x2 <= high and low <= y1 <= y2 <= high):
            if all(low <= side <= high for side in (x1, y1, x2, y2)):
                raise NoAnswer(f"the box {x1:g}, {y1:g}, {x2:g}, {y2:g} is inverted")
            raise NoAnswer("coordinate out of range")
    return boxes


BOX_KEYS = ("bbox_2d", "bbox", "box", "boxes", "bboxes", "bounding_box", "bounding_boxes")
_EDGE_KEYS = (
    ("x1", "y1", "x2", "y2"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("left", "top", "right", "bottom"),
)


def boxes_in_json(value: Any, depth: int = 4) -> list[Box] | None:
    """The boxes in one of the JSON shapes that models and data sets write, else None.

    `box_2d` is not read: its models write top before left.

    Args:
        value: the JSON value.
        depth: how many objects may stand within each other.

    Raises:
        NoAnswer: a text in it states alternatives.
    """
    if isinstance(value, dict):
        if depth == 0:
            return None
        fields = {str(key).strip().lower(): item for key, item in value.items()}
        for key in BOX_KEYS:
            if key in fields:
                return boxes_in_json(fields[key], depth - 1)
        for edges in _EDGE_KEYS:
            if all(edge in fields for edge in edges):
                box = box_in_json([fields[edge] for edge in edges])
                return [box] if box else None
        return None
    if isinstance(value, str):
        return _in_prose(value)
    if not isinstance(value, list):
        return None
    if box := box_in_json(value):
        return [box]
    boxes: list[Box] = []
    for item in value:
        if box := box_in_json(item):
            boxes.append(box)
        elif isinstance(item, dict) and (some := boxes_in_json(item, depth)):
            boxes += some
        else:
            return None
    return boxes


_NUMERIC = (int, float)


def box_in_json(value: Any) -> Box | None:
    """A list of four numbers, or of two corners, as the one box it is."""
    if not isinstance(value, list):
        return None
    if len(value) == 2 and all(isinstance(item, list) and len(item) == 2 for item in value):
        value = [*value[0], *value[1]]
    if len(value) != 4:
        return None
    a, b, c, d = value
    n = _NUMERIC
    if type(a) in n and type(b) in n and type(c) in n and type(d) in n:
        return a, b, c, d
    return _of(value) if all(map(_is_number, value)) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return _ONE_NUMBER.fullmatch(value.strip()) is not None
    return type(value) in _NUMERIC and abs(value) <= MAX_COORDINATE


MAX_TAGGED_CHARS = 20_000
"""Of a text, where `<box>` tags are looked for."""
_BOX_TAG = re.compile(
    r"(?:<(?:bbox|box)>|<\|box_start\|>)([^<]{0,2000})(?:</(?:bbox|box)>|<\|box_end\|>)",
    re.IGNORECASE,
)
_NUMBER = r"[-+]?\d{1,9}(?:\.\d{1,30})?"
_ONE_NUMBER = re.compile(_NUMBER)
_COMMA = r"\s{0,3}[,，]\s{0,3}"
_OPEN, _CLOSE = r"[(（\[]\s{0,3}", r"\s{0,3}[)）\]]"
_CORNERS = re.compile(
    rf"{_OPEN}({_NUMBER}){_COMMA}({_NUMBER}){_CLOSE}\s{{0,3}}(?:,|，|and\b|to\b|-|–|→|至|到)?\s{{0,3}}"
    rf"{_OPEN}({_NUMBER}){_COMMA}({_NUMBER}){_CLOSE}"
)
_FOUR = re.compile(rf"{_OPEN}{_COMMA.join([f'({_NUMBER})'] * 4)}{_CLOSE}")
_EDGES = [
    re.compile(
        r"[\s,;]{1,5}".join(rf"\b{edge}\b\s{{0,2}}[=:]\s{{0,2}}({_NUMBER})" for edge in edges),
        re.IGNORECASE,
    )
    for edges in _EDGE_KEYS
]
_BARE = re.compile(rf"({_NUMBER})(?:(?:{_COMMA}|\s{{1,3}})({_NUMBER})){{3}}")


def _in_prose(text: str) -> list[Box] | None:
    """The boxes that a text states as coordinates, else None.

    Raises:
        NoAnswer: it states alternatives.
    """
    if len(text) <= 200 and _BARE.fullmatch(bare := unwrap(text)):
        return [_of(_ONE_NUMBER.findall(bare))]
    for pattern in (_CORNERS, _FOUR, *_EDGES):
        if matches := list(pattern.finditer(text)):
            return all_listed(text, [([_of(match.groups())], *match.span()) for match in matches])
    return None


def _in_box_tag(text: str) -> list[Box]:
    """The boxes in a `<box>` tag.

    Raises:
        NoAnswer: there is none.
    """
    in_json = (boxes_in_json(found.value) for found in find_json(text))
    boxes = next((boxes for boxes in in_json if boxes), None) or _in_prose(text)
    if boxes is None:
        raise NoAnswer("a box tag without a box")
    return boxes


def _of(numbers: Iterable[str | float]) -> Box:
    x1, y1, x2, y2 = map(float, numbers)
    return x1, y1, x2, y2
