"""Two runs on the same data and the same cache at once share the work."""

import re
from pathlib import Path

import pytest

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.config import CacheConfig, CacheFormat
from tests.preprocess.preprocess_runs import Data, verify


def share_the_work(
    data: Data, *overrides: str, cache_format: CacheFormat = CacheFormat.arrow
) -> None:
    overrides = (*overrides, f"cache={cache_format.value}")
    runs = [data.start(*overrides), data.start(*overrides)]
    try:
        outputs = [run.finish() for run in runs]
    finally:
        for run in runs:
            run.end()
    assert data.num_decoded == data.num_clips, "every clip was decoded once"
    decoded = []
    for output in outputs:
        found = re.search(r"(\d+) decoded, (\d+) reused, 0 failed(, (\d+) decoded by a)?", output)
        assert found, output
        decoded.append(int(found[1]))
        assert int(found[1]) + int(found[2]) + int(found[4] or 0) == data.num_clips
    assert sum(decoded) == data.num_clips
    config = CacheConfig(dir=str(data.cache), format=cache_format)
    assert len(open_cache(config).keys()) == data.num_clips
    assert verify(data, f"cache={cache_format.value}").startswith(
        f"{data.num_clips} clips in {data.cache} are intact"
    )
    assert not list((data.cache / "runs").iterdir())
    assert not list((data.cache / "claims").iterdir())


def test_two_runs_at_once_decode_every_clip_once(tiny_model_path: str, tmp_path: Path) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=16, num_frames=24)
    share_the_work(data)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cache_format", CacheFormat)
def test_two_longer_runs_at_once_decode_every_clip_once(
    cache_format: CacheFormat, tiny_model_path: str, tmp_path: Path
) -> None:
    data = Data(tmp_path, tiny_model_path, num_clips=60, num_frames=120, height=240)
    share_the_work(data, "cache.shard_bytes=20000000", cache_format=cache_format)
