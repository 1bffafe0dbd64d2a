"""Folders that are built once from settings: generated data and tiny models.

The settings stay beside the content, so that what was built under others never passes for it.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from easyvideor1.schema.files import new_folder, write_json

BUILD_FILE = "build.json"
"""The settings a folder was built with, inside it."""


def build_folder(folder: Path, settings: Any, fill: Callable[[Any, Path], None]) -> None:
    """Make `folder` with `fill(settings, draft)`, all or nothing.

    If another process made it meanwhile, that one stays: the same settings build the same content.
    """
    with new_folder(folder) as draft:
        fill(settings, draft)
        write_json(draft / BUILD_FILE, asdict(settings))


def differing_settings(folder: Path, settings: Any) -> dict[str, tuple[Any, Any]]:
    """By name: what `folder` was built with and what `settings` ask for, where they differ."""
    file = folder / BUILD_FILE
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    wanted = asdict(settings)
    return {
        name: (found.get(name), wanted[name]) for name in wanted if found.get(name) != wanted[name]
    }
