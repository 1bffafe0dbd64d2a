"""Video-MME (Fu et al., arXiv 2405.21075) as released on Hugging Face.

One parquet file of questions (`videomme/test-00000-of-00001.parquet`) and the videos, unpacked, as
`<videoID>.mp4` in `data.media_root`. Subtitles are not read: this is the setting without them.
"""

import os
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmarks.rows import table_rows
from easyvideor1.preprocess.config import DataConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import DataError
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample
from easyvideor1.schema.sources import find_files

VIDEO_SUFFIXES = (".mp4", ".MP4", ".mkv")
"""Of the videos, as the release and its users have them; the first is the rule."""
FIELDS = (
    "video_id",
    "duration",
    "domain",
    "sub_category",
    "url",
    "videoID",
    "question_id",
    "task_type",
    "question",
    "options",
    "answer",
)
LETTERS = "ABCD"


def load_video_mme(data: DataConfig) -> list[Sample]:
    """The questions in the order of the release.

    Raises:
        DataError: for a row that lacks a field or does not have four lettered options.
    """
    samples = []
    for path in find_files([resolve_output(source) for source in data.validation]):
        root = resolve_output(data.media_root) if data.media_root else path.parent
        samples += [_sample(row, root, path, number) for number, row in table_rows(path)]
    return samples


def _sample(row: dict[str, Any], root: Path, path: Path, number: int) -> Sample:
    for field in FIELDS:
        if row.get(field) in (None, ""):
            raise DataError(path, number, field, row.get(field), "a value, as in the release")
    if row["answer"] not in LETTERS:
        raise DataError(path, number, "answer", row["answer"], f"one of {', '.join(LETTERS)}")
    return Sample(
        id=f"video_mme/{row['question_id']}",
        problem=row["question"],
        answer=row["answer"],
        problem_type=ProblemType.multiple_choice,
        options=_options(row["options"], path, number),
        media=(Media(kind=MediaKind.video, path=_video(root, row["videoID"])),),
        source="video_mme",
        category=row["task_type"],
        extra={field: row[field] for field in FIELDS if field not in ("question", "options")},
    )


def _options(options: list[str], path: Path, number: int) -> tuple[str, ...]:
    """Without their letters: `A. Apples.` becomes `Apples.`."""
    lettered = [
        option[:2] == f"{letter}." for letter, option in zip(LETTERS, options, strict=False)
    ]
    if len(options) != len(LETTERS) or not all(lettered):
        raise DataError(path, number, "options", options, "four options lettered A. to D.")
    return tuple(option[2:].strip() for option in options)


def _video(root: Path, video_id: str) -> str:
    """The file that is there; where none is, the name it should have."""
    candidates = [str(root / f"{video_id}{suffix}") for suffix in VIDEO_SUFFIXES]
    return next((path for path in candidates if os.path.isfile(path)), candidates[0])
