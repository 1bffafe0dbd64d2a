import random

import pytest
import torch
from torchvision.ops import box_iou as torchvision_iou

from easyvideor1.rewards.boxes import box_iou, matched_iou, read_boxes
from easyvideor1.rewards.config import GroundingMean
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.tracks import track_in_json, track_iou

BOX = (1, 2, 30, 40)


def boxes_in(text: str, tagged: bool = True) -> list:
    return read_boxes(AnswerText(text, tagged=tagged))


@pytest.mark.parametrize(
    ("a", "b", "iou"),
    [
        ((0, 0, 10, 10), (0, 0, 10, 10), 1),
        ((0, 0, 100, 100), (50, 50, 150, 150), 1 / 7),
        ((0, 0, 10, 10), (10, 0, 20, 10), 0),
        ((0, 0, 10, 10), (2, 2, 4, 4), 0.04),
        ((0, 0, 10, 10), (5, 5, 5, 5), 0),
        ((-10, -10, 0, 0), (-10, -10, 10, 0), 0.5),
    ],
)
def test_iou_of_boxes_worked_out_by_hand(a, b, iou: float):
    assert box_iou(a, b) == pytest.approx(iou)
    assert box_iou(b, a) == pytest.approx(iou)


def test_iou_of_boxes_is_torchvisions():
    rng = random.Random(0)
    for scale in (1, 10, 1000):
        boxes = []
        for _ in range(40):
            x1, y1 = rng.uniform(-scale, scale), rng.uniform(-scale, scale)
            boxes.append((x1, y1, x1 + rng.uniform(0, scale), y1 + rng.uniform(0, scale)))
        theirs = torchvision_iou(*[torch.tensor(boxes, dtype=torch.float64)] * 2)
        for i, a in enumerate(boxes):
            for j, b in enumerate(boxes):
                assert box_iou(a, b) == pytest.approx(theirs[i, j].item(), abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 30, 40]",
        "[[1, 2, 30, 40]]",
        "[[1, 2], [30, 40]]",
        '["1", "2", "30", "40"]',
        '{"boxes": [1, 2, 30, 40]}',
        '{"boxes": [[1, 2, 30, 40]]}',
        '{"bbox_2d": [1, 2, 30, 40], "label": "dog"}',
        '[{"bbox_2d": [1, 2, 30, 40], "label": "dog"}]',
        '```json\n[\n\t{"bbox_2d": [1, 2, 30, 40], "label": "dog"}\n]\n```',
        "{'bbox': (1, 2, 30, 40),}",
        '{"box": {"x1": 1, "y1": 2, "x2": 30, "y2": 40}}',
        '{"x_min": 1, "y_min": 2, "x_max": 30, "y_max": 40}',
        '{"boxes": "(1,2),(30,40)"}',
        "The dog is at [1, 2, 30, 40].",
        "(1,2),(30,40)",
        "(1, 2), (30, 40)",
        "(1,2)(30,40)",
        "from (1, 2) to (30, 40)",
        "the dog (1,2),(30,40)",
        "(1, 2, 30, 40)",
        "1, 2, 30, 40",
        "1 2 30 40",
        "1,2,30,40",
        "x1=1, y1=2, x2=30, y2=40",
        "left: 1, top: 2, right: 30, bottom: 40",
        "<box>(1,2),(30,40)</box>",
        "<ref>the dog</ref><box>(1,2),(30,40)</box>",
        "<box>[[1, 2, 30, 40]]</box>",
        "<box>1 2 30 40</box>",
        "<|box_start|>(1,2),(30,40)<|box_end|>",
        "[1, 2, 30, 40] = [1, 2, 30, 40]",
    ],
)
def test_one_box_is_read_in_many_forms(text: str):
    assert boxes_in(text) == [BOX]


@pytest.mark.parametrize(
    "text",
    [
        "[[1, 2, 30, 40], [5, 6, 7, 8]]",
        '{"boxes": [[1, 2, 30, 40], [5, 6, 7, 8]]}',
        '[{"bbox_2d": [1, 2, 30, 40]}, {"bbox_2d": [5, 6, 7, 8]}]',
        '{"bbox_2d": [1, 2, 30, 40]}\n{"bbox_2d": [5, 6, 7, 8]}',
        "[1, 2, 30, 40], [5, 6, 7, 8]",
        "[1, 2, 30, 40] and [5, 6, 7, 8]",
        "(1,2),(30,40)(5,6),(7,8)",
        "<box>(1,2),(30,40)</box><box>(5,6),(7,8)</box>",
        "<ref>a</ref><box>[[1,2,30,40]]</box> <ref>b</ref><box>[[5,6,7,8]]</box>",
        "<box>[[1,2,30,40],[5,6,7,8]]</box>",
    ],
)
def test_several_boxes_are_read_where_they_are_listed(text: str):
    assert boxes_in(text) == [BOX, (5, 6, 7, 8)]


@pytest.mark.parametrize(
    "text",
    [
        "", "unknown", "[]", "[1, 2, 3]", "[1, 2, 3, 4, 5]", "[1, 2, null, 4]", "[1, 2, true, 4]",
        "[30, 2, 1, 40]", "[1, 40, 30, 2]", "(30,2),(1,40)", "[NaN, 2, 30, 40]",
        "[1e999, 2, 30, 40]", "[1, 2, 30, 1e10]", "[1, 2, 30, " + "9" * 4000 + "]",
        "[1, 2, 30, 40] or [5, 6, 7, 8]", "(1,2),(30,40) or (5,6),(7,8)", '{"boxes": {}}',
        '{"boxes": {"0": [1, 2, 30, 40]}}', '{"box_2d": [1, 2, 30, 40]}',
        '{"x": 1, "y": 2, "width": 29, "height": 38}', "<box>dog</box>", "[[1, 2, 30, 40], [5]]",
        "[[1, 2, 30, 40], [9, 6, 7, 8]]", "[[0, 0, 1, 1]" + ", [0, 0, 1, 1]" * 100 + "]",
        '{"bbox":' * 300 + "[1, 2, 30, 40]" + "}" * 300, "1 2 3 4 5", "1.2.3 4 5 6",
    ],
)  # fmt: skip
def test_a_text_without_sound_boxes_is_no_answer(text: str):
    with pytest.raises(NoAnswer):
        boxes_in(text)


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("The dog is at [1, 2, 30, 40].", [BOX]),
        ("The cat is at (5,6),(7,8).\nThe answer is (1,2),(30,40).", [BOX]),
        ("I see (5,6),(7,8) first.\n(1, 2, 30, 40)", [BOX]),
        ("The cat is at [5, 6, 7, 8], so the answer is [1, 2, 30, 40].", [BOX]),
        ("The cat is at [5, 6, 7, 8], the dog at [1, 2, 30, 40]. I see both.", None),
        ("There are 3 dogs.", None),
    ],
)
def test_boxes_are_read_from_untagged_prose(text: str, boxes: list | None):
    if boxes is None:
        with pytest.raises(NoAnswer):
            boxes_in(text, tagged=False)
    else:
        assert boxes_in(text, tagged=False) == boxes


def test_boxes_are_matched_so_that_the_sum_of_ious_is_largest():
    a, b, c = (0, 0, 10, 10), (20, 0, 30, 10), (0, 0, 10, 5)
    assert matched_iou([a], [a]) == 1
    assert matched_iou([b, a], [a, b]) == 1
    assert matched_iou([a, b], [a]) == 0.5
    assert matched_iou([a], [a, b]) == 0.5
    assert matched_iou([a, a], [a, b]) == 0.5
    assert matched_iou([c, a], [a, c]) == 1
    assert matched_iou([c], [a]) == 0.5
    assert matched_iou([], [a]) == 0


SECONDS = {float(second): (0, 0, 10, 10) for second in range(4)}


@pytest.mark.parametrize(
    ("seconds", "union", "gold", "common"),
    [
        ([0, 1, 2, 3], 1, 1, 1),
        ([1], 1 / 4, 1 / 4, 1),
        ([0, 1, 2, 3, 4, 5], 4 / 6, 1, 1),
        ([3, 4], 1 / 5, 1 / 4, 1),
        ([7], 0, 0, 0),
        ([], 0, 0, 0),
    ],
)
def test_the_mean_over_a_track_goes_over_the_seconds_asked_for(seconds, union, gold, common):
    track = {float(second): (0, 0, 10, 10) for second in seconds}
    assert track_iou(track, SECONDS, GroundingMean.union) == pytest.approx(union)
    assert track_iou(track, SECONDS, GroundingMean.gold) == pytest.approx(gold)
    assert track_iou(track, SECONDS, GroundingMean.common_keys) == pytest.approx(common)


@pytest.mark.parametrize(
    "value",
    [
        {"0": [0, 0, 1, 1], "3": [0, 0, 2, 2]},
        {"boxes": {"0": [0, 0, 1, 1], "3": [0, 0, 2, 2]}},
        {"time": [0, 3], "boxes": {"0": [0, 0, 1, 1], "3": [0, 0, 2, 2]}},
        {"boxes": {"0.0": [0, 0, 1, 1], "00:03": [0, 0, 2, 2]}},
        {"boxes": {"0 s": [0, 0, 1, 1], "0:00:03": [0, 0, 2, 2]}},
        {"boxes": {"0": [[0, 0, 1, 1]], "3": {"bbox_2d": [0, 0, 2, 2]}}},
        {"boxes": {"0": [0, 0, 1, 1], "0.0": [0, 0, 1, 1], "3": [0, 0, 2, 2]}},
        [{"time": 0, "bbox_2d": [0, 0, 1, 1]}, {"time": 3.0, "bbox_2d": [0, 0, 2, 2]}],
        {"boxes": [{"time": "0:00", "box": [0, 0, 1, 1]}, {"t": 3, "bbox": [0, 0, 2, 2]}]},
    ],
)
def test_a_track_is_read_in_many_forms(value: object):
    assert track_in_json(value) == {0.0: (0, 0, 1, 1), 3.0: (0, 0, 2, 2)}


@pytest.mark.parametrize(
    "value",
    [
        None, 5, "x", [1, 2, 3, 4], {"a": [0, 0, 1, 1]}, {"0": [0, 0, 1]}, {"0": "dog"},
        {"boxes": 5}, {"frame 1": [0, 0, 1, 1]}, [{"bbox_2d": [0, 0, 1, 1]}],
        {"0": [[0, 0, 1, 1], [0, 0, 2, 2]]}, {"boxes": {"boxes": {"0": [0, 0, 1, 1]}}},
        {"9" * 400: [0, 0, 1, 1]},
    ],
)  # fmt: skip
def test_what_is_no_track_is_not_read(value: object):
    assert track_in_json(value) is None


@pytest.mark.parametrize(
    "value",
    [
        {"0": [1, 0, 0, 1]},
        {"0": [0, 0, 1, 1], "00:00": [0, 0, 2, 2]},
        {"0:75": [0, 0, 1, 1]},
        {"0": [0, 0, 1, float("inf")]},
    ],
)
def test_a_malformed_track_is_no_answer(value: dict):
    with pytest.raises(NoAnswer):
        track_in_json(value)
