"""The settings that a cache was filled with, and how they differ from those of clips it lacks.

`<cache>/settings/<hash>.json` holds everything of `keys.clip_settings` but the medium itself; the
engine writes one file per distinct set. A missing clip can then be explained: the same medium under
recorded settings has a key that the cache holds or not.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.frame_cache import MEDIA_SETTINGS, FrameCache
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.sealed_file import SealedFile

MAX_LOOKED_UP = 200
"""Missing clips that are looked for under each of the recorded settings."""

Settings = dict[str, Any]


def record_settings(folder: Path, drafts: Path, settings: Iterable[Settings]) -> None:
    """Note with which settings clips are written to a cache.

    Args:
        folder: of the cache.
        drafts: of the run that writes.
        settings: of clips; what is recorded already is left alone.
    """
    distinct = {key_of(one): one for one in map(_without_medium, settings)}
    for name, one in distinct.items():
        path = folder / "settings" / f"{name}.json"
        if path.exists():
            continue
        sealed = SealedFile(path, drafts)
        sealed.file.write(json.dumps(one, indent=2, sort_keys=True).encode() + b"\n")
        sealed.seal()


def explain_missing(cache: FrameCache, folder: Path, missing: Sequence[Settings]) -> str:
    """One clause on what the cache holds in place of clips that it lacks.

    Args:
        cache: to look into.
        folder: of the cache.
        missing: settings of the clips, at least one.
    """
    recorded = list(_recorded(folder))
    if not recorded:
        return "no run has filled it"
    candidates = [
        (_num_held(cache, other, missing), other, wanted)
        for other in recorded
        for wanted in _distinct(missing)
        if other["kind"] == wanted["kind"]
    ]
    if not candidates:
        return f"it was filled from {recorded[0]['kind']}s only"
    held, other, wanted = max(
        candidates, key=lambda found: (found[0], -len(_differences(found[1], found[2])))
    )
    differences = ", ".join(_differences(other, wanted))
    if not differences:
        return "it was filled with these very settings, from other media"
    media = "the same media" if held else "other media"
    return f"it holds {media} with {differences}"


def _recorded(folder: Path) -> Iterator[Settings]:
    for path in sorted((folder / "settings").glob("*.json")):
        try:
            yield json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:  # removed since it was listed
            continue


def _without_medium(settings: Settings) -> Settings:
    return {name: value for name, value in settings.items() if name not in MEDIA_SETTINGS}


def _distinct(settings: Sequence[Settings]) -> list[Settings]:
    return list({key_of(one): one for one in map(_without_medium, settings)}.values())


def _num_held(cache: FrameCache, other: Settings, missing: Sequence[Settings]) -> int:
    """How many of the missing media the cache holds under `other` settings."""
    media = [
        {name: one[name] for name in MEDIA_SETTINGS}
        for one in missing[:MAX_LOOKED_UP]
        if one["kind"] == other["kind"]
    ]
    return sum(cache.has(key_of(other | medium)) for medium in media)


def _differences(cached: Settings, asked: Settings) -> list[str]:
    """E.g. `budget.max_pixels=65536 (this run: 262144)`."""
    there, here = flat_settings(cached), flat_settings(asked)
    return [
        f"{name}={_shown(there, name)} (this run: {_shown(here, name)})"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def flat_settings(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Values by dotted name, e.g. `budget.max_pixels`."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= flat_settings(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _shown(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    return "none" if value is None else str(value)
