"""Official release layouts in, samples out; and what the model is asked about them."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from easyvideor1.evaluate.benchmarks import LOADERS, data_revision, load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, Loader, register
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.preprocess.config import DataConfig
from easyvideor1.rewards import reward
from easyvideor1.schema.conf import compose, conf_dir
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import ProblemType

NAMES = sorted(
    path.stem for path in (conf_dir() / "benchmark").glob("*.yaml") if path.stem != "all"
)


def composed(*overrides: str) -> EvaluateConfig:
    register()
    return compose("evaluate", list(overrides), EvaluateConfig)


def video_mme_row(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "video_id": f"{number // 3 + 1:03d}",
        "duration": ("short", "medium", "long")[number % 3],
        "domain": "Knowledge",
        "sub_category": "Astronomy",
        "url": f"https://www.youtube.com/watch?v=vid{number // 3}",
        "videoID": f"vid{number // 3}",
        "question_id": f"{number // 3 + 1:03d}-{number % 3 + 1}",
        "task_type": "Counting Problem",
        "question": "How many moons are drawn on the board?",
        "options": ["A. Two.", "B. Three.", "C. Four.", "D. None of them."],
        "answer": "B",
    } | fields


def video_mme(folder: Path, rows: list[dict[str, Any]], media_root: str | None = None):
    path = folder / "test-00000-of-00001.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    data = DataConfig(name="video_mme", validation=[str(path)], media_root=media_root)
    return LOADERS[Loader.video_mme](data)


def test_video_mme_is_read_as_released(tmp_path: Path) -> None:
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "vid1.mkv").touch()
    samples = video_mme(tmp_path, [video_mme_row(number) for number in range(4)], str(videos))
    assert [sample.id for sample in samples] == [
        "video_mme/001-1",
        "video_mme/001-2",
        "video_mme/001-3",
        "video_mme/002-1",
    ]
    first, last = samples[0], samples[-1]
    assert first.problem_type is ProblemType.multiple_choice
    assert first.options == ("Two.", "Three.", "Four.", "None of them.")
    assert first.answer == "B" and first.category == "Counting Problem"
    assert first.extra["duration"] == "short" and first.extra["videoID"] == "vid0"
    assert first.media[0].path == str(videos / "vid0.mp4"), "the name a missing video should have"
    assert last.media[0].path == str(videos / "vid1.mkv"), "the file that is there"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"answer": "E"}, "answer"),
        ({"videoID": ""}, "videoID"),
        ({"options": ["A. Two.", "B. Three."]}, "options"),
        ({"options": ["Two.", "Three.", "Four.", "Five."]}, "options"),
    ],
)
def test_a_video_mme_row_of_another_shape_is_refused_by_field(
    tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(DataError, match=rf"parquet:2:{field}: "):
        video_mme(tmp_path, [video_mme_row(0), video_mme_row(1, **fields)])


def test_video_mme_asks_with_the_official_words(tmp_path: Path) -> None:
    (sample,) = video_mme(tmp_path, [video_mme_row()])
    template = composed("benchmark=video_mme").benchmarks["video_mme"].prompt
    shown, instruction = prompt_parts(sample, template)
    assert instruction == "" and shown.options == ()
    assert shown.problem == (
        "Select the best answer to the following multiple-choice question based on the video. "
        "Respond with only the letter (A, B, C, or D) of the correct option.\n"
        "How many moons are drawn on the board?\n"
        "A. Two.\nB. Three.\nC. Four.\nD. None of them.\n"
        "The best answer is:"
    )
    assert [reward(sample, text).parts["accuracy"] for text in ("B", "B. Three.", "C")] == [1, 1, 0]


TALL = """\
3MSZA 24.3 30.4##person turn a light on.
3MSZA 0.0 5.5##person opens the door
AMT7R 1.2 9.9##a person sits down.
"""


def charades(path: Path, **fields: Any):
    data = DataConfig(name="charades_sta", validation=[str(path)], **fields)
    return LOADERS[Loader.charades_sta](data)


def test_both_charades_layouts_hold_the_same_samples(tmp_path: Path) -> None:
    text = tmp_path / "charades_sta_test.txt"
    text.write_text(TALL)
    rows = [
        {
            "video": f"{head.split()[0]}.mp4",
            "caption": caption,
            "timestamp": [float(time) for time in head.split()[1:]],
        }
        for head, caption in (line.split("##") for line in TALL.splitlines())
    ]
    table = tmp_path / "test-00000-of-00001.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), table)
    from_text = charades(text, media_root="videos")
    assert from_text == charades(table, media_root="videos")
    assert [sample.id for sample in from_text] == [f"charades_sta/000{i}" for i in range(3)]
    assert from_text[0].answer == {"time": [24.3, 30.4]}
    assert from_text[2].media[0].path.endswith("videos/AMT7R.mp4")
    assert "person turn a light on." in from_text[0].problem
    # It shows the form of an answer, and no answer of the benchmark, as another framework does.
    _, instruction = prompt_parts(from_text[0], None)
    assert "24.3" not in instruction and "30.4" not in instruction


def test_a_charades_line_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "charades_sta_test.txt"
    path.write_text(TALL + "3MSZA 1.0##no end\n")
    with pytest.raises(DataError, match=r"test.txt:4:line: got '3MSZA 1.0##no end'"):
        charades(path)
    path.write_text("3MSZA 9.0 4.0##ends before it begins\n")
    with pytest.raises(DataError, match=r"test.txt:1:timestamp: "):
        charades(path)


def test_the_revision_follows_the_questions_not_the_folder(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here = video_mme(tmp_path / "here", [video_mme_row()])
    there = video_mme(tmp_path / "there", [video_mme_row()])
    assert here != there
    assert data_revision(here) == data_revision(there)
    other = video_mme(tmp_path / "there", [video_mme_row(answer="C")])
    assert data_revision(here) != data_revision(other)


def test_a_smaller_run_is_spread_over_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "charades_sta_test.txt"
    path.write_text("".join(f"V{i} 0.0 1.0##event {i}\n" for i in range(10)))
    config = BenchmarkConfig(
        loader=Loader.charades_sta,
        data=DataConfig(name="charades_sta", validation=[str(path)]),
        max_samples=3,
    )
    samples = load_benchmark("charades_sta", config)
    assert [sample.id[-1] for sample in samples] == ["0", "3", "6"]


def test_a_benchmark_without_files_is_refused() -> None:
    with pytest.raises(UserError, match=r"benchmarks.mine.data.validation names no"):
        load_benchmark("mine", BenchmarkConfig(data=DataConfig(name="mine")))


def test_a_released_benchmark_is_not_filtered() -> None:
    data = DataConfig(name="v", validation=["v.jsonl"], filter="category == 'OCR Problems'")
    with pytest.raises(UserError, match=r"benchmarks\.video_mme\.data\.filter=.*max_samples"):
        load_benchmark("video_mme", BenchmarkConfig(data=data, loader=Loader.video_mme))


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_composes_and_names_its_published_metrics(name: str) -> None:
    from easyvideor1.evaluate.metrics import METRICS, Outcome

    (benchmark,) = composed(f"benchmark={name}").benchmarks.values()
    sample = prompt_sample()
    official = METRICS[benchmark.metric]([Outcome(sample=sample, prediction=None, score=None)])
    assert {row.metric for row in benchmark.published} <= set(official)
    assert all(row.source for row in benchmark.published)


def prompt_sample():
    from easyvideor1.schema.records import Sample

    return Sample(id="a", problem="?", answer="A", problem_type=ProblemType.multiple_choice)


def test_all_holds_every_benchmark() -> None:
    assert sorted(composed("benchmark=all").benchmarks) == NAMES


def test_benchmarks_are_chosen_one_or_several_at_a_time() -> None:
    assert list(composed("benchmark=real_clips").benchmarks) == ["real_clips"]
    assert list(composed("benchmark=[toybox,video_mme]").benchmarks) == ["toybox", "video_mme"]
    smaller = composed("benchmark=video_mme", "budget@benchmarks.video_mme.budget=video_128f")
    assert smaller.benchmarks["video_mme"].budget.video.max_frames == 128


def test_video_mme_scores_are_those_of_its_formula(tmp_path: Path) -> None:
    from easyvideor1.evaluate.metrics import summarize
    from easyvideor1.evaluate.scoring import score_predictions
    from easyvideor1.rewards import RewardConfig
    from easyvideor1.schema.records import Prediction, PredictionStatus

    rng = random.Random(0)
    rows = [
        video_mme_row(
            number,
            domain=rng.choice(["Knowledge", "Sports Competition"]),
            sub_category=rng.choice(["Astronomy", "Football", "Basketball"]),
            task_type=rng.choice(["Counting Problem", "OCR Problems"]),
            answer=rng.choice("ABCD"),
        )
        for number in range(240)
    ]
    benchmark = composed("benchmark=video_mme").benchmarks["video_mme"]
    samples = video_mme(tmp_path, rows)
    responses = [rng.choice(["A", "B", "C", "D", "B. Three.", "no idea", "", None]) for _ in rows]
    predictions = [
        Prediction(fingerprint="f", sample_id=sample.id, status=PredictionStatus.ok, text=response)
        for sample, response in zip(samples, responses, strict=True)
        if response is not None
    ]
    outcomes = score_predictions(samples, predictions, repeats=1, reward=RewardConfig())
    summary = summarize(outcomes, benchmark.metric, benchmark.group_by)

    # The release's README: share of right letters, overall and per field; nothing leaves the count.
    given = [(response or "-")[0] for response in responses]
    right = [letter == row["answer"] for letter, row in zip(given, rows, strict=True)]
    assert summary["official"]["accuracy"] == pytest.approx(sum(right) / 240, abs=1e-9)
    for field in ("duration", "domain", "sub_category", "task_type"):
        for value, found in summary["by"][field].items():
            of_value = [hit for hit, row in zip(right, rows, strict=True) if row[field] == value]
            assert found["questions"] == len(of_value)
            assert found["accuracy"] == pytest.approx(sum(of_value) / len(of_value), abs=1e-9)
        assert sum(found["questions"] for found in summary["by"][field].values()) == 240
