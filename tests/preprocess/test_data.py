"""Data files as commands read them: mixed rows untouched and in order, filtered or not."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from easyvideor1.preprocess import decode_counter
from easyvideor1.preprocess.config import CacheConfig, CacheMode, DataConfig, DecodeConfig
from easyvideor1.preprocess.data import ensure_data, read_files
from easyvideor1.preprocess.engine import cache_samples
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import write_samples
from easyvideor1.schema.records import Media, ProblemType, Sample, Trajectory
from tests.media import frame_list, image, moving_colours, video, write_video

COMMAND = Path(sys.executable).with_name("evr-preprocess")


def sample(name: str, problem: str, *media: Media, **changes: Any) -> Sample:
    values: dict[str, Any] = {"answer": "B", "problem_type": ProblemType.multiple_choice}
    return Sample(id=name, problem=problem, media=media, **(values | changes))


@pytest.fixture
def mixed(tmp_path: Path) -> list[Sample]:
    """One sample of each make, in an order that no sorting by kind or id would give."""
    clip = write_video(tmp_path / "clip.mp4", num_frames=30)
    pictures = [tmp_path / f"{index}.png" for index in range(3)]
    for path, pixels in zip(pictures, moving_colours(3, 64, 96), strict=True):
        Image.fromarray(pixels).save(path)
    first, second, third = map(image, pictures)
    return [
        sample("video", "<video>Which?", video(clip), pass_rate=0.5, options=("red", "blue")),
        sample("text", "3 times 4?", answer=12, problem_type=ProblemType.numerical),
        sample("image", "Read <image>", first, problem_type=ProblemType.ocr, source="web"),
        sample("mixed", "Is <image> in <video> or <image>?", second, video(clip, 0.5, 1.5), first),
        sample("solved", "Prime?", answer=True, problem_type=ProblemType.boolean, pass_rate=1.0),
        sample("frames", "<video> <video>", frame_list(pictures, 2.0), video(clip, start_s=1.0)),
        sample(
            "images",
            "<image><image><image>",
            *(third, first, first),
            pass_rate=0.25,
            offline=(Trajectory(text="<answer>B</answer>", logprobs=(-0.5,)),),
            extra={"level": 3, "tags": ["a", None]},
        ),
    ]


Read = Callable[..., list[Sample]]


@pytest.fixture(params=["rows.jsonl", "rows.arrow", "rows.parquet"])
def read(
    request: pytest.FixtureRequest, tmp_path: Path, cache_config: CacheConfig, mixed: list[Sample]
) -> Read:
    """Read `mixed` back from a file of each format, as every command does."""
    write_samples(tmp_path / request.param, mixed)

    def read_back(**settings: Any) -> list[Sample]:
        data = DataConfig(name="files", train=[str(tmp_path / request.param)], **settings)
        return list(read_files(ensure_data(data), data.train, cache_config))

    return read_back


def test_mixed_rows_come_back_as_they_were_and_in_order(read: Read, mixed: list[Sample]) -> None:
    assert read() == mixed


@pytest.mark.parametrize(
    ("expression", "names"),
    {
        "data_type in ('text', 'image')": ["text", "image", "solved", "images"],
        "data_type == 'mixed'": ["mixed"],
        "len(media) > 1": ["mixed", "frames", "images"],
        "num_videos == 0 or pass_rate < 1": ["video", "text", "image", "solved", "images"],
        "pass_rate is None or pass_rate < 0.4": ["text", "image", "mixed", "frames", "images"],
        "0 < pass_rate < 1 and extra['level'] >= 3": ["images"],
    }.items(),
)
def test_a_filter_leaves_what_it_keeps_as_it_was(
    read: Read, mixed: list[Sample], expression: str, names: list[str]
) -> None:
    by_id = {s.id: s for s in mixed}
    assert read(filter=expression) == [by_id[name] for name in names]


def test_relative_paths_are_meant_from_the_media_root(
    tmp_path: Path, cache_config: CacheConfig
) -> None:
    rows = [
        sample("both", "<image><video>", image("p/0.png"), video("v/clip.mp4")),
        sample("text", "Why?"),
    ]
    write_samples(tmp_path / "rows.jsonl", rows)
    for root, folder in ((None, tmp_path), (str(tmp_path / "media"), tmp_path / "media")):
        folder.mkdir(exist_ok=True)
        data = DataConfig(name="files", train=[str(tmp_path / "rows.jsonl")], media_root=root)
        both, text = read_files(ensure_data(data), data.train, cache_config)
        assert [m.path for m in both.media] == [f"{folder}/p/0.png", f"{folder}/v/clip.mp4"]
        assert text == rows[1]


# The cache


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each decode is counted."""
    monkeypatch.setenv(decode_counter.VARIABLE, str(tmp_path / "counts"))
    return tmp_path / "counts"


@pytest.fixture
def store(cache_config: CacheConfig, rules: FamilyRules) -> ClipStore:
    cache_config.mode = CacheMode.require
    budgets = Budgets(video=FrameBudget(max_frames=4, max_pixels=8_192))
    return ClipStore(cache_config, budgets, rules, DecodeConfig(workers=1))


def test_text_rows_need_nothing_from_the_cache(
    mixed: list[Sample], store: ClipStore, counted: Path
) -> None:
    texts = [s for s in mixed if s.data_type == "text"]
    report = cache_samples(texts, store=store, progress=False)
    assert (report.samples, report.decoded, report.reused, report.failed) == (2, 0, 0, 0)
    assert [store.load(text) for text in texts] == [[], []]
    assert all(store.is_cached(text) for text in texts)
    assert decode_counter.total(counted) == 0


def test_mixed_rows_are_cached_by_medium_and_loaded_in_their_order(
    mixed: list[Sample], store: ClipStore, counted: Path
) -> None:
    report = cache_samples(mixed, store=store, progress=False)
    distinct = {media for s in mixed for media in s.media}
    assert (report.decoded, report.failed) == (len(distinct), 0)
    assert decode_counter.total(counted) == len(distinct) == 7
    for record in mixed:
        clips = store.load(record)
        assert [clip.kind for clip in clips] == [media.kind for media in record.media]
        assert [clip.key for clip in clips] == [store.key(media) for media in record.media]
    third, first, again = store.load(mixed[-1])
    assert first.key == again.key != third.key
    assert len(first.frames) == 1


# The filter of a config


def run_read(tmp_path: Path, cache: CacheConfig, expression: str, rows: list[Sample]) -> None:
    write_samples(tmp_path / "train.jsonl", rows)
    data = DataConfig(name="files", train=[str(tmp_path / "train.jsonl")], filter=expression)
    read_files(ensure_data(data), data.train, cache)


def test_reading_says_what_the_filter_kept_and_what_it_could_not_judge(
    tmp_path: Path, cache_config: CacheConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [sample(f"{i}", "Why?", pass_rate=None if i < 3 else i / 10) for i in range(11)]
    run_read(tmp_path, cache_config, "0 < pass_rate < 1", rows)
    assert capsys.readouterr().out == (
        f"data.filter='0 < pass_rate < 1' kept 7 of 11 samples of {tmp_path}/train.jsonl; "
        "3 have no pass_rate\n"
    )


@pytest.mark.parametrize(
    ("pass_rates", "reason"),
    [
        ([None, None], "no sample has pass_rate (evaluation fills it)"),
        ([1.0, 1.0], "pass_rate is 1 in all"),
        ([0.0, 1.0], "pass_rate: 0 to 1"),
    ],
)
def test_a_filter_that_keeps_nothing_ends_the_run_and_says_why(
    tmp_path: Path, cache_config: CacheConfig, pass_rates: list[float | None], reason: str
) -> None:
    rows = [sample(f"{i}", "Why?", pass_rate=rate) for i, rate in enumerate(pass_rates)]
    with pytest.raises(UserError) as error:
        run_read(tmp_path, cache_config, "0 < pass_rate < 1", rows)
    assert str(error.value) == (
        f"data.filter='0 < pass_rate < 1' keeps none of the 2 samples of {tmp_path}/train.jsonl: "
        f"{reason}. Set another filter, or data.filter=null to keep all"
    )


def test_a_filter_with_a_mistake_is_answered_before_anything_heavy_is_imported(
    tmp_path: Path,
) -> None:
    for name in ("torch", "ray", "vllm", "transformers"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('a heavy import')")
    result = subprocess.run(
        [str(COMMAND), "data=real_clips", 'data.filter="0 < passrate < 1"'],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith(
        "evr-preprocess: data.filter='0 < passrate < 1': unknown field 'passrate'; known: id, "
    )
    assert len(result.stderr.splitlines()) == 1
