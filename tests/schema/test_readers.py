"""Files, the cache of conversions, our own format, and the table of samples."""

import itertools
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from easyvideor1.schema import convert
from easyvideor1.schema.arrow import to_arrow
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.readers import SampleTable, missing_media, read_samples, write_samples
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample, Score, Trajectory
from easyvideor1.schema.table import problem_types_of


def row(number: int, **changes: Any) -> dict[str, Any]:
    values = {
        "problem_id": number,
        "problem": f"How many steps has stair {number}?",
        "problem_type": "numerical",
        "data_type": "video",
        "path": f"stairs/{number}.mp4",
        "solution": f"<answer>{number}</answer>",
    }
    return values | changes


def sample(number: int, **changes: Any) -> Sample:
    values: dict[str, Any] = {
        "id": f"own/{number}",
        "problem": "<video>Which colour?",
        "answer": "B",
        "problem_type": ProblemType.multiple_choice,
        "options": ("A. Lincoln red", "blue"),
        "media": (Media(kind=MediaKind.video, path=f"/clips/{number}.mp4", end_s=2.0),),
        "offline": (Trajectory(text="<answer>B</answer>", logprobs=(-0.5, -1.25)),),
        "pass_rate": 0.5,
        "extra": {"seed": number, "tags": ["a", None]},
    }
    return Sample(**(values | changes))


# Files


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_json_files_are_read_in_order(write_rows, read, name: str):
    table = read(write_rows(name, [row(3), row(1), row(2)]))
    assert [s.id for s in table] == ["rows/3", "rows/1", "rows/2"]


def test_parquet_and_foreign_arrow_files_are_read(read, tmp_path: Path):
    rows = pa.Table.from_pylist([row(1), row(2, note="x")])
    pq.write_table(rows, tmp_path / "a.parquet")
    for name, new_ipc in (("b.arrow", pa.ipc.new_file), ("c.arrow", pa.ipc.new_stream)):
        # Hugging Face data sets are streams.
        with pa.OSFile(str(tmp_path / name), "wb") as sink, new_ipc(sink, rows.schema) as writer:
            writer.write_table(rows)
    table = read([tmp_path / "a.parquet", tmp_path / "b.arrow", tmp_path / "c.arrow"])
    assert [s.id for s in table] == ["a/1", "a/2", "b/1", "b/2", "c/1", "c/2"]
    assert {s.answer for s in table} == {"1", "2"}


def test_objects_one_after_another_in_a_json_file_are_rows(tmp_path: Path, read):
    path = tmp_path / "rows.json"
    path.write_text("\ufeff" + json.dumps(row(1), indent=2) + "\n" + json.dumps(row(2)) + "\n")
    assert len(read(path)) == 2


def test_folders_globs_and_several_files(write_rows, read, tmp_path: Path):
    write_rows("set/b.jsonl", [row(1)])
    write_rows("set/a.json", [row(1)])
    write_rows("other/c.jsonl", [row(1)])
    (tmp_path / "set" / "clip.mp4").write_bytes(b"")
    assert read(tmp_path / "set").ids == ["a/1", "b/1"]
    assert read(str(tmp_path / "*" / "*.jsonl")).ids == ["c/1", "b/1"]
    assert read([str(tmp_path / "other"), tmp_path / "set" / "b.jsonl"]).ids == ["c/1", "b/1"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("trian.jsonl", "trian.jsonl does not exist. Did you mean"),
        ("no/where/a.json", "Its folder"),
        ("*.parquet", "no file matches"),
        ("empty", "holds no .json .jsonl .parquet .arrow file"),
        ("notes.txt", "cannot read .txt files, only .json .jsonl .parquet .arrow"),
    ],
)
def test_sources_that_name_no_data_are_errors(
    write_rows, read, tmp_path: Path, source: str, message: str
):
    write_rows("train.jsonl", [row(1)])
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UserError) as caught:
        read(tmp_path / source)
    assert message in str(caught.value)


def test_no_source_is_an_error(read):
    with pytest.raises(UserError, match="no data files are named"):
        read([])


def test_a_file_named_twice_is_an_error(write_rows, read, tmp_path: Path):
    path = write_rows("train.jsonl", [row(1)])
    with pytest.raises(UserError, match=r"train\.jsonl is named twice"):
        read([path, tmp_path / "*.jsonl"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            b'[{"problem": "x"}, {"prob',
            "a.json:2:row: got '{\"prob', expected a JSON list",
        ),
        (
            "a.json",
            b'[{"problem_id": 1} {"problem_id": 2}]',
            "expected , or ] after the row; line 1",
        ),
        ("a.json", b'[{"problem": "x"},', "the list is never closed: a torn file"),
        ("a.json", b'["text"]', "a.json:1:row: got 'text', expected a JSON object"),
        ("a.json", b"\xff\xfe{\x00", "a.json is not UTF-8 text"),
        ("a.json", b"[" * 100_000, "a.json:1:row"),
        ("a.json", b"[]", "a.json holds no rows"),
        ("a.json", b"", "a.json holds no rows"),
        ("a.jsonl", b"\n\n", "a.jsonl holds no rows"),
        ("a.jsonl", b'{"problem": "x"', 'a.jsonl:1:line: got \'{"problem": "x"\', expected a JSON'),
        ("a.jsonl", b"[1]", "a.jsonl:1:row: got [1], expected a JSON object"),
        ("a.jsonl", b'{"a": "\xe9"}', "a.jsonl:1:line"),
        ("a.jsonl", b'{"a": ' + b"[" * 100_000, "a.jsonl:1:line"),
        ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}", "a.jsonl:1:line"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read as parquet"),
        ("a.arrow", b"ARROW1\x00\x00", "a.arrow cannot be read as arrow"),
        ("a.arrow", b"", "a.arrow cannot be read as arrow"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, read, name: str, content: bytes, message: str):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


# Bad rows


def test_the_first_bad_row_raises_and_nothing_is_cached(write_rows, read, tmp_path: Path):
    path = write_rows("rows.jsonl", [row(1), row(2, problem_type="riddle"), row(3, solution=None)])
    with pytest.raises(DataError) as caught:
        read(path)
    assert (caught.value.row, caught.value.field, caught.value.value) == (
        2,
        "problem_type",
        "riddle",
    )
    assert not list((tmp_path / "cache" / "samples").glob("*/samples.arrow"))


def test_bad_rows_are_skipped_counted_and_kept(write_rows, read, caplog: pytest.LogCaptureFixture):
    rows = [row(1), row(2, problem_type="riddle"), row(3), row(4, options=[{"a": [1, 2]}])]
    path = write_rows("rows.jsonl", rows)
    with path.open("a") as file:
        file.write('{"torn": ')
    with caplog.at_level(logging.WARNING):
        table = read(path, on_bad_row="skip")
    assert table.ids == ["rows/1", "rows/3"]
    assert [(error.row, error.field) for error in table.skipped] == [
        (2, "problem_type"),
        (4, "options"),
        (5, "line"),
    ]
    assert "skipped 3 bad rows, kept 2; the first:" in caplog.text
    assert "rows.jsonl:2:problem_type: got 'riddle'" in caplog.text
    again = read(path, on_bad_row="skip")
    assert [str(error) for error in again.skipped] == [str(error) for error in table.skipped]
    with pytest.raises(DataError, match="2:problem_type"):
        read(path)


def test_a_file_of_bad_rows_only_is_an_error_even_when_skipping(write_rows, read):
    with pytest.raises(DataError, match="1:problem_type"):
        read(write_rows("rows.jsonl", [row(1, problem_type="riddle")]), on_bad_row="skip")


def test_a_list_that_breaks_off_is_an_error_even_when_skipping(tmp_path: Path, read):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row(1)])[:-1] + ', {"problem')
    with pytest.raises(DataError, match="Rows after it cannot be read"):
        read(path, on_bad_row="skip")


def test_on_bad_row_has_two_choices(write_rows, read):
    with pytest.raises(UserError, match="on_bad_row must be one of raise, skip, got 'ignore'"):
        read(write_rows("rows.jsonl", [row(1)]), on_bad_row="ignore")


def test_an_id_that_stands_twice_in_a_file_is_a_bad_row(write_rows, read):
    path = write_rows("rows.jsonl", [row(1), row(2), row(1)])
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}:3:id: got 'rows/1', expected an id of its own; row 1 has it"
    )


def test_an_id_that_two_files_share_is_an_error(write_rows, read):
    one, two = write_rows("a/rows.jsonl", [row(1)]), write_rows("b/rows.jsonl", [row(1)])
    with pytest.raises(UserError) as caught:
        read([one, two])
    assert f"the id 'rows/1' stands in {one} and {two} more than once" in str(caught.value)
    assert "rename one of two files" in str(caught.value)


# Our own format


def test_our_own_rows_are_the_fields_of_a_sample(write_rows, read, tmp_path: Path):
    rows = [
        {
            "id": "colours/1",
            "problem": "Which colour?",
            "answer": "blue",
            "problem_type": "multiple choice",
            "options": ["red", "blue"],
            "media": [{"kind": "video", "path": "clips/1.mp4", "start_s": 1, "end_s": 3.5}],
            "offline": [{"text": "<answer>B</answer>", "source": "teacher"}],
            "extra": {"seed": 4},
        },
        {"id": "colours/2", "problem": "2 + 2?", "answer": 4, "problem_type": "numerical"},
        {"id": "colours/3", "problem": "Hidden?", "answer": None, "problem_type": "boolean"},
    ]
    table = read(write_rows("train.jsonl", rows))
    assert table[0] == Sample(
        id="colours/1",
        problem="Which colour?",
        answer="B",
        problem_type=ProblemType.multiple_choice,
        options=("red", "blue"),
        media=(
            Media(kind=MediaKind.video, path=str(tmp_path / "clips/1.mp4"), start_s=1.0, end_s=3.5),
        ),
        offline=(Trajectory(text="<answer>B</answer>", source="teacher"),),
        extra={"seed": 4},
    )
    assert [s.answer for s in table] == ["B", 4, None]
    assert table[1].data_type == "text"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "colour: got 'red', expected only the fields id, problem, answer"),
        ({"media": [{"kind": "film", "path": "a"}]}, "media[0].kind: got 'film', expected one of"),
        ({"media": [{"kind": "video", "path": "a", "fps": 2}]}, "media[0].fps: got 2"),
        ({"media": [{"kind": "video"}]}, "a medium has either a path or a list of frames"),
        ({"media": {"kind": "video"}}, "media: got {'kind': 'video'}, expected a list"),
        ({"offline": [{"source": "x"}]}, "offline[0].text: got None, expected a value"),
        ({"answer": ...}, "answer: got None, expected the gold answer, or null"),
        ({"id": ...}, "id: got None, expected a value; the field is missing"),
        ({"id": ""}, "id: got '', expected text that is not empty"),
        ({"id": 5}, "id: got 5, expected text"),
        ({"problem_type": "riddle"}, "problem_type: got 'riddle', expected one of"),
        ({"options": [1]}, "options[0]: got 1, expected text"),
        ({"answer": "C"}, "answer: got 'C', expected a letter from A to B or the text"),
        ({"pass_rate": 2}, "pass_rate: got 2, expected a number from 0 to 1"),
        ({"problem_type": "tracking", "answer": "x"}, "expected a JSON object or list"),
    ],
)
def test_a_bad_row_of_our_own_format_is_named(
    write_rows, read, changes: dict[str, Any], message: str
):
    values = {
        "id": "1",
        "problem": "Which?",
        "answer": "A",
        "problem_type": "multiple_choice",
        "options": ["x", "y"],
    } | changes
    values = {name: value for name, value in values.items() if value is not ...}
    with pytest.raises(DataError) as caught:
        read(write_rows("own.jsonl", [values]), format="samples")
    assert message in str(caught.value)
    assert "own.jsonl:1:" in str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".arrow", ".parquet"])
def test_written_samples_are_read_back_as_they_were(read, tmp_path: Path, suffix: str):
    samples = [
        sample(1),
        sample(2, answer="A", options=("A. red", "B. blue"), offline=()),
        sample(3, answer=None, pass_rate=None, extra={}, source="s", category="c"),
        Sample(id="t", problem="?", answer={"a": [1, 2.5, True]}, problem_type=ProblemType.code),
        sample(
            4,
            media=(Media(kind=MediaKind.video, frames=("/a/1.png", "/a/2.png"), frames_fps=2.0),),
        ),
    ]
    path = tmp_path / "out" / f"samples{suffix}"
    write_samples(path, samples)
    assert list(read(path)) == samples
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_jsonl_rows_leave_out_what_a_reader_fills_in(tmp_path: Path):
    path = tmp_path / "samples.jsonl"
    media = (Media(kind=MediaKind.video, path="clips/1.mp4"),)
    write_samples(path, [sample(1, offline=(), extra={}, pass_rate=None, media=media)])
    assert json.loads(path.read_text()) == {
        "id": "own/1",
        "problem": "<video>Which colour?",
        "answer": "B",
        "problem_type": "multiple_choice",
        "media": [{"kind": "video", "path": "clips/1.mp4"}],
        "options": ["A. Lincoln red", "blue"],
    }


def test_other_suffixes_are_not_written(tmp_path: Path):
    with pytest.raises(UserError, match=r"samples are written as \.jsonl, \.arrow, \.parquet"):
        write_samples(tmp_path / "samples.csv", [sample(1)])


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    problem=texts.filter(str.strip),
    answer=st.integers() | st.booleans() | texts | st.floats(allow_nan=False, allow_infinity=False),
    extra=st.dictionaries(texts, texts | st.integers() | st.lists(st.booleans()), max_size=3),
)
def test_any_text_survives_our_jsonl(
    tmp_path_factory: pytest.TempPathFactory, problem: str, answer: Any, extra: dict[str, Any]
):
    if "<image>" in problem or "<video>" in problem:
        return
    folder = tmp_path_factory.mktemp("jsonl")
    written = Sample(
        id="1", problem=problem, answer=answer, problem_type=ProblemType.open_ended, extra=extra
    )
    write_samples(folder / "a.jsonl", [written])
    (back,) = read_samples(folder / "a.jsonl", cache_dir=folder / "cache", progress=False)
    assert back == written
    assert type(back.answer) is type(answer)


def test_our_arrow_file_is_mapped_where_it_lies(read, tmp_path: Path):
    path = tmp_path / "samples.arrow"
    write_samples(path, [sample(1, media=(Media(kind=MediaKind.video, path="1.mp4"),))])
    assert read(path)[0].media[0].path == str(tmp_path / "1.mp4")
    assert not (tmp_path / "cache").exists()


def test_an_arrow_file_of_another_version_names_both(read, tmp_path: Path):
    table = to_arrow([sample(1)], Sample)
    metadata = dict(table.schema.metadata) | {b"easyvideor1.version": b"9"}
    path = tmp_path / "samples.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(UserError, match=r"Sample records of version 9, .* reads version 1"):
        read(path)


def test_a_file_of_other_records_is_refused(read, tmp_path: Path):
    pq.write_table(to_arrow([Score(value=1.0, parts={})], Score), tmp_path / "scores.parquet")
    with pytest.raises(UserError, match="holds Score records, expected Sample records"):
        read(tmp_path / "scores.parquet")


# Media


def test_media_paths_start_at_the_media_root(write_rows, read, tmp_path: Path):
    (tmp_path / "videos").mkdir()
    path = write_rows("rows.jsonl", [row(1, path="./a.mp4"), row(2, path="/abs/b.mp4")])
    table = read(path, media_root=tmp_path / "videos")
    assert [s.media[0].path for s in table] == [str(tmp_path / "videos/a.mp4"), "/abs/b.mp4"]
    with pytest.raises(UserError, match=r"media_root=.*nowhere is not a folder"):
        read(path, media_root=tmp_path / "nowhere")


def test_missing_media_are_listed_with_their_samples(write_rows, read, tmp_path: Path):
    (tmp_path / "stairs").mkdir()
    (tmp_path / "stairs" / "1.mp4").write_bytes(b"")
    table = read(write_rows("rows.jsonl", [row(1), row(2), row(3, path="stairs/2.mp4")]))
    gone = str(tmp_path / "stairs" / "2.mp4")
    assert missing_media(table) == [("rows/2", gone), ("rows/3", gone)]


# The cache of conversions


def count_parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    parsed: list[int] = []
    parse = convert.parse

    def counting(values: Any, number: int, context: Any) -> Sample:
        parsed.append(number)
        return parse(values, number, context)

    monkeypatch.setattr(convert, "parse", counting)
    return parsed


def test_a_file_is_converted_once(write_rows, read, monkeypatch: pytest.MonkeyPatch):
    parsed = count_parses(monkeypatch)
    path = write_rows("rows.jsonl", [row(1), row(2)])
    assert read(path).ids == read(path).ids
    assert parsed == [1, 2]


def test_the_same_content_elsewhere_is_not_converted_again(
    write_rows, read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parsed = count_parses(monkeypatch)
    first = read(write_rows("a/rows.jsonl", [row(1)]))
    second = read(write_rows("b/rows.jsonl", [row(1)]))
    assert parsed == [1]
    assert first[0].media[0].path == str(tmp_path / "a/stairs/1.mp4")
    assert second[0].media[0].path == str(tmp_path / "b/stairs/1.mp4")


def test_a_changed_file_is_converted_again_even_with_its_old_size_and_time(write_rows, read):
    path = write_rows("rows.jsonl", [row(1)])
    old = os.stat(path)
    assert read(path)[0].answer == "1"
    path.write_text(path.read_text().replace("<answer>1<", "<answer>7<"))
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert read(path)[0].answer == "7"


def test_an_unchanged_file_is_not_hashed_again(
    write_rows, read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(convert, "_RACY_NS", -1)  # files of a test are always this young
    path = write_rows("rows.jsonl", [row(1)])
    read(path)
    monkeypatch.setattr(convert.hashlib, "file_digest", None)
    assert len(read(path)) == 1


def test_options_that_change_samples_have_conversions_of_their_own(write_rows, read):
    path = write_rows("rows.jsonl", [{"problem": "1 + 1?", "answer": "2"}])
    assert read(path, problem_type="math")[0].problem_type is ProblemType.math
    assert read(path, problem_type="ocr")[0].problem_type is ProblemType.ocr


def test_a_conversion_killed_half_way_leaves_nothing_that_is_read(write_rows, read, tmp_path: Path):
    path = write_rows("rows.jsonl", [row(number) for number in range(5000)])
    script = f"""
import os, signal
from pathlib import Path
from easyvideor1.schema import convert
from easyvideor1.schema.readers import read_samples
parse = convert.parse
def dying(values, number, context):
    if number == 3000:
        os.kill(os.getpid(), signal.SIGKILL)
    return parse(values, number, context)
convert.parse = dying
read_samples({str(path)!r}, cache_dir=Path({str(tmp_path / "cache")!r}), progress=False)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert len(read(path)) == 5000


def test_without_a_cache_folder_conversions_go_to_the_outputs(
    write_rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path / "outputs"))
    read_samples(write_rows("rows.jsonl", [row(1)]), progress=False)
    assert len(list((tmp_path / "outputs" / "cache" / "samples").glob("*/samples.arrow"))) == 1


def test_a_long_conversion_shows_a_bar_with_rate_and_remaining_time(
    write_rows, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(convert, "BAR_DELAY_S", 0.0)
    path = write_rows("rows.jsonl", [row(number) for number in range(3000)])
    read_samples(path, cache_dir=tmp_path / "cache")
    shown = capfd.readouterr().err
    assert "reading rows.jsonl" in shown
    assert "B/s]" in shown


# The table


@pytest.fixture
def table(write_rows, read) -> SampleTable:
    paths = [
        write_rows("a.jsonl", [row(number) for number in range(1500)]),
        write_rows("b.jsonl", [row(number) for number in range(700)]),
    ]
    return read(paths)


def test_a_table_is_a_sequence(table: SampleTable):
    assert len(table) == 2200
    assert table[0].id == "a/0"
    assert table[1499].id == "a/1499"
    assert table[1500].id == "b/0"
    assert table[-1].id == "b/699"
    with pytest.raises(IndexError):
        table[2200]
    assert [s.id for s in itertools.islice(table, 1498, 1502)] == ["a/1498", "a/1499", "b/0", "b/1"]
    assert table.ids == [s.id for s in table]


def test_slices_and_selections_are_tables(table: SampleTable):
    assert table[1499:1502].ids == ["a/1499", "b/0", "b/1"]
    assert table[::-1].ids == table.ids[::-1]
    assert table[::-1][0].id == "b/699"
    chosen = table.select([5, 1500, 5])
    assert chosen.ids == [s.id for s in chosen] == ["a/5", "b/0", "a/5"]
    assert chosen[1:].select([1]).ids == ["a/5"]
    assert table[5:5].ids == []


def test_a_pickled_table_carries_paths_not_rows(table: SampleTable):
    data = pickle.dumps(table[10:2000])
    assert len(data) < 2000
    back = pickle.loads(data)
    assert back.ids == table[10:2000].ids
    assert back[0] == table[10]


def test_a_table_names_its_files(table: SampleTable):
    assert repr(table).startswith("SampleTable(2200 samples of ")
    assert "a.jsonl" in repr(table)


def test_reading_samples_imports_no_engine():
    script = (
        "import sys, easyvideor1.schema.readers\n"
        "heavy = {'torch', 'ray', 'vllm', 'transformers', 'hydra', 'numpy'} & set(sys.modules)\n"
        "assert not heavy - {'numpy'}, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_problem_types_of_a_table_are_those_of_its_rows(tmp_path: Path):
    kinds = [ProblemType.boolean, ProblemType.numerical, ProblemType.boolean]
    samples = [
        Sample(id=str(number), problem="?", answer=1, problem_type=kind)
        for number, kind in enumerate(kinds)
    ]
    write_samples(tmp_path / "a.arrow", samples)
    table = read_samples(tmp_path / "a.arrow", cache_dir=tmp_path / "cache")
    for these in (table, samples):
        assert problem_types_of(these) == {ProblemType.boolean, ProblemType.numerical}
        assert problem_types_of(these[::2]) == {ProblemType.boolean}
        assert problem_types_of(these[:0]) == set()


def test_a_damaged_conversion_is_named_with_the_way_out(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    write_samples(source, [sample(number) for number in range(3)])
    (part,) = read_samples(source, cache_dir=tmp_path / "cache")._parts
    with part.arrow_path.open("r+b") as file:
        file.seek(part.arrow_path.stat().st_size // 2)
        file.write(b"\xff" * 64)
        file.truncate(part.arrow_path.stat().st_size - 300)
    folder = part.arrow_path.parent
    anew = rf"{part.arrow_path} is no whole Arrow IPC file .* of {source}: delete {folder}, and it"
    with pytest.raises(UserError, match=anew):
        read_samples(source, cache_dir=tmp_path / "cache")
    shutil.rmtree(folder)
    assert len(read_samples(source, cache_dir=tmp_path / "cache")) == 3
