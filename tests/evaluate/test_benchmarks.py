"""Official release layouts in, samples out; and what the model is asked about them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from easyvideor1.evaluate.benchmark_config import Loader
from easyvideor1.evaluate.benchmarks import data_revision, load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, register
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.preprocess.config import DataConfig
from easyvideor1.schema.conf import compose, conf_dir
from easyvideor1.schema.errors import DataError, UserError

NAMES = sorted(
    path.stem for path in (conf_dir() / "benchmark").glob("*.yaml") if path.stem != "all"
)


def composed(*overrides: str) -> EvaluateConfig:
    register()
    return compose("evaluate", list(overrides), EvaluateConfig)


TALL = """\
3MSZA 24.3 30.4##person turn a light on.
3MSZA 0.0 5.5##person opens the door
AMT7R 1.2 9.9##a person sits down.
"""


def charades(path: Path, **fields: Any):
    data = DataConfig(name="charades_sta", validation=[str(path)], **fields)
    return load_benchmark("charades_sta", BenchmarkConfig(loader=Loader.charades_sta, data=data))


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
    _, instruction = prompt_parts(from_text[0], BenchmarkConfig())
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
    path = tmp_path / "charades_sta_test.txt"
    path.write_text(TALL)
    here, there = charades(path, media_root="/here"), charades(path, media_root="/there")
    assert here != there
    assert data_revision(here) == data_revision(there)
    path.write_text(TALL.replace("9.9", "9.8"))
    assert data_revision(here) != data_revision(charades(path, media_root="/here"))


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
        load_benchmark("video_mme", BenchmarkConfig(data=data, loader=Loader.layout))


def test_all_holds_the_22_published_benchmarks() -> None:
    chosen = composed("benchmark=all").benchmarks
    assert len(chosen) == 22
    assert sorted([*chosen, "toybox", "real_clips"]) == NAMES


def test_benchmarks_are_chosen_one_or_several_at_a_time() -> None:
    assert list(composed("benchmark=real_clips").benchmarks) == ["real_clips"]
    assert list(composed("benchmark=[toybox,video_mme]").benchmarks) == ["toybox", "video_mme"]
    smaller = composed("benchmark=video_mme", "budget@benchmarks.video_mme.budget=video_128f")
    assert smaller.benchmarks["video_mme"].budget.video.max_frames == 128
