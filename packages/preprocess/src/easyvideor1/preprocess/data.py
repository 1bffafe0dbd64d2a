"""The data of a config: built on first use where it is toy data, its paths resolved, its rows read.

What a row must hold is up to `schema.readers`, what `data.filter` says to `schema.filter`. Media
are named and not opened, so text and image rows pass as they are. Imports no torch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.built import build_folder, differing_settings
from easyvideor1.preprocess.config import CacheConfig, DataConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.filter import SampleFilter, compile_filter
from easyvideor1.schema.readers import SampleTable, read_samples
from easyvideor1.schema.records import Sample


def ensure_data(config: DataConfig) -> DataConfig:
    """`config` with absolute paths, after building what it asks to build under outputs/data/.

    Raises:
        UserError: if no files are named, the folder holds data of other settings, or `data.filter`
            is no filter.
    """
    if config.filter is not None:
        compile_filter(config.filter)
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


def read_files(data: DataConfig, files: Sequence[str], cache: CacheConfig) -> Sequence[Sample]:
    """The samples of `data.train` or `data.validation`: every row checked, `data.filter` applied.

    Prints what was left out, and why.

    Args:
        data: as `ensure_data` returned it.
        files: its training or its validation files; none give no samples.
        cache: where converted files are kept.

    Raises:
        UserError: for a missing file, or a filter that keeps no sample; `DataError` for a bad row,
            unless `data.on_bad_row=skip`.
    """
    if not files:
        return []
    keep = None if data.filter is None else compile_filter(data.filter)
    table = read_samples(
        list(files),
        format=data.format,
        media_root=data.media_root,
        on_bad_row=data.on_bad_row,
        problem_type=data.problem_type,
        cache_dir=resolve_output(cache.dir),
    )
    if table.skipped:
        print(f"data.on_bad_row=skip left out {len(table.skipped)} rows of {', '.join(files)}")
    return table if keep is None else _filtered(table, keep, ", ".join(files))


def _filtered(table: SampleTable, keep: SampleFilter, files: str) -> SampleTable:
    kept, report = keep.apply(table)
    if not report.kept:
        raise UserError(
            f"data.filter={keep.text!r} keeps none of the {report.total} samples of {files}: "
            f"{keep.describe(table)}. Set another filter, or data.filter=null to keep all"
        )
    missing = "".join(f"; {count} have no {name}" for name, count in report.missing.items())
    counts = f"{report.kept} of {report.total} samples"
    print(f"data.filter={keep.text!r} kept {counts} of {files}{missing}")
    return kept


def _ensure_built(name: str, settings: Any, build: Callable[[Any, Path], None]) -> None:
    folder = resolve_output(f"outputs/data/{name}")
    if not folder.exists():
        build_folder(folder, settings, build)
    if differing := differing_settings(folder, settings):
        shown = ", ".join(f"{key}={was!r} not {now!r}" for key, (was, now) in differing.items())
        raise UserError(
            f"{folder} was built with other settings ({shown}); set another data.name or delete it"
        )
