"""Fixture records with generated media: everything a whole run needs, without a download."""

from pathlib import Path

import av
import pytest
from PIL import Image

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig
from easyvideor1.evaluate.fixtures import on_fixtures
from easyvideor1.schema.readers import missing_media
from easyvideor1.schema.records import MediaKind
from tests.evaluate.benchmark_fixtures import NAMES, config_of


@pytest.mark.parametrize("name", NAMES)
def test_every_record_has_media_as_long_as_it_asks_about(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    config = on_fixtures(name, config_of(name))
    samples = load_benchmark(name, config)
    assert not list(missing_media(samples))
    for medium in {medium for sample in samples for medium in sample.media}:
        assert Path(medium.path).is_relative_to(tmp_path / "data/fixtures" / name)
        if medium.kind is MediaKind.image:
            assert Image.open(medium.path).size == (64, 64)
            continue
        with av.open(medium.path) as container:
            (stream,) = container.streams.video
            assert stream.duration is not None and stream.time_base is not None
            assert stream.duration * stream.time_base >= (medium.end_s or 0)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.mp4")}
    on_fixtures(name, config_of(name))
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.mp4")}


def test_a_benchmark_without_records_stays_as_it_is() -> None:
    config = BenchmarkConfig()
    assert on_fixtures("toybox", config) is config
