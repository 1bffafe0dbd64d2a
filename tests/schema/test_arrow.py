from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easyvideor1.schema import arrow
from easyvideor1.schema.codec import FieldError, from_plain, to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import (
    Completion,
    Media,
    MediaKind,
    Prediction,
    PredictionStatus,
    ProblemType,
    Role,
    Sample,
    Score,
    ScoreStatus,
    Segment,
    Source,
    Trajectory,
)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
spans = st.tuples(st.floats(0, 1e6), st.floats(0.001, 1e6)).map(lambda s: (s[0], s[0] + s[1]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
images = st.builds(Media, kind=st.just(MediaKind.image), path=texts.filter(bool))
videos = st.builds(
    lambda path, span: Media(kind=MediaKind.video, path=path, start_s=span[0], end_s=span[1]),
    texts.filter(bool),
    spans | st.just((None, None)),
)
frame_lists = st.builds(
    Media,
    kind=st.just(MediaKind.video),
    frames=st.lists(texts, min_size=1, max_size=3).map(tuple),
    frames_fps=st.floats(0.1, 60),
)
media = st.lists(images | videos | frame_lists, max_size=3).map(tuple)


def tuples(values: st.SearchStrategy[Any], max_size: int = 4) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=max_size).map(tuple)


samples = st.builds(
    Sample,
    id=texts,
    problem=texts,
    answer=json_values,
    problem_type=st.sampled_from(ProblemType),
    media=media,
    options=tuples(texts),
    offline=tuples(
        st.builds(Trajectory, text=texts, source=texts, logprobs=st.none() | tuples(numbers))
    ),
    source=texts,
    category=texts,
    pass_rate=st.none() | st.floats(0, 1),
    extra=st.dictionaries(texts, json_values, max_size=3),
)
token_ids = tuples(st.integers(0, 2**31 - 1))
segments = token_ids.flatmap(
    lambda ids: st.builds(
        Segment,
        token_ids=st.just(ids),
        role=st.sampled_from(Role),
        trainable=st.booleans(),
        media=media,
        logprobs=st.none() | st.lists(numbers, min_size=len(ids), max_size=len(ids)).map(tuple),
        policy_version=st.none() | st.integers(0, 2**40),
    )
)
completions = st.builds(
    Completion,
    segments=tuples(segments),
    text=texts,
    finish_reason=texts,
    source=st.sampled_from(Source),
)
scores = st.builds(
    Score,
    value=numbers,
    parts=st.dictionaries(texts, numbers, max_size=3),
    status=st.sampled_from(ScoreStatus),
    extracted=json_values,
    detail=texts,
)
predictions = st.builds(
    Prediction,
    fingerprint=texts,
    sample_id=texts,
    repeat=st.integers(0, 100),
    status=st.sampled_from(PredictionStatus),
    text=texts,
    token_ids=token_ids,
    finish_reason=texts,
    prompt_tokens=st.integers(0, 2**40),
    seconds=numbers,
    error=texts,
    media=tuples(st.dictionaries(texts, json_values, max_size=2), max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(samples, max_size=3))
def test_samples_come_back_from_arrow_as_they_were(records: list[Sample]):
    check_round_trip(records, Sample)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(completions, max_size=3))
def test_completions_come_back_from_arrow_as_they_were(records: list[Completion]):
    check_round_trip(records, Completion)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(scores, max_size=3))
def test_scores_come_back_from_arrow_as_they_were(records: list[Score]):
    check_round_trip(records, Score)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(predictions, max_size=3))
def test_predictions_come_back_from_arrow_as_they_were(records: list[Prediction]):
    check_round_trip(records, Prediction)


def check_round_trip(records: list[Any], record_type: type) -> None:
    table = arrow.to_arrow(records, record_type)
    assert table.schema.equals(arrow.SCHEMAS[record_type], check_metadata=True)
    assert arrow.from_arrow(table, record_type) == records
    for record in records:
        plain = to_plain(record)
        assert from_plain(record_type, plain) == record


def answered(answer: Any) -> Sample:
    return Sample(id="1", problem="?", answer=answer, problem_type=ProblemType.open_ended)


@pytest.mark.parametrize("answer", ["4", 4, 4.0, True, "true", None, {"time": [1, 2.5]}, [1, "a"]])
def test_an_answer_keeps_its_type(answer: Any):
    (back,) = arrow.from_arrow(arrow.to_arrow([answered(answer)], Sample), Sample)
    assert back.answer == answer
    assert type(back.answer) is type(answer)


def test_a_table_of_another_version_names_both_versions():
    table = arrow.to_arrow([answered(1)], Sample)
    metadata = dict(table.schema.metadata) | {b"easyvideor1.version": b"7"}
    with pytest.raises(UserError) as caught:
        arrow.from_arrow(table.replace_schema_metadata(metadata), Sample, "old.arrow")
    assert str(caught.value) == (
        "old.arrow holds Sample records of version 7, this easyvideor1 reads version 1; write the "
        "file again from its source, or use a matching release"
    )


def test_a_table_of_another_record_is_refused_by_name():
    score = Score(value=1.0, parts={})
    with pytest.raises(UserError, match=r"a\.arrow holds Score records, expected Sample records"):
        arrow.from_arrow(arrow.to_arrow([score], Score), Sample, "a.arrow")


def test_a_table_without_a_version_is_refused():
    with pytest.raises(UserError, match="carries no easyvideor1 record version"):
        arrow.from_arrow(pa.table({"id": ["1"]}), Sample)


def test_a_table_whose_columns_were_changed_is_refused():
    table = arrow.to_arrow([answered(1)], Sample).drop_columns(["answer"])
    with pytest.raises(UserError, match="its columns are id, problem, problem_type"):
        arrow.from_arrow(table, Sample)


def test_every_schema_names_its_record_and_version():
    for record_type, schema in arrow.SCHEMAS.items():
        assert schema.metadata[b"easyvideor1.record"] == record_type.__name__.encode()
        assert schema.names == [name for name in record_type.__dataclass_fields__]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "film", "path": "a"}, "kind: got 'film', expected one of image, video"),
        ({"path": "a"}, "kind: got None, expected a value; the field is missing"),
        ({"kind": "video", "path": 3}, "path: got 3, expected text"),
        ({"kind": "video", "path": "a", "fps": 2}, "fps: got 2, expected only the fields kind"),
        ({"kind": "video", "path": "a", "start_s": True}, "start_s: got True, expected a number"),
        ({"kind": "video", "path": "a", "frames": "b"}, "frames: got 'b', expected a list"),
        ({"kind": "video", "path": "a", "start_s": -1}, "start_s must be 0 or more"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values: dict[str, Any], message: str):
    with pytest.raises(FieldError) as caught:
        from_plain(Media, values)
    assert message in str(caught.value)


def test_errors_within_lists_say_where():
    values = to_plain(answered(1)) | {"media": [{"kind": "image", "path": "a.png"}, {"kind": "x"}]}
    with pytest.raises(FieldError, match=r"media\[1\]\.kind: got 'x'"):
        from_plain(Sample, values)


def test_null_stands_for_the_default():
    media = from_plain(Media, {"kind": "video", "path": "a.mp4", "frames": None, "end_s": None})
    assert media == Media(kind=MediaKind.video, path="a.mp4")


def test_a_table_survives_a_file(tmp_path: Path):
    path = tmp_path / "scores.arrow"
    table = arrow.to_arrow([Score(value=0.5, parts={"accuracy": 0.5})], Score)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pa.memory_map(str(path)) as source:
        assert arrow.from_arrow(pa.ipc.open_file(source).read_all(), Score)[0].value == 0.5
