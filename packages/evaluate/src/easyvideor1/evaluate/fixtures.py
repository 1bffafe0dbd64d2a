"""A few records of each benchmark on generated media (`conf/benchmark_fixtures/`): a run to try.

The records are made up, in the layout of the release; clips are grey with a square that moves, as
long as the spans that are asked about.
"""

import hashlib
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.config import BenchmarkConfig
from easyvideor1.schema.conf import conf_dir, resolve_output
from easyvideor1.schema.records import MediaKind

SIZE = 64
"""Pixels of a side."""
LENGTH_S = 4
"""Of clips that no span reaches beyond."""


def on_fixtures(name: str, config: BenchmarkConfig) -> BenchmarkConfig:
    """The benchmark with its fixture records; as it is where it has none, as toy data do.

    Media that are not there yet are made, below `outputs/data/fixtures/<name>/`.
    """
    folder = conf_dir() / "benchmark_fixtures" / name / "release"
    if not folder.is_dir():
        return config
    root = resolve_output(f"outputs/data/fixtures/{name}")
    files = [str(path) for path in sorted(folder.iterdir())]
    data = replace(config.data, validation=files, media_root=str(root))
    chosen = replace(config, data=data, num_samples=None, max_samples=None)
    lengths: dict[Path, float] = defaultdict(lambda: LENGTH_S)
    for sample in load_benchmark(name, chosen):
        for medium in sample.media:
            path = Path(medium.path)
            lengths[path] = max(lengths[path], (medium.end_s or 0.0) + 1)
            if medium.kind is MediaKind.image:
                _write_image(path)
    for path, length_s in lengths.items():
        if not path.exists() and path.suffix != ".png":
            _write_video(path, length_s)
    return chosen


def _write_image(path: Path) -> None:
    if path.exists():
        return
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (SIZE, SIZE), (60, 90, 225)).save(path)


def _write_video(path: Path, length_s: float) -> None:
    """A square that starts where the name says and moves one pixel a frame."""
    import numpy as np

    from easyvideor1.preprocess.toybox_clips import SOURCE_FPS, write_clip

    count = math.ceil(length_s * SOURCE_FPS)
    start = int.from_bytes(hashlib.blake2b(path.name.encode(), digest_size=2).digest(), "big")
    frames = np.full((count, SIZE, SIZE, 3), 40, np.uint8)
    side = SIZE // 4
    for index in range(count):
        left = (start + index) % (SIZE - side)
        frames[index, side : 2 * side, left : left + side] = (210, 45, 45)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_clip(path, frames)
