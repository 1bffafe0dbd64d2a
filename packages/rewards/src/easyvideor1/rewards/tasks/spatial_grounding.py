"""Where something is: accuracy is the intersection over union with the gold box.

Of several boxes, gold or answered, the best one-to-one match counts: the sum of its IoUs over the
larger number of boxes, so that boxes left out and boxes too many both cost. `boxes` says which
forms are read; the gold boxes are compared in the coordinate space of the answer.
"""

import json

from easyvideor1.rewards.boxes import (
    Box,
    boxes_in_json,
    checked_boxes,
    matched_iou,
    read_boxes,
)
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.coordinates import in_answer_space, space_in_words
from easyvideor1.rewards.json_in_text import is_json_object
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import Answer, ProblemType, Sample


@register_task(ProblemType.spatial_grounding)
class SpatialGrounding(Task[list]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        gold = _boxes_of(sample.answer)
        several = gold is not None and len(gold) > 1
        shape = "[[x1, y1, x2, y2], ...]" if several else "[x1, y1, x2, y2]"
        words = space_in_words(sample, config.grounding)
        return (
            f"Reason briefly, then give the {'boxes' if several else 'box'} {words} as "
            f'<answer>{{"boxes": {shape}}}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> list:
        return _as_json(read_boxes(answer))

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_json_object(answer.text, "boxes")

    def score(self, value: list, sample: Sample, config: RewardConfig) -> float:
        return matched_iou(boxes_in_json(value) or [], _gold(sample, config))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return json.dumps({"boxes": _as_json(_gold(sample, config))})


def _as_json(boxes: list[Box]) -> list:
    """Boxes in the shape the instruction asks for: one as a list, several as a list of lists."""
    lists = [list(box) for box in boxes]
    return lists[0] if len(lists) == 1 else lists


def _boxes_of(answer: Answer) -> list[Box] | None:
    """The boxes of a gold answer, each with an area; None where it is something else."""
    try:
        if isinstance(answer, str):
            found = read_boxes(AnswerText(answer.strip(), tagged=True))
        else:
            found = checked_boxes(boxes_in_json(answer) or [])
    except NoAnswer:
        return None
    has_area = all(x1 < x2 and y1 < y2 for x1, y1, x2, y2 in found)
    return found if found and has_area else None


def _gold(sample: Sample, config: RewardConfig) -> list[Box]:
    """The gold boxes in the space of the answers."""
    found = _boxes_of(sample.answer)
    if found is None:
        raise GoldError(sample, "a box [x1, y1, x2, y2] with x1 < x2 and y1 < y2, or a list")
    return list(in_answer_space(found, sample, config.grounding))
