"""Published data formats: what each field of a row becomes. All rows are made up."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample, Trajectory

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"


def choice(**changes: Any) -> dict[str, Any]:
    """A row in the shape of the reference's evaluation files."""
    row = {
        "data_type": "video",
        "data_source": "Kitchen-QA",
        "problem_type": "multiple choice",
        "path": "./clips/pan.mp4",
        "problem": "What is put into the pan?",
        "problem_id": 4,
        "options": ["A. an egg", "B. a fish", "C. an onion"],
        "solution": "<answer>B</answer>",
    }
    return {**row, **changes}


def one(table: Any) -> Sample:
    (sample,) = table
    return sample


def test_a_multiple_choice_row_of_an_evaluation_file(read_rows, tmp_path: Path):
    sample = one(read_rows([choice(q_type="What")], name="kitchen.json"))
    assert sample == Sample(
        id="kitchen/4",
        problem="What is put into the pan?",
        answer="B",
        problem_type=ProblemType.multiple_choice,
        media=(Media(kind=MediaKind.video, path=str(tmp_path / "clips" / "pan.mp4")),),
        options=("an egg", "a fish", "an onion"),
        source="Kitchen-QA",
        extra={"q_type": "What"},
    )
    assert sample.data_type == "video"


def test_a_training_row_with_an_offline_trajectory(read_rows):
    row = {
        "problem": "<video>How many birds land?",
        "answer": 3,
        "problem_type": "numerical",
        "data_type": "video",
        "videos": ["birds.mp4"],
        "options": None,
        "has_offline_trajectory": True,
        "offline_output": "<think>One, two, three.</think><answer>3</answer>",
        "preprocessed_video": "5f2a.pt",
        "problem_id": "b-1",
        "pass_rate": 0.25,
    }
    sample = one(read_rows([row]))
    assert sample.answer == 3
    assert sample.offline == (
        Trajectory(text="<think>One, two, three.</think><answer>3</answer>", source="offline"),
    )
    assert sample.pass_rate == 0.25
    assert sample.extra == {}


def test_an_offline_output_that_is_switched_off_stays_in_extra(read_rows):
    row = choice(has_offline_trajectory=False, offline_output="<answer>A</answer>")
    sample = one(read_rows([row]))
    assert sample.offline == ()
    assert sample.extra == {"offline_output": "<answer>A</answer>"}


def test_the_reasoning_of_a_supervised_video_r1_row_is_an_offline_trajectory(read_rows):
    sample = one(read_rows([choice(process="<think>It is flat and shiny.</think>")]))
    assert sample.offline == (
        Trajectory(
            text="<think>It is flat and shiny.</think>\n<answer>B</answer>", source="process"
        ),
    )
    assert one(read_rows([choice(process="")])).extra == {"process": ""}


def test_a_onethinker_training_row(read_rows):
    row = {
        "problem_id": 12,
        "problem": "<image>Where is the left cup?",
        "answer": '<answer>{"boxes": [10, 20, 30, 40]}</answer>',
        "data_type": "image",
        "problem_type": "spatial grounding",
        "options": [],
        "data_source": "cups",
        "images": ["img/cups.jpg"],
    }
    sample = one(read_rows([row], format="onethinker"))
    assert sample.answer == {"boxes": [10, 20, 30, 40]}
    assert sample.media[0].kind is MediaKind.image


def test_an_easyr1_row_takes_its_problem_type_from_the_caller(read_rows):
    row = {"problem": "<image>Find x.", "answer": r"\sqrt{2}", "images": ["fig.png"]}
    sample = one(read_rows([row], problem_type="math"))
    assert (sample.problem_type, sample.answer) == (ProblemType.math, r"\sqrt{2}")
    assert sample.id == "data/1"
    with pytest.raises(DataError, match=r"data\.json:1:problem_type: got None, expected one of"):
        read_rows([row])


def test_embedded_images_are_written_to_the_cache_once(read, tmp_path: Path):
    rows = [
        {"problem": "<image>Find x.", "answer": "1", "images": [{"bytes": PNG, "path": None}]},
        {"problem": "<image>Find y.", "answer": "2", "images": [{"bytes": PNG, "path": "a.png"}]},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "geo.parquet")
    table = read(tmp_path / "geo.parquet", problem_type="math")
    paths = {sample.media[0].path for sample in table}
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == PNG
    assert hashlib.sha256(PNG).hexdigest()[:32] in table[0].media[0].path


def test_embedded_bytes_that_are_no_image_are_a_bad_row(read, tmp_path: Path):
    rows = [{"problem": "?", "answer": "1", "images": [{"bytes": b"<html>", "path": None}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "geo.parquet")
    with pytest.raises(DataError, match=r"geo\.parquet:1:images: got b'<html>', expected PNG"):
        read(tmp_path / "geo.parquet", problem_type="math")


def test_a_solution_beside_an_answer_is_an_explanation(read_rows):
    row = {"problem": "1 + 1?", "answer": "2", "solution": "Count on from one: 2.", "level": 1}
    sample = one(read_rows([row], problem_type="math"))
    assert sample.answer == "2"
    assert sample.extra == {"solution": "Count on from one: 2.", "level": 1}


def test_the_damaged_charades_template_keeps_its_gold_in_think(read_rows):
    row = choice(
        problem_type="temporal grounding",
        problem="a person opens a window.",
        options=[],
        solution='<think>{"time": [2.5, 7.0], "boxes": {}}</think><[PLHD9_never_used_00ff]>',
    )
    sample = one(read_rows([row]))
    assert sample.answer == {"time": [2.5, 7.0], "boxes": {}}
    assert sample.problem_type is ProblemType.temporal_grounding


def test_boxes_by_second_stay_json(read_rows):
    gold = '<answer>{"time": [3.0, 4.5], "boxes": {"4": [1, 2, 30, 40]}}</answer>'
    row = choice(problem_type="spatial-temporal grounding", options=[], solution=gold)
    assert one(read_rows([row])).answer == {"time": [3.0, 4.5], "boxes": {"4": [1, 2, 30, 40]}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OCR", ProblemType.ocr),
        ("free-form", ProblemType.open_ended),
        ("video qa", ProblemType.open_ended),
        ("binary classification", ProblemType.boolean),
        ("svg-code", ProblemType.svg_code),
        ("Mathematics", ProblemType.math),
        ("llava", ProblemType.preference),
        ("number", ProblemType.numerical),
        ("spatio-temporal grounding", ProblemType.spatial_temporal_grounding),
    ],
)
def test_every_alias_of_a_problem_type_is_known(read_rows, name: str, expected: ProblemType):
    answer = "{}" if expected is ProblemType.spatial_temporal_grounding else "yes"
    row = choice(problem_type=name, options=[], solution=f"<answer>{answer}</answer>")
    assert one(read_rows([row])).problem_type is expected


@pytest.mark.parametrize("answer", [True, False, "yes"])
def test_boolean_answers_keep_their_type(read_rows, answer: bool | str):
    row = choice(problem_type="boolean", options=[], answer=answer)
    del row["solution"]
    assert one(read_rows([row])).answer is answer or answer == "yes"


def test_start_and_end_are_the_span_of_the_video(read_rows):
    medium = one(read_rows([choice(start=4, end=9.5)])).media[0]
    assert (medium.start_s, medium.end_s) == (4.0, 9.5)


def test_start_and_end_of_a_grounding_row_may_be_its_answer_and_do_not_cut_the_video(read_rows):
    row = choice(
        problem_type="temporal grounding",
        options=[],
        solution='<answer>{"time": [4, 9]}</answer>',
        start=4,
        end=9,
    )
    sample = one(read_rows([row]))
    assert sample.media[0].end_s is None
    assert sample.extra == {"start": 4, "end": 9}


def test_the_kind_of_a_path_without_data_type_is_told_by_its_suffix(read_rows):
    photo, clip = choice(path="a.JPG"), choice(path="b.webm", problem_id=5)
    del photo["data_type"], clip["data_type"]
    assert [s.media[0].kind.value for s in read_rows([photo, clip])] == ["image", "video"]


def test_images_and_videos_may_mix(read_rows):
    row = choice(
        problem="Is <image> in <video>?", images=["a.png"], videos=["b.mp4"], data_type="mixed"
    )
    del row["path"]
    assert one(read_rows([row])).data_type == "mixed"


def test_a_caption_row_may_ask_nothing(read_rows):
    row = choice(problem="", problem_type="caption", solution="A man fries fish.", options=None)
    sample = one(read_rows([row]))
    assert (sample.problem, sample.answer) == ("", "A man fries fish.")


# Options and multiple-choice golds


@pytest.mark.parametrize(
    "options",
    [
        ["A. red", "B. blue"],
        ["A: red", "B: blue"],
        ["(A) red", "(B) blue"],
        ["A) red", " B) blue "],
        ["A、red", "B、blue"],
        ["red", "blue"],
    ],
)
def test_letters_of_options_are_stripped(read_rows, options: list[str]):
    assert one(read_rows([choice(options=options)])).options == ("red", "blue")


@pytest.mark.parametrize(
    "options",
    [
        ["A. Lincoln", "G. Washington"],
        ["B. red", "A. blue"],
        ["A. red", "blue"],
        ["A dog", "B cat"],
    ],
)
def test_options_that_are_not_all_lettered_in_order_stay(read_rows, options: list[str]):
    assert one(read_rows([choice(options=options)])).options == tuple(options)


def test_numbers_as_options_become_text(read_rows):
    sample = one(read_rows([choice(options=[1, 2.5, 3], answer=2.5, solution=None)]))
    assert (sample.options, sample.answer) == (("1", "2.5", "3"), "B")


@pytest.mark.parametrize(
    "gold", ["B", "B.", "(B)", " B ", "a fish", "B. a fish", "<answer> B </answer>", "(B) a fish"]
)
def test_a_gold_in_any_form_becomes_its_letter(read_rows, gold: str):
    assert one(read_rows([choice(solution=gold)])).answer == "B"


def test_a_gold_given_as_text_beside_a_tagged_letter_is_checked(read_rows):
    assert one(read_rows([choice(answer="a fish")])).extra == {"answer": "a fish"}
    with pytest.raises(DataError) as caught:
        read_rows([choice(answer="an onion")])
    assert str(caught.value).endswith(
        "data.json:1:answer: got 'an onion', expected the option B that solution names"
    )


def test_a_letter_wins_over_an_option_that_is_this_letter(read_rows):
    options = ["A. C", "B. A", "C. B"]
    assert one(read_rows([choice(options=options, solution="<answer>A</answer>")])).answer == "A"


def test_options_within_the_problem_need_a_letter_as_gold(read_rows):
    row = choice(problem="Which? (A) egg (B) fish", options=[])
    assert one(read_rows([row])).answer == "B"
    with pytest.raises(DataError, match="expected a letter or the text of one option"):
        read_rows([row | {"solution": "fish"}])


# Bad rows: the text of each error


def bad(field: str, got: str, expected: str) -> str:
    return f"data.json:1:{field}: got {got}, expected {expected}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "riddle"}, bad("problem_type", "'riddle'", "one of multiple_choice, ")),
        ({"problem_type": 4}, bad("problem_type", "4", "text")),
        ({"problem": "  "}, bad("problem", "'  '", "a question that is not empty")),
        ({"problem": ["what"]}, bad("problem", "['what']", "text")),
        ({"solution": None}, bad("answer", "None", "a value: easyvideor1 rows hold answer|solut")),
        ({"solution": "D"}, bad("solution", "'D'", "a letter from A to C or the text of one opt")),
        ({"solution": "a frog"}, "the text of one option (A. an egg, B. a fish, C. an onion)"),
        ({"solution": "<answer>A</answer><answer>B</answer>"}, "expected one <answer>…</answer>"),
        ({"options": ["x", "y", "x"], "solution": "x"}, "options A, C have this same text"),
        ({"options": "A. x"}, bad("options", "'A. x'", "a list")),
        ({"options": ["x", None]}, bad("options", "['x', None]", "a list of texts")),
        ({"options": [str(i) for i in range(27)]}, "expected at most 26 options, got 27"),
        ({"path": 5}, bad("path", "5", "the path of a file")),
        ({"path": "https://host/a.mp4"}, "expected a local path. Download the file"),
        ({"path": "a.xyz", "data_type": None}, "expected image or video, for the path 'a.xyz'"),
        ({"path": None}, bad("data_type", "'video'", "text, which its media are")),
        ({"data_type": "audio"}, bad("data_type", "'audio'", "text, image, video or mixed")),
        ({"data_type": "text"}, "expected image or video, for the path './clips/pan.mp4'"),
        ({"images": ["a.png"], "path": None}, bad("data_type", "'video'", "image, which its")),
        ({"videos": ["b.mp4"]}, "expected no path beside images or videos, or one of them"),
        ({"videos": "b.mp4"}, bad("videos", "'b.mp4'", "a list")),
        ({"start": 5, "end": 5}, bad("end", "5", "end_s must lie after start_s")),
        ({"start": -1}, bad("start", "-1", "a number from 0 to inf")),
        ({"end": "9"}, bad("end", "'9'", "a number")),
        ({"pass_rate": 1.5}, bad("pass_rate", "1.5", "a number from 0 to 1")),
        ({"has_offline_trajectory": "yes"}, bad("has_offline_trajectory", "'yes'", "true or fa")),
        ({"has_offline_trajectory": True}, "expected text, as has_offline_trajectory is true"),
        ({"offline_output": 3}, bad("offline_output", "3", "text")),
        ({"problem_id": 1.5}, bad("problem_id", "1.5", "text or a whole number")),
        ({"note": float("nan")}, bad("extra", "None", "JSON values (Out of range float")),
        ({"data_source": 3}, bad("data_source", "3", "text")),
    ],
)
def test_a_bad_row_says_file_row_field_value_and_rule(
    read_rows, changes: dict[str, Any], message: str
):
    with pytest.raises(DataError) as caught:
        read_rows([choice(**changes)])
    assert message in str(caught.value)
    assert "data.json:1:" in str(caught.value)


def test_a_row_without_a_needed_field_says_which(read_rows):
    with pytest.raises(DataError) as caught:
        read_rows([choice(), choice(problem=None)])
    assert str(caught.value).endswith(
        "data.json:2:problem: got None, expected a value: easyvideor1 rows hold problem"
    )


@pytest.mark.parametrize(
    ("problem_type", "gold", "message"),
    [
        ("temporal grounding", "from 2 to 5", "expected JSON, as temporal_grounding answers are"),
        ("tracking", "5", "expected a JSON object or list, as tracking answers are"),
        ("numerical", [1, 2], "expected a number or text"),
        ("numerical", True, "expected a number or text"),
        ("boolean", 1, "expected true, false or text"),
        ("open-ended", "", "expected a gold answer that is not empty"),
        ("open-ended", "<answer></answer>", "expected a gold answer that is not empty"),
    ],
)
def test_a_gold_of_the_wrong_kind_is_a_bad_row(
    read_rows, problem_type: str, gold: Any, message: str
):
    with pytest.raises(DataError, match=message):
        read_rows([choice(problem_type=problem_type, options=[], solution=gold)])


def test_text_that_is_no_unicode_is_a_bad_row(tmp_path: Path, read):
    path = tmp_path / "data.jsonl"
    path.write_text(
        '{"problem_id": 1, "problem": "a \\ud800 b", "problem_type": "ocr", "answer": "x"}\n'
    )
    with pytest.raises(DataError, match=r"data\.jsonl:1:problem: .* expected valid Unicode text"):
        read(path)


# Telling the format


def test_a_file_of_both_formats_says_which_to_set(read_rows):
    row = choice(media=[], id="x")
    with pytest.raises(UserError) as caught:
        read_rows([row])
    assert "has fields of our own format (media or offline) and of a published one" in str(
        caught.value
    )
    assert "set format (data.format) to samples or to one of easyvideor1, video_r1" in str(
        caught.value
    )


@pytest.mark.parametrize(
    "row",
    [
        {"question": "What?", "answer": "x"},
        {"id": "1", "problem": "What?", "answer": "x"},
        {"problem": "What?", "answer": "x", "problem_type": "ocr"},
    ],
)
def test_a_file_whose_format_cannot_be_told_lists_its_fields_and_the_formats(
    read_rows, row: dict[str, Any]
):
    with pytest.raises(UserError) as caught:
        read_rows([row])
    assert f"the fields ({', '.join(sorted(row))}) do not tell the format" in str(caught.value)
    assert (
        "set format (data.format) to one of samples, easyvideor1, video_r1, onethinker, easyr1"
        in str(caught.value)
    )


def test_a_named_format_is_believed(read_rows):
    row = {"problem": "What?", "answer": "x", "problem_type": "ocr"}
    assert one(read_rows([row], format="easyvideor1")).answer == "x"


def test_a_named_format_checks_what_its_rows_hold(read_rows):
    row = {"problem": "What?", "answer": "x", "problem_type": "ocr"}
    with pytest.raises(DataError, match="solution: got None, expected a value: video_r1 rows hold"):
        read_rows([row], format="video_r1")


def test_an_unknown_format_lists_the_known(read_rows):
    with pytest.raises(UserError, match="format must be one of auto, samples, easyvideor1"):
        read_rows([choice()], format="llava")
