import json
import logging
from pathlib import Path

import pytest

from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.records import Prediction, PredictionStatus


def test_appended_records_are_read_back_in_order(tmp_path: Path):
    path = tmp_path / "new" / "results.jsonl"
    jsonl.append(path, [{"id": 1, "text": "één ☂"}])
    jsonl.append(path, [{"id": 2}, {"id": 3}])
    jsonl.append(path, [])
    assert jsonl.read(path) == [{"id": 1, "text": "één ☂"}, {"id": 2}, {"id": 3}]


def test_records_are_written_as_plain_values(tmp_path: Path):
    path = tmp_path / "predictions.jsonl"
    prediction = Prediction(
        fingerprint="f", sample_id="s", status=PredictionStatus.truncated, token_ids=(1, 2)
    )
    jsonl.append(path, [prediction])
    (row,) = jsonl.read(path)
    assert row["status"] == "truncated"
    assert row["token_ids"] == [1, 2]


def test_a_torn_last_line_is_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "results.jsonl"
    path.write_text('{"id": 1}\n{"id": 2, "te')
    with caplog.at_level(logging.WARNING):
        assert jsonl.read(path) == [{"id": 1}]
    assert f"{path}:2: left out a torn last line" in caplog.text


def test_appending_after_a_torn_line_removes_it_first(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"id": 1}\n{"id": 2, "te')
    jsonl.append(path, [{"id": 3}])
    assert path.read_text() == '{"id": 1}\n{"id": 3}\n'


def test_a_complete_last_line_without_newline_is_kept(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"id": 1}\n{"id": 2}')
    assert jsonl.read(path) == [{"id": 1}, {"id": 2}]
    jsonl.append(path, [{"id": 3}])
    assert [row["id"] for row in jsonl.read(path)] == [1, 2, 3]


def test_every_cut_leaves_the_complete_lines_and_can_be_continued(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    jsonl.append(path, [{"id": 1, "text": "aé"}, {"id": 2, "text": 'b"}'}])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        jsonl.append(path, [{"id": 9}])
        ids = [row["id"] for row in jsonl.read(path)]
        assert ids == ([1, 2, 9] if cut == len(whole) - 1 else [1, 9])


def test_a_torn_line_longer_than_a_block_is_removed(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"id": 1}\n{"text": "' + b"x" * 200_000)
    jsonl.append(path, [{"id": 2}])
    assert jsonl.read(path) == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("middle", ['{"id": 2, "te', "[1, 2]", "\x00\x00\x00"])
def test_a_damaged_line_in_the_middle_is_an_error_with_its_row(tmp_path: Path, middle: str):
    path = tmp_path / "results.jsonl"
    path.write_text(f'{{"id": 1}}\n{middle}\n{{"id": 3}}\n')
    with pytest.raises(DataError, match=r"results\.jsonl:2:line: got .* expected a JSON object"):
        jsonl.read(path)


def test_what_json_does_not_have_is_refused_before_anything_is_written(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="JSON compliant"):
        jsonl.append(path, [{"loss": 1.0}, {"loss": float("nan")}])
    assert not path.exists()


def test_an_empty_file_has_no_rows(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text("")
    assert jsonl.read(path) == []
    jsonl.append(path, [{"id": 1}])
    assert json.loads(path.read_text()) == {"id": 1}
