"""Stored answers: append-only, resumed by key, comparable by protocol."""

import json
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate import protocol as protocols
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.evaluate.results import ResultFolder
from easyvideor1.preprocess.config import Decoder
from easyvideor1.preprocess.decoders import resolve_decoder
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import (
    Media,
    MediaKind,
    Prediction,
    PredictionStatus,
    ProblemType,
    Sample,
)

RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
SAMPLES = [
    Sample(
        id=f"s{number}",
        problem="Which colour?",
        answer="A",
        problem_type=ProblemType.multiple_choice,
        options=("red", "blue"),
        media=(Media(kind=MediaKind.video, path=f"/videos/{number}.mp4"),),
    )
    for number in range(3)
]


def described(model: str, *overrides: str) -> protocols.Protocol:
    register()
    config = compose("evaluate", list(overrides), EvaluateConfig)
    (benchmark,) = config.benchmarks.values()
    return protocols.describe(
        "toybox", config, benchmark, SAMPLES, model=model_identity(model), rules=RULES
    )


def prediction(folder: ResultFolder, name: str, **fields: Any) -> Prediction:
    defaults: dict[str, Any] = {"status": PredictionStatus.ok, "text": "A"}
    return Prediction(fingerprint=folder.fingerprint, sample_id=name, **defaults | fields)


@pytest.fixture
def protocol() -> protocols.Protocol:
    return {
        "answers": {"benchmark": "toybox", "frames": {"fps": 2.0}},
        "scoring": {"rewards_code": "1"},
    }


def test_answers_come_back_and_the_newest_of_one_key_counts(
    tmp_path: Path, protocol: protocols.Protocol
) -> None:
    folder = ResultFolder(tmp_path / "toybox", protocol)
    folder.open()
    failed = prediction(folder, "a", status=PredictionStatus.load_failed, text="", error="gone")
    folder.append([failed, prediction(folder, "b", media=({"key": "k", "frames": 4},))])
    folder.append([prediction(folder, "a")])
    found = folder.predictions()
    assert [(p.sample_id, p.status.value) for p in found] == [("a", "ok"), ("b", "ok")]
    assert found[1].media == ({"key": "k", "frames": 4},)


def test_a_torn_last_line_is_asked_again(tmp_path: Path, protocol: protocols.Protocol) -> None:
    folder = ResultFolder(tmp_path / "toybox", protocol)
    folder.open()
    folder.append([prediction(folder, "a"), prediction(folder, "b")])
    file = folder.path / "predictions.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert [p.sample_id for p in folder.predictions()] == ["a"]
    folder.append([prediction(folder, "b")])
    assert [p.sample_id for p in folder.predictions()] == ["a", "b"]


def test_a_change_of_scoring_keeps_the_answers(
    tmp_path: Path, protocol: protocols.Protocol
) -> None:
    old = ResultFolder(tmp_path / "toybox", protocol)
    old.open()
    old.append([prediction(old, "a"), prediction(old, "b")])
    rescored = protocol | {"scoring": {"rewards_code": "2"}}
    old.close()
    new = ResultFolder(tmp_path / "toybox", rescored)
    assert new.path != old.path
    assert new.open() == 2
    assert [p.text for p in new.predictions()] == ["A", "A"]
    assert {p.fingerprint for p in new.predictions()} == {new.fingerprint}
    other = protocol | {"answers": {"benchmark": "toybox", "frames": {"fps": 1.0}}}
    assert ResultFolder(tmp_path / "toybox", other).open() == 0


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, protocol: protocols.Protocol) -> None:
    first = ResultFolder(tmp_path / "toybox", protocol)
    first.open()
    with pytest.raises(UserError, match="another run is writing to"):
        ResultFolder(tmp_path / "toybox", protocol).open()
    first.close()
    ResultFolder(tmp_path / "toybox", protocol).open()


def test_scoring_what_was_never_answered_names_the_difference(
    tmp_path: Path, protocol: protocols.Protocol
) -> None:
    stored = ResultFolder(tmp_path / "toybox", protocol)
    stored.open()
    stored.append([prediction(stored, "a")])
    other = protocol | {"answers": {"benchmark": "toybox", "frames": {"fps": 1.0}}}
    with pytest.raises(UserError, match=r"differs in answers\.frames\.fps; run with job=run first"):
        ResultFolder(tmp_path / "toybox", other).require()


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("benchmarks.toybox.budget.video.fps=1.0", "answers.frames.budget.video.fps"),
        ("benchmarks.toybox.budget.video.max_frames=8", "answers.frames.budget.video.max_frames"),
        ("benchmarks.toybox.prompt.text='Look: {question}'", "answers.prompt.text"),
        ("+model.template.enable_thinking=false", "answers.prompt.chat_template.enable_thinking"),
        ("benchmarks.toybox.generation.max_new_tokens=7", "answers.generation.max_new_tokens"),
        ("benchmarks.toybox.repeats=2", "answers.repeats"),
        ("blank_frames=true", "answers.frames.blank"),
        ("engine.dtype=float16", "answers.engine.dtype"),
        ("decode.decoder=pyav", "answers.frames.decoders.pyav"),
        ("benchmarks.toybox.metric=temporal_grounding", "scoring.metric"),
        ("benchmarks.toybox.extractor.rule=polished", "scoring.extractor.rule"),
    ],
)
def test_what_changes_a_number_changes_the_fingerprint(
    tiny_model_path: str, override: str, field: str
) -> None:
    if "decoder" in override and resolve_decoder(Decoder.auto) == "pyav":
        pytest.skip("torchcodec is not available, so PyAV is no change")
    ours, theirs = described(tiny_model_path), described(tiny_model_path, override)
    assert protocols.fingerprint(ours) != protocols.fingerprint(theirs)
    assert field in protocols.differences(ours, theirs)


@pytest.mark.parametrize(
    "override", ["pipeline.load_workers=1", "engine.max_num_seqs=3", "report.max_samples=1"]
)
def test_what_changes_only_speed_does_not(tiny_model_path: str, override: str) -> None:
    ours, theirs = described(tiny_model_path), described(tiny_model_path, override)
    assert protocols.fingerprint(ours) == protocols.fingerprint(theirs)


def test_a_model_is_known_by_its_files_not_by_its_folder(
    tiny_model_path: str, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(tiny_model_path, copy)
    assert protocols.model_identity(str(copy)) == protocols.model_identity(tiny_model_path)
    config = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(config | {"temperature": 0.5}))
    assert protocols.model_identity(str(copy)) != protocols.model_identity(tiny_model_path)
