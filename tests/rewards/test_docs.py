"""docs/rewards.md says what the code does: types, prompts, settings and examples."""

import re
from pathlib import Path

import pytest

from easyvideor1.rewards import extract, instruction
from easyvideor1.rewards.config import ScoreConfig
from easyvideor1.schema.cli import known_keys
from easyvideor1.schema.records import Answer, ProblemType, Sample, ScoreStatus

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")

GOLD: dict[str, Answer] = {
    "multiple_choice": "B",
    "numerical": 5,
    "regression": 5,
    "boolean": True,
    "math": "5",
    "temporal_grounding": [4, 8],
    "spatial_grounding": [0, 0, 9, 9],
    "tracking": {"0": [0, 0, 9, 9]},
    "spatial_temporal_grounding": {"time": [0, 1], "boxes": {"0": [0, 0, 9, 9]}},
    "ocr": "stop",
    "open_ended": "a man",
    "code": {"entry": "add", "tests": ["assert add(1, 2) == 3"]},
    "svg_code": "<svg xmlns='http://www.w3.org/2000/svg'/>",
    "html_code": "<p>a</p>",
    "preference": "tie",
}


def question(kind: str) -> Sample:
    options = ("Red", "Blue", "A dog", "Sky") if kind == "multiple_choice" else ()
    return Sample(id="q1", problem="?", answer=GOLD[kind], options=options,
                  problem_type=ProblemType(kind))  # fmt: skip


def rows_of(heading: str) -> list[list[str]]:
    """Cells of the first table after a heading, without its head."""
    section = PAGE.split(f"\n{heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert lines is not None
    rows = [line.strip("|").split(" | ") for line in lines[0].splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_table_of_tasks_has_all_of_them_with_what_they_ask():
    rows = rows_of("## Tasks")
    assert {row[0].strip("`") for row in rows} == set(ProblemType.__members__) == set(GOLD)
    for name, told, _ in rows:
        asked = instruction(question(name.strip("`")))
        words = told.replace("`", "").replace("…", "...").split(", ")[0].split(" in the image")[0]
        words = words.replace('{"time": ...', '{"time": ').replace("what is asked for", "add")
        assert words.split(" or a program")[0] in asked, (name, asked)


def test_every_setting_that_is_named_exists():
    known = set(known_keys(ScoreConfig))
    named = set(re.findall(r"reward\.[a-z_]+(?:\.[a-z_]+)*", PAGE))
    named -= {"reward.reward_function", "reward.reward_function_kwargs"}  # of EasyR1
    named = {
        re.sub(r"^reward\.tasks\.\w+", "reward.tasks", name)
        for name in named
        if not name.startswith("reward.custom_reward_function")
    }
    of_a_task = {f"reward.tasks.{name}" for name in ("prompt", "format_weight")}
    assert named - known - of_a_task == set()
    assert {name for name in re.findall(r"worker\.\w+|reward=(\w+)", PAGE)} >= {"dapo", "by_task"}


@pytest.mark.parametrize(
    ("kind", "texts", "value"),
    [
        ("multiple_choice",
         ["B", "b", "(B)", "**B**", "\\boxed{B}", "B. Blue", "Blue", '{"answer": "B"}',
          "the answer is B", "I choose B", "option B is correct", "答案是B"], "B"),
        ("multiple_choice", ["The answer is A dog."], "C"),
        ("boolean", ["yes", "true", "是", "对", "Yes, he does"], True),
        ("math", ["5", "x = 5"], None),
        ("temporal_grounding",
         ['{"time": [2, 6]}', '{"start": 2, "end": 6}', "[2, 6]", "from 2 to 6 seconds", "2 - 6",
          "starts at 2 s and ends at 6 s"], [2, 6]),
        ("spatial_grounding",
         ["[1, 2, 3, 4]", '{"bbox_2d": [1, 2, 3, 4]}', "(1,2),(3,4)", "<box>[1, 2, 3, 4]</box>",
          '{"x1": 1, "y1": 2, "x2": 3, "y2": 4}'], [1, 2, 3, 4]),
        ("preference",
         ["Response 2", "2", "B", "the second one", "Response 2 is better than Response 1",
          "I prefer Response 2", "B > A", "[[B]]"], "2"),
        ("preference",
         ["tie", "same", "Response 1 and Response 2 are equally good", "平局"], "tie"),
    ],
)  # fmt: skip
def test_forms_that_are_said_to_be_read_are_read(kind: str, texts: list[str], value: object):
    for text in texts:
        found = extract(f"<answer>{text}</answer>", question(kind))
        assert found.status is ScoreStatus.ok, text
        assert value is None or found.value == value, text


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("multiple_choice", ["E", "A, B", "B. Red", "A dog is seen", "I think so"]),
        ("numerical", ["3 4", "3 - 5", "2023/05", "3:45", "at least 5", "9**9**9", "√4", "12,34"]),
        ("boolean", ["There is no dog", "yes, no"]),
        ("temporal_grounding", ["[6, 2]"]),
        ("spatial_grounding", ["[3, 4, 1, 2]"]),
        ("math", ["9^{9^9}"]),
        ("preference", ["Response 1 or Response 2", "Response 3"]),
    ],
)  # fmt: skip
def test_forms_that_are_said_to_be_no_answer_are_none(kind: str, texts: list[str]):
    for text in texts:
        found = extract(f"<answer>{text}</answer>", question(kind))
        assert found.status is ScoreStatus.no_answer, (text, found)
