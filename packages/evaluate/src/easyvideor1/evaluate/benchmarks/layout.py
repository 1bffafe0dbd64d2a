"""Samples from the rows of a release, by the fields that a benchmark's `layout` names.

Reads the official layout and EasyVideoR1's converted file, told apart by their fields; both give
the same samples where they hold the same facts.
"""

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmark_config import LayoutConfig, SubtitleConfig
from easyvideor1.evaluate.benchmarks import options as option_fields
from easyvideor1.evaluate.benchmarks.converted import (
    CONVERTED_FIELDS,
    is_converted,
    parsed,
    released_names,
)
from easyvideor1.evaluate.benchmarks.rows import UNSEEN, table_rows
from easyvideor1.evaluate.benchmarks.subtitles import read_subtitles
from easyvideor1.evaluate.benchmarks.videos import find_video
from easyvideor1.preprocess.config import DataConfig
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.files import new_file
from easyvideor1.schema.records import Answer, Media, MediaKind, ProblemType, Sample
from easyvideor1.schema.sources import find_files

LETTERS = option_fields.LETTERS
FIELD = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a row stands, and where its media are."""

    path: Path
    number: int
    """In its file, from 1; of its video where a row holds several questions."""
    root: Path


RowsOf = Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]


def load_layout(
    name: str,
    data: DataConfig,
    layout: LayoutConfig,
    subtitles: SubtitleConfig,
    rows_of: RowsOf = table_rows,
) -> list[Sample]:
    """The questions in the order of the files.

    Args:
        name: of the benchmark.
        data: names the files and the folder of the media.
        layout: what the fields mean.
        subtitles: where they are.
        rows_of: number and row of each question, or video, of a file.

    Raises:
        DataError: for a row that lacks a field or has another shape than the layout says.
        UserError: for more questions without a right option than `unanswerable`.
    """
    samples: list[Sample] = []
    for path in find_files([resolve_output(source) for source in data.validation]):
        root = resolve_output(data.media_root) if data.media_root else path.parent
        for number, row in _questions(path, layout, rows_of):
            place = Place(path=path, number=number, root=root)
            values = {"file": path.stem, "row": len(samples)} | row
            read = _converted if is_converted(row) else _released
            sample = read(name, values, place, layout, subtitles)
            if sample is not None:
                samples.append(sample)
    _check_unanswerable(name, samples, layout)
    return samples


def _check_unanswerable(name: str, samples: Sequence[Sample], layout: LayoutConfig) -> None:
    """Refuse a file with more questions that nothing answers than the release is known to have."""
    found = [sample.id for sample in samples if sample.options and sample.answer is None]
    if len(found) > layout.unanswerable:
        raise UserError(
            f"benchmark {name}: the answers of {len(found)} questions are none of their options, "
            f"for example of {found[-1]}, but the release has {layout.unanswerable} such; see "
            f"whether benchmarks.{name}.layout fits the file"
        )


def _questions(
    path: Path, layout: LayoutConfig, rows_of: RowsOf
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each question with the fields of its video."""
    for number, row in rows_of(path):
        if not layout.items or is_converted(row):
            yield number, row
            continue
        questions = row.get(layout.items)
        if not isinstance(questions, list) or not questions:
            raise DataError(path, number, layout.items, questions, "a list of questions")
        shared = {name: value for name, value in row.items() if name != layout.items}
        for question in questions:
            yield number, shared | question


def _converted(
    name: str,
    row: dict[str, Any],
    place: Place,
    layout: LayoutConfig,
    subtitles: SubtitleConfig,
) -> Sample:
    own = {field: value for field, value in row.items() if field not in ("file", "row")}
    sample = parsed(own, place.number, place.path, layout)
    names = released_names(row, layout)
    # The name of a converted file tells no task.
    has_category = _has(layout.category, {k: v for k, v in names.items() if k != "file"})
    gone = {"row", "question", "image_path", *CONVERTED_FIELDS, *layout.options}
    extra = {k: v for k, v in names.items() if k not in gone and v not in (None, "")}
    if subtitles.folder is not None:
        extra["subtitles"] = _subtitles(subtitles, names, place)
    video = sample.media[0]
    media = [find_video(place.root, video.path, video.start_s, video.end_s, layout)]
    if row.get("image_path"):
        media.append(Media(kind=MediaKind.image, path=str(place.root / row["image_path"])))
    identity = layout.id if _has(layout.id, names) else layout.converted_id
    return replace(
        sample,
        id=f"{name}/{_filled(identity, names, place)}",
        source=name,
        category=_filled(layout.category, names, place) if has_category else "",
        media=tuple(media),
        extra=extra,
    )


def _released(
    name: str,
    row: dict[str, Any],
    place: Place,
    layout: LayoutConfig,
    subtitles: SubtitleConfig,
) -> Sample | None:
    if layout.hidden and row.get(layout.answer) == layout.hidden:
        return None
    for field, text in layout.cut.items():
        row[field] = str(row[field]).rpartition(text)[2]
    if layout.folders:
        row["folder"] = layout.folders.get(row["file"], row["file"])
    # MLVU has a question without words; it is asked as it is.
    asked = _filled(layout.question, row, place, may_be_empty=True)
    question, options = option_fields.split(asked, row, place.path, place.number, layout)
    category = _filled(layout.category, row, place)
    free = layout.kinds.get(category, layout.without_options)
    extra = _extra(row, layout)
    if subtitles.folder is not None:
        extra["subtitles"] = _subtitles(subtitles, row, place)
    return Sample(
        id=f"{name}/{_filled(layout.id, row, place)}",
        problem=question,
        answer=_answer(row, options, place, layout),
        problem_type=ProblemType.multiple_choice if options else free,
        options=options,
        media=_media(row, place, layout),
        source=name,
        category=category,
        extra=extra,
    )


def _subtitles(config: SubtitleConfig, row: Mapping[str, Any], place: Place) -> str:
    """The subtitles of a row's video; those of a converted row may not be named."""
    if not _has(config.file, row):
        return config.none
    file = place.root / str(config.folder) / _filled(config.file, row, place)
    return read_subtitles(file) if file.is_file() else config.none


def _has(template: str, row: Mapping[str, Any]) -> bool:
    """Whether the row has all fields that a text shows."""
    return all(_value(row, field) not in (None, "") for field in FIELD.findall(template))


def _value(row: Mapping[str, Any], field: str) -> Any:
    """Value of a field, or of one within another; None where it is absent."""
    outer, _, inner = field.partition(".")
    within = row.get(outer)
    return within.get(inner) if inner and isinstance(within, Mapping) else row.get(field)


def _filled(template: str, row: Mapping[str, Any], place: Place, may_be_empty: bool = False) -> str:
    """A text with the fields of the row in it; a list counts as its values with commas."""

    def value(match: re.Match[str]) -> str:
        found = _value(row, match[1])
        if found is None or (found == "" and not may_be_empty):
            raise DataError(place.path, place.number, match[1], found, "a value, as in the release")
        return ", ".join(map(str, found)) if isinstance(found, list) else str(found)

    return FIELD.sub(value, template)


def _extra(row: Mapping[str, Any], layout: LayoutConfig) -> dict[str, Any]:
    """All that is no part of the sample itself."""
    used = {"row", "folder", "image", UNSEEN, *layout.options, *FIELD.findall(layout.question)}
    kept = {name: value for name, value in row.items() if name not in used and value is not None}
    for field, bounds in layout.bands.items():
        kept[f"{field}_band"] = _band(float(row[field]), bounds)
    return kept | {
        name: [part.strip() for part in str(kept[name]).split(",")]
        for name in layout.lists
        if isinstance(kept.get(name), str)
    }


def _band(value: float, bounds: Sequence[float]) -> str:
    """Name of the band that a number is in: `<=60`, `60-300`, `>300`."""
    index = bisect.bisect_left(bounds, value)
    if index == len(bounds):
        return f">{bounds[-1]:g}"
    return f"<={bounds[0]:g}" if index == 0 else f"{bounds[index - 1]:g}-{bounds[index]:g}"


def _answer(
    row: Mapping[str, Any], options: tuple[str, ...], place: Place, layout: LayoutConfig
) -> Answer:
    """The gold answer: of a question with options its letter."""
    value = row.get(layout.answer)
    if options and value is not None:
        letter = option_fields.letter_of(value, options)
        if letter is None and layout.unanswerable == 0:
            last = LETTERS[len(options) - 1]
            expected = f"a letter from A to {last}, a place or the text of an option"
            fix = "Where the release has it so, allow for it with layout.unanswerable."
            raise DataError(place.path, place.number, layout.answer, value, expected, fix)
        return letter
    if value is None and layout.without_answer:
        return None
    if value is None or value == "":
        raise DataError(place.path, place.number, layout.answer, value, "a gold answer")
    return value


def _media(row: Mapping[str, Any], place: Place, layout: LayoutConfig) -> tuple[Media, ...]:
    """The video, unless the question is asked without it, and the image after it."""
    media = [] if row.get(UNSEEN) else [_video(row, place, layout)]
    if layout.image and row.get("image"):
        path = place.root / _filled(layout.image, row, place)
        if isinstance(row["image"], Mapping) and row["image"].get("bytes") and not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with new_file(path) as draft:
                draft.write_bytes(row["image"]["bytes"])
        media.append(Media(kind=MediaKind.image, path=str(path)))
    return tuple(media)


def _video(row: Mapping[str, Any], place: Place, layout: LayoutConfig) -> Media:
    name = _filled(layout.video, row, place)
    times = [_seconds(row, field, place) for field in (layout.start_s, layout.end_s)]
    is_number = layout.frames_fps.replace(".", "").isdigit()
    fps = float(layout.frames_fps) if is_number else _seconds(row, layout.frames_fps, place)
    try:
        return find_video(place.root, name, times[0], times[1], layout, fps)
    except ValueError as error:
        raise DataError(place.path, place.number, layout.end_s, times[1], str(error)) from None


def _seconds(row: Mapping[str, Any], field: str, place: Place) -> float | None:
    """A number that a row may have."""
    value = row.get(field) if field else None
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(place.path, place.number, field, value, "a number") from None


def check_layout(name: str, layout: LayoutConfig) -> None:
    """Refuse a layout that names no video.

    Raises:
        UserError: saying what to set.
    """
    if not layout.video:
        raise UserError(f"benchmarks.{name}.layout.video is not set: the file of a row's video")
