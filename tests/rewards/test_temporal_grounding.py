import random

import pytest

from easyvideor1.rewards import GoldError, extract, instruction, render_gold, reward
from easyvideor1.rewards.intervals import union_iou
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus


def question(answer: Answer | tuple[float, ...] = (4, 8)) -> Sample:
    return Sample(
        id="q1",
        problem="When?",
        answer=list(answer) if isinstance(answer, tuple) else answer,
        problem_type=ProblemType.temporal_grounding,
    )


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((4, 8), (4, 8), 1),
        ((2, 6), (4, 8), 2 / 6),
        ((0, 4), (4, 8), 0),
        ((0, 100), (4, 8), 0.04),
        ((5, 5), (4, 8), 0),
        ((5, 6), (4, 8), 0.25),
    ],
)
def test_iou_is_intersection_over_union(a, b, expected: float):
    assert union_iou([a], [b]) == pytest.approx(expected)
    assert union_iou([b], [a]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ('{"time": [2, 6]}', [2, 6]),
        ('{"time": ["0:02", "00:00:06"]}', [2, 6]),
        ('{"time": "2 - 6"}', [2, 6]),
        ('{"time": [[2, 6]]}', [2, 6]),
        ('{"time": {"start": 2, "end": 6}}', [2, 6]),
        ('{"start": 2, "end": 6.5}', [2, 6.5]),
        ('{"start_time": "2 s", "end_time": "6 s"}', [2, 6]),
        ('[{"start": 2, "end": 6}]', [2, 6]),
        ('```json\n{"time": [2, 6]}\n```', [2, 6]),
        ('The event is at {"time": [2, 6]}.', [2, 6]),
        ("[2, 6]", [2, 6]),
        ("(2, 6)", [2, 6]),
        ("2, 6", [2, 6]),
        ("2 - 6", [2, 6]),
        ("2-6", [2, 6]),
        ("2.0s - 6.0s", [2, 6]),
        ("2 to 6", [2, 6]),
        ("2 to 6 seconds", [2, 6]),
        ("from 2.0 to 6.0 seconds", [2, 6]),
        ("From 2 s until 6 s.", [2, 6]),
        ("between 2 and 6 seconds", [2, 6]),
        ("The event occurs at 2.0 - 6.0.", [2, 6]),
        ("It starts at 2 s and ends at 6 s.", [2, 6]),
        ("Start: 2.0, End: 6.0", [2, 6]),
        ("01:02 - 01:08", [62, 68]),
        ("from 1:02 to 1:08.5", [62, 68.5]),
        ("01:02:03 to 01:02:04", [3723, 3724]),
        ("2 to 3 minutes", [120, 180]),
        ("1 minute 2 seconds to 1 min 8 s", [62, 68]),
        ("from 1 h 2 min to 1 h 3 min", [3720, 3780]),
        ("从2秒到6秒", [2, 6]),
        ("1分2秒至1分8秒", [62, 68]),
        ('{"time": [2, 6,]}', [2, 6]),
        ("{'time': (2, 6)}", [2, 6]),
        ('{"time": [00:02, 00:06]}', [2, 6]),
        ("[00:02, 00:06]", [2, 6]),
        ("00:02, 00:06", [2, 6]),
        ('{"time": [2, 6], "boxes": {}}', [2, 6]),
        ('{"time": [2, 6]}, i.e. {"time": [2.0, 6.0]}', [2, 6]),
    ],
)
def test_an_interval_is_read_in_many_forms(text: str, interval: list[float]):
    assert extract(f"<answer>{text}</answer>", question()).value == interval


@pytest.mark.parametrize(
    "text",
    [
        '{"time": [[2, 6], [8, 9]]}',
        '{"time": [{"start": 2, "end": 6}, {"start": 8, "end": 9}]}',
        '{"times": ["2 - 6", "0:08 - 0:09"]}',
        '[{"time": [2, 6]}, {"time": [8, 9]}]',
        '{"time": [2, 6]}\n{"time": [8, 9]}',
        "[[2, 6], [8, 9]]",
        "[2, 6], [8, 9]",
        "[2, 6] and [8, 9]",
        "from 2 to 6 s and from 8 to 9 s",
        "00:02 - 00:06, 00:08 - 00:09",
    ],
)
def test_several_intervals_are_read_where_they_are_listed(text: str):
    assert extract(f"<answer>{text}</answer>", question()).value == [[2, 6], [8, 9]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "5",
        '{"time": [8, 4]}',
        '{"time": [NaN, 6]}',
        '{"time": [2, Infinity]}',
        '{"time": [2, 1e999]}',
        '{"time": [2, ' + "9" * 400 + "]}",
        '{"time": [true, 6]}',
        '{"time": [2, 6, 8]}',
        '{"time": [2, 6]} or {"time": [3, 5]}',
        '{"time": [2, 6}',
        '{"boxes": [2, 6]}',
        "from 2 to 6 s or from 8 to 9 s",
        "[2, 6] or [8, 9]",
        "He runs from 2 to 6 s, then he sits from 8 to 9 s",
        '{"time": [[2, 6], [9, 8]]}',
        '{"time": [[2, 6], 8]}',
        '{"time": [2, 6, 8, 9]}',
        '{"times": []}',
        '{"x": "from 2 to 6 s"}',
        '{"time":' * 300 + "[2, 6]" + "}" * 300,
        "8 to 4 seconds",
        "10-15 people",
        "frame 5 to frame 10",
        "frames 5 to 10",
        "10% to 20%",
        "1:75 - 2:00",
        "2023-05",
        "[" * 100_000,
        '{"time":' * 10_000,
    ],
)
def test_a_text_without_one_sound_interval_is_no_answer(text: str):
    extracted = extract(f"<answer>{text}</answer>", question())
    assert (extracted.value, extracted.status) == (None, ScoreStatus.no_answer)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("The man jumps from 2.0 to 6.0 seconds.", [2, 6]),
        ("He sits from 0 to 2 s.\nThe answer is 2 - 6.", [2, 6]),
        ("He sits from 0 to 2 s.\n2 - 6", [2, 6]),
        ('He sits. So {"time": [2, 6]}', [2, 6]),
        (r"So \boxed{2 - 6}", [2, 6]),
        ('He sits at {"time": [0, 2]}. The answer is {"time": [2, 6]}', [2, 6]),
        ('He sits at {"time": [0, 2]}.\n```json\n{"time": [2, 6]}\n```', None),
        ("There are 10-15 people.", None),
    ],
)
def test_a_stated_interval_is_read_from_prose(text: str, interval: list[float] | None):
    assert extract(text, question()).value == interval


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([(0, 2), (4, 6)], [(0, 2), (4, 6)], 1),
        ([(4, 6), (0, 2)], [(0, 2), (4, 6)], 1),
        ([(0, 2)], [(0, 2), (4, 6)], 0.5),
        ([(0, 6)], [(0, 2), (4, 6)], 4 / 6),
        ([(0, 2), (4, 6)], [(1, 2), (4, 7)], 0.6),
        ([(0, 3), (2, 6)], [(0, 6)], 1),
        ([(0, 2), (0, 2)], [(0, 2)], 1),
        ([(7, 8)], [(0, 2), (4, 6)], 0),
    ],
)
def test_iou_of_several_intervals_is_that_of_their_unions(a, b, expected: float):
    assert union_iou(a, b) == pytest.approx(expected)
    assert union_iou(b, a) == pytest.approx(expected)


def test_iou_of_several_intervals_counts_seconds_as_a_fine_grid_does():
    rng = random.Random(0)
    for _ in range(200):
        sets = []
        for _ in range(2):
            starts = [rng.randrange(0, 90) for _ in range(rng.randint(1, 5))]
            sets.append([(start, start + rng.randint(1, 10)) for start in starts])
        a, b = ({t for start, end in some for t in range(start, end)} for some in sets)
        assert union_iou(sets[0], sets[1]) == pytest.approx(len(a & b) / len(a | b))


def test_the_reward_is_the_iou():
    score = reward(question(), '<answer>{"time": [2, 6]}</answer>')
    assert score.parts == {"accuracy": pytest.approx(1 / 3), "format": 1.0}
    assert score.value == pytest.approx(0.9 / 3 + 0.1)


def test_a_reversed_interval_says_so():
    score = reward(question(), '<answer>{"time": [8, 4]}</answer>')
    assert score.status is ScoreStatus.no_answer
    assert "ends at 4 s, before it begins at 8 s" in score.detail
    assert score.parts == {"accuracy": 0.0, "format": 0.5}


@pytest.mark.parametrize(
    ("gold", "rendered"),
    [
        ((4, 8), '{"time": [4.0, 8.0]}'),
        ({"time": [0, 0.1]}, '{"time": [0.0, 0.1]}'),
        ({"start": "1:02", "end": "1:08"}, '{"time": [62.0, 68.0]}'),
        ('{"time": [4, 8]}', '{"time": [4.0, 8.0]}'),
        ("from 4 to 8 seconds", '{"time": [4.0, 8.0]}'),
        ({"time": [[4, 8], [9, 12]]}, '{"time": [[4.0, 8.0], [9.0, 12.0]]}'),
        ([[4, 8], [9, 12]], '{"time": [[4.0, 8.0], [9.0, 12.0]]}'),
    ],
)
def test_the_gold_answer_may_have_any_form(gold: Answer, rendered: str):
    assert render_gold(question(gold)) == f"<answer>{rendered}</answer>"
    assert reward(question(gold), render_gold(question(gold))).value == 1.0


@pytest.mark.parametrize(
    "gold",
    [(8, 4), (4, 4), (4,), "soon", 5, True, {"time": [[1, 2], [4, 3]]}, "1:75 - 2:00", [], {}],
)
def test_a_gold_answer_that_is_no_interval_is_an_error(gold: Answer):
    with pytest.raises(GoldError, match=r"q1: answer: got .*, expected an interval"):
        render_gold(question(gold))


def test_several_gold_intervals_are_asked_for():
    assert '{"time": [start, end]}' in instruction(question())
    several = question({"time": [[4, 8], [9, 12]]})
    assert '{"time": [[start, end], ...]}' in instruction(several)
    assert reward(several, '<answer>{"time": [4, 8]}</answer>').parts["accuracy"] == 4 / 7
