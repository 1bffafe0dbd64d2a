"""A page of sampled groups: question, the frames that were shown, every answer with its reward.

One self-contained HTML file per table of samples, which opens from the disk and in MLflow. Written
by `tracking.RunTracker`.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from easyvideor1.evaluate.shown_frames import ShownFrames
from easyvideor1.schema.records import Group, Sample

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip

MAX_BYTES = 8_000_000
"""Of all frames on a page."""


class SamplePages:
    """Writes pages into a folder.

    Args:
        folder: made if absent.
        load: the clips of a sample, as the engine got them.
        max_frames: shown of each medium.
    """

    def __init__(self, folder: Path, load: "Callable[[Sample], list[Clip]]", max_frames: int):
        self._folder = folder
        self._load = load
        self._max_frames = max_frames

    def write(self, groups: Sequence[Group], step: int) -> Path:
        """The page of a step."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("easyvideor1.train"), autoescape=True, undefined=StrictUndefined
        )
        frames = ShownFrames(self._max_frames, MAX_BYTES, f"{MAX_BYTES / 1e6:g} MB a page")
        shown = [
            {
                "sample": group.sample,
                "gold": json.dumps(group.sample.answer, ensure_ascii=False),
                "media": frames.of(self._load, group.sample),
                "answers": list(zip(group.completions, group.scores, strict=True)),
            }
            for group in groups
        ]
        path = self._folder / f"step_{step:06d}.html"
        self._folder.mkdir(parents=True, exist_ok=True)
        page = environment.get_template("samples.html.j2").render(step=step, groups=shown)
        path.write_text(page, encoding="utf-8")
        return path
