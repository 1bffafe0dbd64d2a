"""Charades-STA (Gao et al., arXiv 1705.02101): when does a described action happen?

Three layouts: the text files of the TALL repository, `VIDEO start end##sentence` a line, the table
on Hugging Face with `video`, `caption` and `timestamp`, and EasyVideoR1's converted file. Videos
are `<VIDEO>.mp4`, those of `Charades_v1_480`, in `data.media_root`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmark_config import LayoutConfig
from easyvideor1.evaluate.benchmarks.converted import is_converted, parsed
from easyvideor1.evaluate.benchmarks.rows import table_rows
from easyvideor1.preprocess.config import DataConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample
from easyvideor1.schema.sources import SUFFIXES, find_files

LINE = re.compile(r"(?P<video>\S+) (?P<start>[\d.]+) (?P<end>[\d.]+)##(?P<caption>.+)")


def load_charades_sta(data: DataConfig) -> list[Sample]:
    """The queries in the order of the files, numbered from 0.

    Raises:
        DataError: for a line or row that is not in its layout.
    """
    samples: list[Sample] = []
    sources = [resolve_output(source) for source in data.validation]
    for path in find_files(sources, (".txt", *SUFFIXES)):
        root = resolve_output(data.media_root) if data.media_root else path.parent
        rows = _lines(path) if path.suffix == ".txt" else _rows(path)
        for number, row in rows:
            samples.append(_sample(row, root, path, number, index=len(samples)))
    return samples


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise DataError(path, number, "line", line, "VIDEO start end##sentence")
        times = [float(match["start"]), float(match["end"])]
        yield number, {"video": match["video"], "caption": match["caption"], "timestamp": times}


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in table_rows(path):
        if not is_converted(row):
            yield number, row
            continue
        query = parsed(row, number, path, LayoutConfig())
        times = query.answer.get("time") if isinstance(query.answer, dict) else None
        yield number, {"video": row["path"], "caption": query.problem, "timestamp": times}


def _sample(row: dict[str, Any], root: Path, path: Path, number: int, *, index: int) -> Sample:
    for field in ("video", "caption", "timestamp"):
        if not row.get(field):
            raise DataError(path, number, field, row.get(field), "a value, as in the release")
    start_s, end_s = row["timestamp"]
    if not 0 <= start_s < end_s:
        raise DataError(path, number, "timestamp", row["timestamp"], "0 <= start < end, in seconds")
    video = row["video"].removesuffix(".mp4")
    caption = row["caption"].strip()
    return Sample(
        id=f"charades_sta/{index:04d}",
        problem=f'When does this happen in the video: "{caption}"',
        answer={"time": [start_s, end_s]},
        problem_type=ProblemType.temporal_grounding,
        media=(Media(kind=MediaKind.video, path=str(root / f"{video}.mp4")),),
        source="charades_sta",
        extra={"video": video, "caption": caption},
    )
