"""Makes the data files of a config exist: builds toy data on first use, resolves paths.

Reading and checking them is `schema.readers`. Imports no torch.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from easyvideor1.preprocess.config import DataConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError

BUILD_FILE = "build.json"
"""The settings that generated data were built with, inside their folder."""


def ensure_data(config: DataConfig) -> DataConfig:
    """`config` with absolute paths, after building what it asks to build under outputs/data/.

    Raises:
        UserError: if no files are named, or the folder holds data of other settings.
    """
    if config.toybox is not None:
        from easyvideor1.preprocess import toybox

        _ensure_built(config.name, config.toybox, toybox.build)
    if config.real_clips is not None:
        from easyvideor1.preprocess import real_clips

        _ensure_built(config.name, config.real_clips, real_clips.build)
    if not config.train and not config.validation:
        raise UserError("data.train and data.validation are both empty; name at least one file")
    return dataclasses.replace(
        config,
        train=[str(resolve_output(path)) for path in config.train],
        validation=[str(resolve_output(path)) for path in config.validation],
        media_root=config.media_root and str(resolve_output(config.media_root)),
    )


def _ensure_built(name: str, settings: Any, build: Callable[[Any, Path], None]) -> None:
    folder = resolve_output(f"outputs/data/{name}")
    if not folder.exists():
        _build_aside(folder, settings, build)
    file = folder / BUILD_FILE
    found = json.loads(file.read_text()) if file.is_file() else {}
    wanted = dataclasses.asdict(settings)
    differing = [key for key in wanted if found.get(key) != wanted[key]]
    if differing:
        shown = ", ".join(f"{key}={found.get(key)!r} not {wanted[key]!r}" for key in differing)
        raise UserError(
            f"{folder} was built with other settings ({shown}); set another data.name or delete it"
        )


def _build_aside(folder: Path, settings: Any, build: Callable[[Any, Path], None]) -> None:
    """Build in a folder beside it, then rename: what is there is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        build(settings, draft)
        (draft / BUILD_FILE).write_text(json.dumps(dataclasses.asdict(settings), indent=2) + "\n")
        draft.chmod(0o755)
        try:
            os.rename(draft, folder)
        except OSError:
            # Another process was first; the same settings build the same data.
            if not (folder / BUILD_FILE).is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
