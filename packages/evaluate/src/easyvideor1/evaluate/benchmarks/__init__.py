"""Benchmarks in the layout of their official release, as ordinary samples.

A loader reads annotation files and names media; it opens no video and imports nothing heavy. What
the model is asked and how answers count is configuration (`conf/benchmark/`).
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from easyvideor1.evaluate.benchmark_config import Loader
from easyvideor1.evaluate.benchmarks.charades_sta import load_charades_sta
from easyvideor1.evaluate.benchmarks.layout import RowsOf, check_layout, load_layout
from easyvideor1.evaluate.benchmarks.nested import (
    ovo_bench_rows,
    stvg_rows,
    tempcompass_rows,
    video_mmmu_rows,
    videoreasonbench_rows,
)
from easyvideor1.evaluate.benchmarks.rows import table_rows
from easyvideor1.evaluate.config import BenchmarkConfig
from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.preprocess.data import read_files
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

__all__ = ["LOADERS", "data_revision", "load_benchmark"]


def _load_samples(name: str, config: BenchmarkConfig) -> Sequence[Sample]:
    files = [str(resolve_output(source)) for source in config.data.validation]
    return read_files(config.data, files, CacheConfig())


ROWS: dict[Loader, RowsOf] = {
    Loader.layout: table_rows,
    Loader.tempcompass: tempcompass_rows,
    Loader.ovo_bench: ovo_bench_rows,
    Loader.video_mmmu: video_mmmu_rows,
    Loader.videoreasonbench: videoreasonbench_rows,
    Loader.stvg: stvg_rows,
}
"""How the questions of a file are told apart, of loaders that read by `layout`."""


def _load_layout(name: str, config: BenchmarkConfig) -> Sequence[Sample]:
    check_layout(name, config.layout)
    rows_of = ROWS[config.loader]
    return load_layout(name, config.data, config.layout, config.subtitles, rows_of)


def _load_charades_sta(name: str, config: BenchmarkConfig) -> Sequence[Sample]:
    return load_charades_sta(config.data)


LOADERS: dict[Loader, Callable[[str, BenchmarkConfig], Sequence[Sample]]] = {
    Loader.samples: _load_samples,
    **dict.fromkeys(ROWS, _load_layout),
    Loader.charades_sta: _load_charades_sta,
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
    samples = list(LOADERS[config.loader](name, config))
    _refuse_repeated_ids(name, samples)
    if not samples:
        raise UserError(f"benchmark {name}: no questions in {', '.join(config.data.validation)}")
    if config.max_samples is None or config.max_samples >= len(samples):
        return samples
    step = len(samples) / config.max_samples
    return [samples[int(index * step)] for index in range(config.max_samples)]


def _refuse_repeated_ids(name: str, samples: Sequence[Sample]) -> None:
    """Answers are stored by id, so that two questions with one id would share theirs."""
    counts = Counter(sample.id for sample in samples)
    if repeated := [one for one, count in counts.items() if count > 1]:
        raise UserError(
            f"benchmark {name}: {len(repeated)} ids stand for several questions, for example "
            f"{repeated[0]}; set benchmarks.{name}.layout.id to fields that tell them apart"
        )


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
