"""Benchmarks in the layout of their official release, as ordinary samples.

A loader reads annotation files and names media; it opens no video and imports nothing heavy. What
the model is asked and how answers count is configuration (`conf/benchmark/`).
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from easyvideor1.evaluate.benchmarks.charades_sta import load_charades_sta
from easyvideor1.evaluate.benchmarks.video_mme import load_video_mme
from easyvideor1.evaluate.config import BenchmarkConfig, Loader
from easyvideor1.preprocess.config import CacheConfig, DataConfig
from easyvideor1.preprocess.data import read_files
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

__all__ = ["LOADERS", "data_revision", "load_benchmark"]


def _load_samples(data: DataConfig) -> Sequence[Sample]:
    files = [str(resolve_output(source)) for source in data.validation]
    return read_files(data, files, CacheConfig())


LOADERS: dict[Loader, Callable[[DataConfig], Sequence[Sample]]] = {
    Loader.samples: _load_samples,
    Loader.video_mme: load_video_mme,
    Loader.charades_sta: load_charades_sta,
}


def load_benchmark(name: str, config: BenchmarkConfig) -> list[Sample]:
    """The questions of a benchmark, in order, cut to `max_samples`.

    Raises:
        UserError: if it names no files, they hold no questions, or a release is to be filtered.
        DataError: for a row that is not in the layout.
    """
    if not config.data.validation:
        raise UserError(f"benchmarks.{name}.data.validation names no annotation files")
    if config.data.filter is not None and config.loader is not Loader.samples:
        raise UserError(
            f"benchmarks.{name}.data.filter={config.data.filter!r}: a released benchmark is scored "
            f"on all its questions; set it to null, or ask fewer with benchmarks.{name}.max_samples"
        )
    samples = list(LOADERS[config.loader](config.data))
    if not samples:
        raise UserError(f"benchmark {name}: no questions in {', '.join(config.data.validation)}")
    if config.max_samples is None or config.max_samples >= len(samples):
        return samples
    step = len(samples) / config.max_samples
    return [samples[int(index * step)] for index in range(config.max_samples)]


def data_revision(samples: Sequence[Sample]) -> str:
    """A hash of all questions, answers and media names, wherever the files lie."""
    digest = hashlib.blake2b(digest_size=16)
    for sample in samples:
        row = to_plain(sample)
        for medium in row["media"]:
            medium["path"] = os.path.basename(medium["path"])
            medium["frames"] = [Path(frame).name for frame in medium["frames"]]
        digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()
