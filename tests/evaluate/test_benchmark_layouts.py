"""Every benchmark's fixture records in both layouts, and what the model is asked about them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate.aggregates import METRICS
from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.metrics import summarize
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.rewards import RewardConfig, render_gold, reward
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import Prediction, PredictionStatus, ProblemType, Sample
from tests.evaluate.benchmark_fixtures import LAYOUTS, NAMES, config_of, files_of, samples_of

PROMPTS = Path(__file__).parent / "prompts"
ONLY_RELEASED = {
    "mlvu": lambda sample: sample.problem_type is ProblemType.open_ended,
    "video_mmmu": lambda sample: sample.category == "Question only",
    "tempcompass": lambda sample: sample.category != "multi-choice",
}
"""Questions that the converted file lacks."""
CUT = frozenset({"livesports3k", "odv_bench"})
"""Benchmarks whose converted file names clips that were cut out."""
OTHER = frozenset({"stvg"})
"""Benchmarks whose converted file has other questions than the release that we read."""
OWN_FORM = frozenset({"charades_sta", "stvg", "videoreasonbench"})
"""Benchmarks whose rows have their gold answer in no one field, or may lack it."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_fixture_records_are_read(name: str, layout: str) -> None:
    samples = samples_of(name, layout)
    assert samples
    for sample in samples:
        assert sample.id.startswith(f"{name}/") and sample.source == name
        assert all(medium.path.startswith("/videos/") for medium in sample.media)
        assert sample.media or sample.category == "Question only"
        if sample.answer is not None:
            assert reward(sample, render_gold(sample)).parts["accuracy"] == 1


@pytest.mark.parametrize("name", sorted(set(NAMES) - OTHER))
def test_both_layouts_hold_the_same_questions(name: str) -> None:
    released, converted = (samples_of(name, layout) for layout in LAYOUTS)
    is_missing = ONLY_RELEASED.get(name, lambda _: False)
    released = [sample for sample in released if not is_missing(sample)]

    def known(sample: Sample) -> tuple:
        gold = str(sample.answer)
        return sample.problem, sample.options, gold, sample.problem_type

    assert sorted(map(known, released)) == sorted(map(known, converted))
    if name not in CUT:
        media = [
            sorted(
                (Path(medium.path).name, medium.start_s or 0, medium.end_s or 0)
                for sample in samples
                for medium in sample.media
            )
            for samples in (released, converted)
        ]
        assert media[0] == media[1]


@pytest.mark.parametrize("name", NAMES)
def test_questions_are_asked_in_the_official_words(name: str) -> None:
    """`prompts/<name>.txt` holds them; a change shows in its diff."""
    config = config_of(name)
    asked = []
    for sample in samples_of(name, "release"):
        shown, instruction = prompt_parts(sample, config)
        assert shown.options == ()
        asked.append("\n".join(filter(None, [f"--- {sample.id}", shown.problem, instruction])))
    assert "\n".join(asked) + "\n" == (PROMPTS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_official_categories_come_with_the_release(name: str) -> None:
    config = config_of(name)
    for sample in samples_of(name, "release"):
        for field in config.group_by:
            known = sample.category if field == "category" else sample.extra.get(field)
            assert known not in (None, "", []), field


@pytest.mark.parametrize("name", NAMES)
def test_published_scores_name_an_official_metric_and_a_source(name: str) -> None:
    config = config_of(name)
    nothing = [
        Outcome(sample=sample, prediction=None, score=None)
        for sample in samples_of(name, "release")
    ]
    assert {row.metric for row in config.published} <= set(METRICS[config.metric](nothing))
    assert all(row.source for row in config.published)


def holder(value: Any, field: str) -> dict[str, Any]:
    """The first object in a JSON value that has a field."""
    if isinstance(value, dict) and field in value:
        return value
    parts = value.values() if isinstance(value, dict) else value
    nested = (holder(part, field) for part in parts if isinstance(part, dict | list))
    return next((found for found in nested if found), {})


@pytest.mark.parametrize("name", sorted(set(NAMES) - OWN_FORM))
def test_a_record_without_its_answer_is_refused_by_field(name: str, tmp_path: Path) -> None:
    config = config_of(name)
    (source, *_) = files_of(name, "release")
    text = source.read_text()
    rows = (
        [json.loads(line) for line in text.splitlines()]
        if source.suffix == ".jsonl"
        else json.loads(text)
    )
    del holder(rows, config.layout.answer)[config.layout.answer]
    path = tmp_path / f"{source.stem}.json"
    path.write_text(json.dumps(rows))
    for other in files_of(name, "release"):
        if other != source:
            (tmp_path / other.name).write_text(other.read_text())
    config.data.validation, config.data.media_root = [str(path)], "/videos"
    with pytest.raises(DataError, match=rf"json:1:{config.layout.answer}: got None"):
        load_benchmark(name, config)


def test_boxes_of_frames_become_one_a_second() -> None:
    sample, _ = samples_of("stvg", "release")
    assert isinstance(sample.answer, dict) and sample.answer["time"] == [4.0, 16.0]
    boxes = sample.answer["boxes"]
    assert list(boxes) == [str(second) for second in range(4, 17)]
    # Five frames a second, numbered from 1; the first box is that of frame 21.
    assert boxes["4"] == [100, 50, 140, 130] and boxes["6"] == [110, 50, 150, 130]


def test_hidden_answers_are_left_out() -> None:
    assert len(samples_of("motionbench", "release")) == 4


def test_a_release_s_own_faults_stay_in_it_and_no_others(tmp_path: Path) -> None:
    """MLVU has two answers that are no option, and a question without words."""
    row = json.loads(files_of("mlvu", "release")[0].read_text())[0]
    lost = row | {"answer": "None of them"}
    empty = row | {"question": "", "candidates": ["", "", "", ""], "answer": ""}
    path = tmp_path / "2_needle.json"
    config = config_of("mlvu")
    config.data.validation, config.data.media_root = [str(path)], "/videos"
    path.write_text(json.dumps([lost, lost, empty]))
    first, _, last = load_benchmark("mlvu", config)
    assert first.problem_type is ProblemType.multiple_choice and first.answer is None
    assert (last.options, last.answer, last.problem) == (("", "", "", ""), "D", "")
    path.write_text(json.dumps([lost] * 3))
    with pytest.raises(UserError, match=r"3 questions are none of their options.*has 2 such"):
        load_benchmark("mlvu", config)


def test_no_answer_is_right_where_the_gold_one_is_no_option() -> None:
    sample = replace(samples_of("mlvu", "release")[0], answer=None)
    outcomes = score_predictions(
        [sample],
        [Prediction(fingerprint="f", sample_id=sample.id, status=PredictionStatus.ok, text="B")],
        repeats=1,
        reward=RewardConfig(),
        extractor=config_of("mlvu").extractor,
    )
    assert [(o.accuracy, o.strictly().accuracy) for o in outcomes] == [(0, 0)]
    summary = summarize(outcomes, config_of("mlvu").metric, ["category"])
    assert summary["official"]["dev accuracy"] == 0 and summary["chance"] == 0


def test_the_part_to_watch_is_the_release_s() -> None:
    by_task = {sample.category: sample.media[0] for sample in samples_of("mvbench", "release")}
    assert (by_task["action_sequence"].start_s, by_task["action_sequence"].end_s) == (1.5, 4.0)
    assert by_task["moving_count"].start_s is None
    assert by_task["moving_count"].path == "/videos/clevrer/video_validation/clip1.mp4"


def test_jpeg_frames_of_a_span_become_a_video(tmp_path: Path) -> None:
    folder = tmp_path / "tvqa/frames_fps3_hq/castle_s01"
    folder.mkdir(parents=True)
    for number in range(1, 31):
        (folder / f"{number:05d}.jpg").touch()
    row = {
        "video": "castle_s01",
        "question": "Who?",
        "candidates": ["He", "She"],
        "answer": "She",
        "start": 1.0,
        "end": 2.5,
    }
    path = tmp_path / "episodic_reasoning.json"
    path.write_text(json.dumps([row]))
    config = config_of("mvbench")
    config.data.validation, config.data.media_root = [str(path)], str(tmp_path)
    (sample,) = load_benchmark("mvbench", config)
    assert [Path(frame).stem for frame in sample.media[0].frames] == [
        f"{number:05d}" for number in range(3, 9)
    ]
    assert sample.media[0].frames_fps == 3.0


def test_a_video_in_another_folder_or_with_another_ending_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "public-dataset"
    folder.mkdir()
    (folder / "clip0.mp4").touch()
    samples = samples_of("motionbench", "release", str(tmp_path))
    assert samples[0].media[0].path == str(folder / "clip0.mp4")
    assert samples[1].media[0].path == str(tmp_path / "self-collected/clip1.mp4")


SRT = """\
1
00:00:01,000 --> 00:00:02,000
<i>One</i>

2
00:00:02,000 --> 00:00:03,500
two
three
"""
WORDS = """\
{"text": "One", "start_time": 0.5, "end_time": 1}
{"text": "two", "start_time": 1.0, "end_time": 2}
"""
ENTRIES = '[{"line": "One", "start": 1, "end": 2}, {"text": "two", "timestamp": [1, 2]}]'


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        (".srt", SRT, "One\ntwo three"),
        (".jsonl", WORDS, "One two"),
        (".json", ENTRIES, "One\ntwo"),
    ],
)
def test_subtitles_stand_before_the_question(
    tmp_path: Path, suffix: str, text: str, said: str
) -> None:
    (tmp_path / "subs").mkdir()
    (tmp_path / f"subs/fixture0{suffix}").write_text(text)
    config = config_of("video_mme")
    config.subtitles.folder, config.subtitles.file = "subs", "{videoID}" + suffix
    config.data.validation = [str(path) for path in files_of("video_mme", "release")]
    config.data.media_root = str(tmp_path)
    first, *_, last = load_benchmark("video_mme", config)
    asked = prompt_parts(first, config)[0].problem
    assert asked.startswith(
        f"This video's subtitles are listed below:\n{said}\nSelect the best answer"
    )
    assert prompt_parts(last, config)[0].problem.startswith(
        "This video's subtitles are listed below:\n\nSelect"
    )
