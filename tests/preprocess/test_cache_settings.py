"""What a cache was filled with, and how that differs from what a run asks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.cache_settings import explain_missing, record_settings
from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.preprocess.keys import key_of
from tests.stored_clips import drafts_of, stored_clip

SETTINGS: dict[str, Any] = {
    "content": "fast:1",
    "kind": "video",
    "span_s": [None, None],
    "frames_fps": None,
    "budget": {"fps": 2.0, "max_pixels": 65_536, "total_pixels": None},
    "rules": {"name": "qwen3_vl"},
    "decoder": "pyav",
    "versions": {"decode": 1},
}


def changed(**values: Any) -> dict[str, Any]:
    """SETTINGS with other values; `budget__fps` means `budget.fps`."""
    settings = json.loads(json.dumps(SETTINGS))
    for name, value in values.items():
        *parents, last = name.split("__")
        target = settings
        for parent in parents:
            target = target[parent]
        target[last] = value
    return settings


class Filled:
    """A cache and what is noted beside it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.cache = open_cache(CacheConfig(dir=str(folder)))

    def note(self, *settings: dict[str, Any]) -> None:
        record_settings(self.folder, drafts_of(self.folder), settings)

    def put(self, settings: dict[str, Any]) -> None:
        self.note(settings)
        stored = stored_clip(0)
        clip = replace(stored.clip, key=key_of(settings))
        with self.cache.writer(drafts_of(self.folder)) as writer:
            writer.add(replace(stored, clip=clip, settings=settings))

    def explain(self, *missing: dict[str, Any]) -> str:
        return explain_missing(self.cache, self.folder, missing)


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "cache")


def test_settings_are_noted_once_for_all_media(filled: Filled) -> None:
    filled.note(SETTINGS, changed(content="fast:2"), changed(span_s=[1.0, 2.0], frames_fps=3.0))
    filled.note(changed(content="fast:3"))
    (path,) = (filled.folder / "settings").iterdir()
    wanted = {
        name: SETTINGS[name] for name in SETTINGS.keys() - {"content", "span_s", "frames_fps"}
    }
    assert json.loads(path.read_text()) == wanted
    filled.note(changed(budget__fps=1.0))
    assert len(list((filled.folder / "settings").iterdir())) == 2


def test_differing_fields_are_named_with_both_values(filled: Filled) -> None:
    filled.put(SETTINGS)
    asked = changed(budget__max_pixels=262_144, budget__total_pixels=10**6, decoder="torchcodec")
    assert filled.explain(asked) == (
        "it holds the same media with budget.max_pixels=65536 (this run: 262144), "
        "budget.total_pixels=none (this run: 1000000), decoder=pyav (this run: torchcodec)"
    )


def test_a_codec_that_only_one_side_has_is_named(filled: Filled) -> None:
    filled.put(SETTINGS | {"codec": "jpeg:95"})
    assert filled.explain(SETTINGS).endswith("with codec=jpeg:95 (this run: none)")


def test_settings_under_which_the_medium_is_there_come_before_nearer_ones(filled: Filled) -> None:
    filled.note(changed(content="fast:2", budget__fps=1.0))
    filled.put(changed(decoder="torchcodec", versions__decode=2))
    assert filled.explain(SETTINGS) == (
        "it holds the same media with decoder=torchcodec (this run: pyav), "
        "versions.decode=2 (this run: 1)"
    )


def test_else_the_nearest_settings_are_shown(filled: Filled) -> None:
    filled.note(changed(decoder="torchcodec", versions__decode=2), changed(budget__fps=1.0))
    assert filled.explain(SETTINGS) == "it holds other media with budget.fps=1.0 (this run: 2.0)"


def test_the_same_settings_mean_other_media(filled: Filled) -> None:
    filled.put(changed(content="fast:2"))
    assert filled.explain(SETTINGS) == "it was filled with these very settings, from other media"


def test_images_are_not_compared_with_videos(filled: Filled) -> None:
    filled.note(changed(kind="image"))
    assert filled.explain(SETTINGS) == "it was filled from images only"


def test_an_empty_cache_is_called_that(filled: Filled) -> None:
    assert filled.explain(SETTINGS) == "no run has filled it"
