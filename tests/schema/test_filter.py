"""`data.filter`: beside Python's own evaluation, with missing values, on views; its messages."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easyvideor1.schema import table as tables
from easyvideor1.schema.arrow import SAMPLE_SCHEMA, to_arrow
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.filter import compile_filter
from easyvideor1.schema.readers import SampleTable, read_samples, write_samples
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample, Trajectory

VIDEO = Media(kind=MediaKind.video, path="/clips/a.mp4")
IMAGE = Media(kind=MediaKind.image, path="/pictures/a.png")
MEDIA = ((), (IMAGE,), (IMAGE, IMAGE), (VIDEO,), (VIDEO, IMAGE, VIDEO))


def sample(number: int, **changes: Any) -> Sample:
    values: dict[str, Any] = {
        "id": f"s/{number}",
        "problem": "Why?",
        "answer": "B",
        "problem_type": ProblemType.ocr,
    }
    return Sample(**(values | changes))


def table_of(folder: Path, samples: list[Sample], name: str = "samples.arrow") -> SampleTable:
    write_samples(folder / name, samples)
    return read_samples(folder / name, cache_dir=folder / "cache", progress=False)


def kept(table: SampleTable, expression: str) -> list[str]:
    return compile_filter(expression).apply(table)[0].ids


# Against Python


COMPLETE_SAMPLES = [
    sample(
        number,
        problem=("Who is in the kitchen?", "Küche?", "")[number % 3],
        answer=("B", 3, 2.5, True)[number % 4],
        problem_type=(ProblemType.ocr, ProblemType.math, ProblemType.open_ended)[number % 3],
        media=MEDIA[number % len(MEDIA)],
        options=("red", "blue", "green")[: number % 4],
        offline=(Trajectory(text="B"),) * (number % 2),
        source=("web", "lab", "")[number // 2 % 3],
        category=("a", "b")[number // 3 % 2],
        pass_rate=number % 9 / 8,
        extra={"level": number % 5, "split": ("train", "test")[number % 2], "ok": number % 3 == 0},
    )
    for number in range(90)
]


def names_in_python(record: Sample) -> dict[str, Any]:
    return {
        **{name: getattr(record, name) for name in Sample.__slots__},
        "data_type": record.data_type,
        "num_images": sum(m.kind is MediaKind.image for m in record.media),
        "num_videos": sum(m.kind is MediaKind.video for m in record.media),
    }


texts = st.sampled_from(["web", "lab", "", "kitchen", "ü", "B", "a"]).map(repr)
numbers = st.one_of(
    st.integers(-2, 4).map(str), st.sampled_from([0.125, 0.5, 2.5, 1e300, -0.25]).map(repr)
)
problem_types = st.sampled_from(["ocr", "math", "open_ended", "code"]).map(repr)
data_types = st.sampled_from(["text", "image", "video", "mixed"]).map(repr)
text_fields = st.sampled_from(["id", "problem", "source", "category", "extra['split']"])
counts = st.sampled_from(["media", "options", "offline", "problem", "data_type"])
number_fields = st.one_of(
    st.sampled_from(["pass_rate", "num_images", "num_videos", "extra['level']"]),
    counts.map(lambda name: f"len({name})"),
)
orders = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
equality = st.sampled_from(["==", "!="])
membership = st.sampled_from(["in", "not in"])


def spaced(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(" ".join)


def listed(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(items, min_size=1, max_size=3).map(lambda found: ", ".join(found) + ",")
    return st.one_of(
        members.map(lambda found: f"({found})"),
        members.map(lambda found: f"[{found}]"),
        members.map(lambda found: f"{{{found}}}"),
    )


comparisons = st.one_of(
    spaced(number_fields, orders, numbers),
    spaced(numbers, orders, number_fields, orders, numbers),
    spaced(number_fields, orders, st.sampled_from(["pass_rate", "num_images", "len(options)"])),
    spaced(number_fields, membership, listed(numbers)),
    spaced(text_fields, orders, texts),
    spaced(st.sampled_from(["id", "problem"]), orders, text_fields),
    spaced(text_fields, membership, listed(texts)),
    spaced(texts, membership, text_fields),
    spaced(st.just("problem_type"), equality, problem_types),
    spaced(st.just("problem_type"), membership, listed(problem_types)),
    spaced(st.just("data_type"), equality, data_types),
    spaced(st.just("data_type"), membership, listed(data_types)),
    spaced(st.just("extra['ok']"), equality, st.sampled_from(["True", "False"])),
    st.just("extra['ok']"),
    spaced(st.sampled_from(["pass_rate", "extra['level']"]), st.sampled_from(["is", "is not"]))
    .map(lambda left: f"{left} None"),
)  # fmt: skip
expressions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        spaced(inner, st.sampled_from(["and", "or"]), inner).map(lambda text: f"({text})"),
        spaced(st.just("not"), inner),
        spaced(inner, st.just("and"), inner, st.just("or"), inner),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> SampleTable:
    return table_of(tmp_path_factory.mktemp("complete"), COMPLETE_SAMPLES)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expression=expressions)
def test_samples_without_gaps_are_kept_as_python_would(
    complete: SampleTable, expression: str
) -> None:
    code = compile(expression, "filter", "eval")
    expected = [s.id for s in COMPLETE_SAMPLES if eval(code, names_in_python(s))]
    assert kept(complete, expression) == expected


def test_answers_keep_their_types(complete: SampleTable) -> None:
    def ids(wanted: object) -> list[str]:
        return [s.id for s in COMPLETE_SAMPLES if s.answer is wanted or s.answer == wanted != 1]

    assert kept(complete, "answer == 'B'") == ids("B")
    assert kept(complete, "answer == 3") == ids(3)
    assert kept(complete, "answer == 2.5") == ids(2.5)
    assert kept(complete, "answer == True") == ids(True)
    assert kept(complete, "answer == 1") == []  # JSON's true is no number
    assert len(kept(complete, "answer > 0")) == len(ids(3)) + len(ids(2.5))


# Missing values


GAPS = [
    sample(0, pass_rate=None),
    sample(1, pass_rate=0.0, extra={"level": 3}),
    sample(2, pass_rate=0.5, extra={"level": "high", "tags": ["a"]}, answer=None),
    sample(3, pass_rate=1.0, extra={"level": None}, source="web"),
]


@pytest.mark.parametrize(
    ("expression", "expected"),
    {
        "0 < pass_rate < 1": [2],
        "pass_rate < 1": [1, 2],
        "pass_rate <= 0 or pass_rate >= 1": [1, 3],
        "not 0 < pass_rate < 1": [1, 3],
        "pass_rate != 0.5": [1, 3],
        "not pass_rate == 0.5": [1, 3],
        "pass_rate in (0, 1)": [1, 3],
        "pass_rate not in (0, 1)": [2],
        "pass_rate is None": [0],
        "pass_rate is not None": [1, 2, 3],
        "not pass_rate is None": [1, 2, 3],
        "pass_rate is None or pass_rate < 0.9": [0, 1, 2],
        "pass_rate < 0.9 or source == ''": [0, 1, 2],
        "pass_rate < 0.9 and source == ''": [1, 2],
        "extra['level'] == 3": [1],
        "extra['level'] != 3": [],
        "extra['level'] == 'high'": [2],
        "'hi' in extra['level']": [2],
        "extra['level'] is None": [0, 3],
        "extra['tags'] is not None": [2],
        "extra['absent'] is None": [0, 1, 2, 3],
        "answer is None": [2],
        "answer != 'C'": [0, 1, 3],
    }.items(),
)
def test_a_comparison_with_a_missing_value_does_not_hold_nor_does_its_not(
    tmp_path: Path, expression: str, expected: list[int]
) -> None:
    assert kept(table_of(tmp_path, GAPS), expression) == [f"s/{number}" for number in expected]


def test_the_report_counts_samples_that_lack_a_compared_value(tmp_path: Path) -> None:
    table = table_of(tmp_path, GAPS)
    _, report = compile_filter("pass_rate < 2 and extra['level'] >= 0 and source == ''").apply(
        table
    )
    assert (report.kept, report.total) == (1, 4)
    assert report.missing == {"pass_rate": 1, "extra['level'] that is a number": 3}
    _, report = compile_filter("source == ''").apply(table)
    assert report.missing == {}


# Names of types


def test_a_problem_type_may_be_called_as_in_the_published_data(tmp_path: Path) -> None:
    types = [ProblemType.multiple_choice, ProblemType.ocr, ProblemType.boolean]
    table = table_of(tmp_path, [sample(i, problem_type=t) for i, t in enumerate(types)])
    assert kept(table, "problem_type == 'multiple choice'") == ["s/0"]
    assert kept(table, "problem_type in ('mcq', 'binary')") == ["s/0", "s/2"]


# Views of the mapped files


@pytest.fixture
def two_files(tmp_path: Path) -> SampleTable:
    for name in ("a", "b"):
        samples = [
            sample(i, id=f"{name}/{i}", pass_rate=i / 10, media=(VIDEO,) * (i % 3))
            for i in range(11)
        ]
        write_batches(tmp_path / f"{name}.arrow", samples)
    return read_samples([tmp_path / "a.arrow", tmp_path / "b.arrow"], cache_dir=tmp_path / "cache")


def write_batches(path: Path, samples: list[Sample]) -> None:
    """As `write_samples`, with batches of four rows."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SAMPLE_SCHEMA) as writer:
        writer.write_table(to_arrow(samples, Sample), max_chunksize=4)


def test_a_filtered_table_is_a_table_of_the_same_files(two_files: SampleTable) -> None:
    view, _ = compile_filter("0.25 < pass_rate < 0.85").apply(two_files)
    assert view.ids == [f"{name}/{i}" for name in "ab" for i in range(3, 9)]
    assert [s.id for s in view] == view.ids
    assert view[-1].pass_rate == 0.8 and view[2:4].ids == ["a/5", "a/6"]
    assert view.select([7, 0]).ids == ["b/4", "a/3"]
    again = pickle.loads(pickle.dumps(view))
    assert list(again) == list(view)


def test_a_view_can_be_filtered_again_and_keeps_its_order(two_files: SampleTable) -> None:
    turned = two_files.select([20, 3, 14, 5, 0])
    assert turned.ids == ["b/9", "a/3", "b/3", "a/5", "a/0"]
    view, report = compile_filter("pass_rate < 0.9").apply(turned)
    assert view.ids == ["a/3", "b/3", "a/5", "a/0"]
    assert (report.kept, report.total) == (4, 5)
    assert compile_filter("num_videos == 2").apply(view)[0].ids == ["a/5"]
    assert compile_filter("num_videos == 2").apply(two_files[4:9])[0].ids == ["a/5", "a/8"]


def test_filtering_builds_no_sample(
    two_files: SampleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a sample was built")

    monkeypatch.setattr(tables, "from_row", refuse)
    view, _ = compile_filter("data_type == 'video' and answer == 'B'").apply(two_files)
    assert len(view) == 14
    with pytest.raises(AssertionError, match="a sample was built"):
        view[0]


# Messages


MISTAKES = {
    "": "data.filter is empty; supported are fields",
    "passrate < 1": "unknown field 'passrate'; known: id, problem, answer,",
    "source == web": "a text stands in quotes: 'web', in `web` at character 11",
    "'ä' == source and lab == 3": "unknown field 'lab'; known: ",
    "pass_rate < 1 and source < 3": "source is text and 3 is a number, in `source < 3` at char",
    "0 < source": "0 is a number and source is text",
    "pass_rate == 'high'": "pass_rate is a number and 'high' is text",
    "pass_rate": "pass_rate is a number; compare it, e.g. 0 < pass_rate < 1",
    "pass_rate < 1 and source": "source is text; compare it, e.g. source == 'web'",
    "pass_rate == None": "None is asked for with `is None` or `is not None`",
    "pass_rate in (0, None)": "None is asked for with `is None` or `is not None`",
    "pass_rate is 0": "`is` takes None only; compare values with == or !=",
    "source is None": "source is never None; a sample without one has ''",
    "len(media) is not None": "len(media) is never None; it is 0 for an empty one",
    "pass_rate = 1": "invalid syntax at character 11; a condition is expected, e.g. 0 < pass_rate",
    "0 < pass_rate <": "invalid syntax at ",
    "0 < (pass_rate": "'(' was never closed at character 5",
    "pass_rate + 1 > 1": "this is not supported; supported are fields, numbers, texts,",
    "__import__('os').system('true')": "in `__import__('os').system('true')` at character 1",
    "pass_rate.__class__ == 1": "in `pass_rate.__class__` at character 1",
    "(lambda: pass_rate)() < 1": "this is not supported; supported are",
    "[pass_rate for pass_rate in media]": "this is not supported; supported are",
    "len(media, 1) > 1": "this is not supported; supported are",
    "pass_rate < 1j": "in `1j` at character 13",
    "source == b'web'": "in `b'web'` at character 11",
    "media == 1": "media is a list; ask for its length, e.g. len(media) > 0",
    "len(pass_rate) > 1": "pass_rate has no length",
    "extra > 1": "extra is asked by name, e.g. extra['level'] >= 3",
    "extra[0] > 1": "extra['name'], len(field), and, or, not, in `extra[0]` at character 1",
    "extra['a'] == extra['b']": "two JSON values are compared; one side must have a known type",
    "extra['a'] < True": "True and False have no order; compare them with == or !=",
    "1 < 2": "two constants are compared; one side must be a field",
    "True": "a constant keeps every sample or none; compare it with a field",
    "3 in (1, 2)": "`in` with a list takes a field on its left",
    "source in ()": "the list is empty, so no sample is in it",
    "source in ('web')": "`in` takes a list, e.g. ('a', 'b'), or a text field, with a comma",
    "source in (category, 'web')": "the list after `in` holds constants only, in `category`",
    "source in ('web', 3)": "source is compared as text; this is a number, in `3`",
    "'x' in pass_rate": "pass_rate is a number, not a text to look into",
    "source in problem": "`in problem` looks for a text constant, e.g. 'kitchen'",
    "problem_type == 'riddle'": "unknown problem type 'riddle'; known: ",
    "problem_type in ('ocr', 'riddle')": "unknown problem type 'riddle'; known: ",
    "data_type == 'film'": "unknown data type 'film'; known: text, image, video, mixed",
    f"pass_rate < 1{'0' * 400}": "too large",
    "source == '\ud800'": "surrogates not allowed",
    f"{'not ' * 20_000}pass_rate < 1": "",
}


@pytest.mark.parametrize("expression", MISTAKES, ids=lambda text: text[:30])
def test_a_mistake_names_the_setting_the_part_and_what_would_be_right(expression: str) -> None:
    with pytest.raises(UserError) as error:
        compile_filter(expression)
    assert "data.filter" in str(error.value)
    assert MISTAKES[expression] in str(error.value)


def test_a_place_in_several_lines_is_a_line_and_a_character() -> None:
    with pytest.raises(UserError, match=r"in `foo` at line 3, character 6$"):
        compile_filter("0 < pass_rate\n  and (source == 'web'\n  or foo == 1)")


def test_an_expression_may_span_lines(tmp_path: Path) -> None:
    assert kept(table_of(tmp_path, GAPS), "0 < pass_rate  # solved once\n  < 1\n") == ["s/2"]


# Why nothing was kept


def test_the_compared_fields_are_described(tmp_path: Path) -> None:
    table = table_of(tmp_path, GAPS)

    def describe(expression: str) -> str:
        return compile_filter(expression).describe(table)

    assert describe("pass_rate > 1") == "pass_rate: 0 to 1"
    assert describe("source == 'lab'") == "source: '', 'web'"
    assert describe("num_videos > 1 and len(options) > 1") == (
        "num_videos is 0 in all; len(options) is 0 in all"
    )
    assert describe("extra['x'] > 1") == "no sample has extra['x'] that is a number"
    assert compile_filter("pass_rate < 1").describe(table.select([0])) == (
        "no sample has pass_rate (evaluation fills it)"
    )
    many = table_of(tmp_path, [sample(i, source=f"s{i}") for i in range(9)], "many.arrow")
    assert compile_filter("source == 'x'").describe(many).endswith(" and 4 others")
