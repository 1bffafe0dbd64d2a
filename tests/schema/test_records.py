import pickle
from typing import Any

import pytest

from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import (
    ALIASES,
    Completion,
    Group,
    Media,
    MediaKind,
    ProblemType,
    Role,
    Sample,
    Score,
    Segment,
    parse_problem_type,
)


@pytest.mark.parametrize("name", [*ProblemType.__members__, *ALIASES])
def test_every_name_is_read_in_any_spelling(name: str):
    expected = parse_problem_type(name)
    for spelling in (name.upper(), name.replace("_", " "), name.replace("_", "-"), f" {name} "):
        assert parse_problem_type(spelling) is expected


def test_an_unknown_problem_type_lists_the_known():
    with pytest.raises(
        ValueError, match=r"unknown problem type 'riddle'; known: binary, .*video_qa"
    ):
        parse_problem_type("riddle")


def test_problem_types_print_as_their_names():
    assert f"{ProblemType.ocr}" == str(ProblemType.ocr) == "ocr"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": MediaKind.video, "path": ""}, "either a path or a list of frames"),
        (
            {"kind": MediaKind.video, "path": "a", "frames": ("b",), "frames_fps": 2.0},
            "either a path or a list of frames",
        ),
        (
            {"kind": MediaKind.video, "frames": ("b",)},
            "a frame list needs frames_fps above 0, got None",
        ),
        (
            {"kind": MediaKind.video, "frames": ("b",), "frames_fps": float("nan")},
            "frames_fps above 0, got nan",
        ),
        ({"kind": MediaKind.image, "path": "a", "start_s": 0.0}, "an image has no frames, start_s"),
        ({"kind": MediaKind.video, "path": "a", "start_s": -1.0}, "start_s must be 0 or more"),
        (
            {"kind": MediaKind.video, "path": "a", "start_s": float("nan")},
            "start_s must be 0 or more and finite, got nan",
        ),
        (
            {"kind": MediaKind.video, "path": "a", "start_s": 3.0, "end_s": 3.0},
            "end_s must lie after start_s, got 3.0 to 3.0",
        ),
        (
            {"kind": MediaKind.video, "path": "a", "end_s": 0.0},
            "end_s must lie after start_s, got None to 0.0",
        ),
        (
            {"kind": MediaKind.video, "path": "a", "end_s": float("inf")},
            "end_s must lie after start_s",
        ),
    ],
)
def test_media_that_cannot_be_are_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Media(**values)


def test_the_data_type_follows_from_the_media():
    image = Media(kind=MediaKind.image, path="a.png")
    video = Media(kind=MediaKind.video, path="a.mp4")
    for media, expected in (
        ((), "text"),
        ((image, image), "image"),
        ((video,), "video"),
        ((image, video), "mixed"),
    ):
        sample = Sample(
            id="1", problem="?", answer=1, problem_type=ProblemType.numerical, media=media
        )
        assert sample.data_type == expected


def tool_call() -> Completion:
    return Completion(
        segments=(
            Segment(token_ids=(1, 2), logprobs=(-0.1, -0.2), policy_version=3),
            Segment(token_ids=(7, 8, 9), role=Role.tool, trainable=False),
            Segment(token_ids=(4,), logprobs=(-0.4,), policy_version=3),
        ),
        text="look … yes",
        finish_reason="stop",
    )


def test_masks_and_log_probs_of_a_completion_come_from_its_segments():
    completion = tool_call()
    assert completion.token_ids == [1, 2, 7, 8, 9, 4]
    assert completion.loss_mask == [True, True, False, False, False, True]
    assert completion.logprobs == [-0.1, -0.2, 0.0, 0.0, 0.0, -0.4]


def test_log_probs_are_unknown_if_a_trainable_token_lacks_them():
    offline = Completion(segments=(Segment(token_ids=(1, 2)),), text="x", finish_reason="offline")
    assert offline.logprobs is None
    with pytest.raises(ValueError, match="2 tokens but 1 log-probs"):
        Segment(token_ids=(1, 2), logprobs=(-0.1,))


def test_a_group_pairs_completions_with_scores():
    sample = Sample(id="1", problem="?", answer=1, problem_type=ProblemType.numerical)
    score = Score(value=0.5, parts={"accuracy": 0.5})
    group = Group(sample=sample, completions=(tool_call(),), scores=(score,))
    assert group.rewards == [0.5]
    with pytest.raises(ValueError, match="1 completions, 0 scores"):
        Group(sample=sample, completions=(tool_call(),), scores=())


def test_records_are_frozen_and_cross_processes():
    completion = tool_call()
    assert pickle.loads(pickle.dumps(completion)) == completion
    with pytest.raises(AttributeError):
        completion.text = "other"  # pyrefly: ignore


def test_a_data_error_says_where_what_and_how():
    error = DataError("a.jsonl", 3, "answer", "E", "a letter from A to D", "Add the option.")
    assert str(error) == (
        "a.jsonl:3:answer: got 'E', expected a letter from A to D. Add the option."
    )
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.row, back.field, back.value) == (str(error), 3, "answer", "E")
    assert isinstance(error, UserError)


def test_a_data_error_shortens_what_it_shows():
    assert len(str(DataError("a.jsonl", 3, "problem", "x" * 10_000, "less"))) < 200


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fps": 0}, "budget fps must be above 0 and finite, got 0"),
        ({"fps": float("nan")}, "budget fps must be above 0 and finite, got nan"),
        ({"min_frames": 9, "max_frames": 8}, "got min_frames=9 max_frames=8"),
        ({"min_frames": 0}, "needs 1 <= min_frames"),
        ({"min_pixels": 10, "max_pixels": 9}, "got min_pixels=10 max_pixels=9"),
        ({"min_pixels": 100, "max_pixels": 100, "total_pixels": 99}, "total_pixels=99 is below"),
    ],
)
def test_a_budget_that_cannot_be_met_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        FrameBudget(**values)


def test_validation_budgets_default_to_those_of_training():
    budgets = Budgets(video=FrameBudget(max_frames=8), validation_image=FrameBudget(fps=1))
    assert budgets.of("video", validation=True) is budgets.video
    assert budgets.of("image", validation=True).fps == 1
    assert budgets.of("image") is budgets.image
    assert budgets.video.as_dict()["max_frames"] == 8
