"""What the fields of a row mean: from a raw row of a known data format to a `Sample`.

Our own format holds the fields of `Sample` as they are. The published ones (EasyVideoR1, Video-R1,
OneThinker, EasyR1) share one vocabulary and one parser; they differ in which fields a row needs.
Every rule that a row breaks is a `DataError` with file, row and field.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from easyvideor1.schema.arrow import to_json_text
from easyvideor1.schema.codec import FieldError, from_plain
from easyvideor1.schema.errors import DataError, UserError
from easyvideor1.schema.records import (
    ALIASES,
    Answer,
    Media,
    MediaKind,
    ProblemType,
    Sample,
    Trajectory,
    parse_problem_type,
)

EXTRACTED = "extracted:"
"""Prefix of a medium's path that lies in the folder of the converted file."""

GROUNDING = frozenset(
    {
        ProblemType.temporal_grounding,
        ProblemType.spatial_temporal_grounding,
        ProblemType.spatial_grounding,
        ProblemType.tracking,
    }
)
"""Types whose gold answer is a JSON object or list."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
_VIDEO_SUFFIXES = {".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".mpeg", ".ts", ".flv"}
_IMAGE_MAGIC = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif", b"BM": ".bmp"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A published data format."""

    needs: tuple[str, ...]
    """Fields that every row has; `a|b` means one of them."""
    description: str


LAYOUTS: dict[str, Layout] = {
    "easyvideor1": Layout(
        needs=("problem", "problem_type", "answer|solution"),
        description="problem, problem_type, answer or solution; images, videos or path",
    ),
    "video_r1": Layout(
        needs=("problem", "problem_type", "solution", "data_type"),
        description="problem_id, problem, data_type, problem_type, options, solution, path",
    ),
    "onethinker": Layout(
        needs=("problem", "problem_type", "answer|solution", "data_type"),
        description="as video_r1, with answer and images or videos in the training files",
    ),
    "easyr1": Layout(
        needs=("problem", "answer"),
        description="problem, answer, images or videos; no problem type",
    ),
}
OWN = "samples"
FORMATS = ("auto", OWN, *LAYOUTS)

_OWN_FIELDS = tuple(field.name for field in fields(Sample))
_PUBLISHED_MARKS = {
    "path", "images", "videos", "solution", "problem_id", "data_type", "data_source",
    "has_offline_trajectory", "offline_output", "preprocessed_video",
}  # fmt: skip


def detect(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """The format of a file, from the fields of its first rows.

    Raises:
        UserError: when the fields fit none or more than one; it says which `format` to set.
    """
    keys = {key for row in rows for key, value in row.items() if value is not None}
    published = bool(keys & _PUBLISHED_MARKS)
    if keys & {"media", "offline"} or ({"id", "problem_type"} <= keys and not published):
        if published:
            marks = ", ".join(sorted(keys & _PUBLISHED_MARKS))
            raise UserError(
                f"{path}: has fields of our own format (media or offline) and of a published one "
                f"({marks}); set format (data.format) to {OWN} or to one of {', '.join(LAYOUTS)}"
            )
        return OWN
    if "problem" in keys and (published or {"problem", "answer"} == keys):
        return "easyvideor1" if "problem_type" in keys else "easyr1"
    found = ", ".join(sorted(keys)) or "none"
    known = "; ".join(f"{name}: {layout.description}" for name, layout in LAYOUTS.items())
    raise UserError(
        f"{path}: the fields ({found}) do not tell the format; set format (data.format) to one of "
        f"{', '.join(FORMATS[1:])}. {OWN}: {', '.join(_OWN_FIELDS)}; {known}"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What the parsers need to know about a file besides its rows."""

    path: Path
    format: str
    problem_type: ProblemType | None = None
    """Of rows that name none."""
    store_image: Callable[[bytes, str], str] | None = None
    """Stores the bytes of an embedded image under a name; gives the path for its medium."""

    @property
    def id_prefix(self) -> str:
        """Before the ids of published formats, which are only unique within a file."""
        return self.path.stem


def parse(values: Mapping[str, Any], number: int, context: Context) -> Sample:
    """The sample in one raw row.

    Raises:
        DataError: naming the field that breaks a rule.
    """
    row = Row(context.path, number, values)
    sample = _parse_own(row) if context.format == OWN else _parse_published(row, context)
    _check_text(row, sample)
    return sample


class Row:
    """A raw row that remembers which fields were read and words the errors about it."""

    def __init__(self, path: Path, number: int, values: Mapping[str, Any]):
        self.path, self.number, self.values = path, number, values
        self._read: set[str] = set()

    def bad(self, field: str, expected: str, fix: str = "") -> DataError:
        """The error that `field` is not what was expected."""
        return DataError(self.path, self.number, field, self.values.get(field), expected, fix)

    def get(self, field: str) -> Any:
        """Value of `field`, None when absent."""
        self._read.add(field)
        return self.values.get(field)

    def text(self, field: str, default: str | None = None) -> str:
        """Text of `field`; without a default it must be there."""
        value = self.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.bad(field, "text")
        return value

    def number_of(self, field: str, low: float, high: float) -> float | None:
        """Finite number of `field` within the bounds, None when absent."""
        value = self.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(field, "a number")
        if not (math.isfinite(value) and low <= value <= high):
            raise self.bad(field, f"a number from {low:g} to {high:g}")
        return float(value)

    def rest(self) -> dict[str, Any]:
        """Fields that nobody read."""
        return {
            name: value
            for name, value in self.values.items()
            if name not in self._read and value is not None
        }


def _check_text(row: Row, sample: Sample) -> None:
    """Everything must be storable: UTF-8 text and JSON values."""
    for field in ("answer", "extra"):
        try:
            to_json_text(getattr(sample, field)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise row.bad(field, f"JSON values ({error})") from None
    texts = {
        "id": [sample.id],
        "problem": [sample.problem],
        "options": sample.options,
        "media": [path for m in sample.media for path in (m.path, *m.frames)],
        "offline": [text for t in sample.offline for text in (t.text, t.source)],
        "source": [sample.source],
        "category": [sample.category],
    }
    for field, values in texts.items():
        for value in values:
            try:
                value.isascii() or value.encode()
            except UnicodeEncodeError as error:
                raise row.bad(field, f"valid Unicode text ({error.reason})") from None


# Our own format


def _parse_own(row: Row) -> Sample:
    values = dict(row.values)
    if "answer" not in values:
        raise row.bad("answer", "the gold answer, or null where it is hidden")
    if isinstance(values.get("problem_type"), str):
        values["problem_type"] = _type_called(row, values["problem_type"]).value
    try:
        sample = from_plain(Sample, values)
    except FieldError as error:
        raise DataError(row.path, row.number, error.field, error.value, error.expected) from None
    if not sample.id:
        raise row.bad("id", "text that is not empty")
    row.number_of("pass_rate", 0, 1)
    _check_problem(row, sample.problem, sample.problem_type, sample.media)
    if sample.answer is None:
        return sample
    if sample.problem_type is ProblemType.multiple_choice:
        return replace(sample, answer=_letter(row, "answer", sample.answer, sample.options))
    _check_answer(row, "answer", sample.answer, sample.problem_type)
    return sample


# Published formats


def _parse_published(row: Row, context: Context) -> Sample:
    layout = LAYOUTS[context.format]
    for need in layout.needs:
        if need == "problem_type" and context.problem_type is not None:
            continue
        if all(row.values.get(name) is None for name in need.split("|")):
            raise row.bad(need.split("|")[0], f"a value: {context.format} rows hold {need}")
    problem_type = _problem_type(row, context)
    options = _options(row)
    media = _media(row, problem_type, context)
    problem = row.text("problem")
    _check_problem(row, problem, problem_type, media)
    answer = _gold(row, problem_type, options)
    offline = _offline(row)
    row.get("preprocessed_video")  # names a file of another cache
    pass_rate = row.number_of("pass_rate", 0, 1)
    return Sample(
        id=_id(row, context),
        problem=problem,
        answer=answer,
        problem_type=problem_type,
        media=media,
        options=options,
        offline=offline,
        source=row.text("data_source", ""),
        category=row.text("category", ""),
        pass_rate=pass_rate,
        extra=row.rest(),
    )


def _id(row: Row, context: Context) -> str:
    for field in ("problem_id", "id"):
        value = row.values.get(field)
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise row.bad(field, "text or a whole number")
        row.get(field)
        return f"{context.id_prefix}/{value}"
    return f"{context.id_prefix}/{row.number}"


def _problem_type(row: Row, context: Context) -> ProblemType:
    name = row.get("problem_type")
    if name is None:
        if context.problem_type is None:
            raise row.bad(
                "problem_type",
                f"one of {', '.join(ProblemType.__members__)}",
                "The file names no type; set problem_type (data.problem_type) for all of it.",
            )
        return context.problem_type
    return _type_called(row, row.text("problem_type"))


def _type_called(row: Row, name: str) -> ProblemType:
    try:
        return parse_problem_type(name)
    except ValueError:
        known = ", ".join([*ProblemType.__members__, *sorted(ALIASES)])
        raise row.bad("problem_type", f"one of {known}") from None


def _check_problem(
    row: Row, problem: str, problem_type: ProblemType, media: tuple[Media, ...]
) -> None:
    # A captioning row may show a video and ask nothing.
    if not problem.strip() and not (media and problem_type is ProblemType.open_ended):
        raise row.bad("problem", "a question that is not empty")


# Media


def _media(row: Row, problem_type: ProblemType, context: Context) -> tuple[Media, ...]:
    data_type = row.text("data_type", "").strip().lower()
    if data_type not in ("", "text", "image", "video", "mixed"):
        raise row.bad("data_type", "text, image, video or mixed")
    images = [_image(row, item, context) for item in _listed(row, "images")]
    videos = [
        Media(kind=MediaKind.video, path=_path(row, "videos", item))
        for item in _listed(row, "videos")
    ]
    media = [*images, *videos]
    if row.values.get("path") not in (None, ""):
        medium = _single(row, data_type)
        if media and medium not in media:
            raise row.bad("path", "no path beside images or videos, or one of them")
        media = media or [medium]
    row.get("path")
    media = _with_span(row, media, problem_type)
    _check_data_type(row, data_type, media)
    return tuple(media)


def _listed(row: Row, field: str) -> list[Any]:
    value = row.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise row.bad(field, "a list")
    return value


def _path(row: Row, field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise row.bad(field, "the path of a file")
    if "://" in value:
        raise row.bad(field, "a local path", "Download the file and name its path.")
    return value


def _image(row: Row, item: Any, context: Context) -> Media:
    """An image given by path, or by its bytes as Hugging Face data sets embed them."""
    data = item.get("bytes") if isinstance(item, dict) else item
    if not isinstance(data, bytes):
        path = item.get("path") if isinstance(item, dict) else item
        return Media(kind=MediaKind.image, path=_path(row, "images", path))
    suffix = next((s for magic, s in _IMAGE_MAGIC.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        suffix = ".webp"
    if not suffix:
        raise DataError(
            row.path, row.number, "images", data[:12], "PNG, JPEG, WebP, GIF or BMP bytes"
        )
    name = hashlib.sha256(data).hexdigest()[:32] + suffix
    if context.store_image is None:
        raise TypeError("the context cannot store embedded images")
    return Media(kind=MediaKind.image, path=context.store_image(data, name))


def _single(row: Row, data_type: str) -> Media:
    """The one medium that `path` names; its kind is the data type, else told by its suffix."""
    path = _path(row, "path", row.get("path"))
    if data_type in ("image", "video"):
        return Media(kind=MediaKind(data_type), path=path)
    suffix = Path(path).suffix.lower()
    if not data_type and suffix in _IMAGE_SUFFIXES | _VIDEO_SUFFIXES:
        kind = MediaKind.image if suffix in _IMAGE_SUFFIXES else MediaKind.video
        return Media(kind=kind, path=path)
    raise row.bad("data_type", f"image or video, for the path {path!r}")


def _with_span(row: Row, media: list[Media], problem_type: ProblemType) -> list[Media]:
    """Apply `start` and `end` to the only video. In grounding rows they could be the answer."""
    if problem_type in GROUNDING or len(media) != 1 or media[0].kind is not MediaKind.video:
        return media
    start, end = (row.number_of(name, 0, math.inf) for name in ("start", "end"))
    try:
        return [replace(media[0], start_s=start, end_s=end)]
    except ValueError as error:
        raise row.bad("end", str(error)) from None


def _check_data_type(row: Row, data_type: str, media: list[Media]) -> None:
    kinds = {medium.kind.value for medium in media}
    found = "mixed" if len(kinds) > 1 else next(iter(kinds), "text")
    if data_type and data_type != found:
        raise row.bad("data_type", f"{found}, which its media are")


# Options and gold answers


def _options(row: Row) -> tuple[str, ...]:
    """Choices without their letters, where every one carries its letter in order."""
    given = _listed(row, "options")
    texts = []
    for item in given:
        if isinstance(item, int | float) and not isinstance(item, bool):
            item = to_json_text(item)
        if not isinstance(item, str):
            raise row.bad("options", "a list of texts")
        texts.append(item)
    if len(texts) > len(LETTERS):
        raise row.bad("options", f"at most {len(LETTERS)} options, got {len(texts)}")
    return without_letters(texts)


def without_letters(options: Sequence[str]) -> tuple[str, ...]:
    """`A. red`, `B. blue` to `red`, `blue`; as they are unless every one carries its letter."""
    stripped = [
        _without_letter(text, letter) for text, letter in zip(options, LETTERS, strict=False)
    ]
    if len(stripped) == len(options) and all(text is not None for text in stripped):
        return tuple(text for text in stripped if text is not None)
    return tuple(options)


def _without_letter(option: str, letter: str) -> str | None:
    """`A. red`, `A: red`, `A) red` and `(A) red` to `red`; None when it carries no letter."""
    match = re.match(rf"\s*(?:\({letter}\)|{letter}\s*[.:)、:.])\s*(.*)", option, re.DOTALL)
    return match.group(1).strip() if match else None


_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def _gold(row: Row, problem_type: ProblemType, options: tuple[str, ...]) -> Answer:
    """The gold answer: a `solution` in answer tags, else `answer`, else a bare `solution`.

    Where both are there and only `answer` is in tags or bare, `solution` is an explanation.
    """
    solution, answer = row.values.get("solution"), row.values.get("answer")
    tagged = isinstance(solution, str) and _ANSWER.search(solution) is not None
    field = "solution" if tagged or answer is None else "answer"
    value = _untagged(row, field, row.get(field), problem_type)
    if problem_type is ProblemType.multiple_choice:
        letter = _letter(row, field, value, options)
        if field == "solution" and isinstance(answer, str):
            _check_agreement(row, letter, answer, options)
        return letter
    _check_answer(row, field, value, problem_type)
    return value


def _untagged(row: Row, field: str, value: Any, problem_type: ProblemType) -> Answer:
    """`value` without answer tags, and as JSON for the types that answer in JSON."""
    if not isinstance(value, str):
        return value
    found = _ANSWER.findall(value)
    if len(found) > 1:
        raise row.bad(field, "one <answer>…</answer>")
    text = found[0].strip() if found else value.strip()
    if problem_type not in GROUNDING:
        return text
    # Charades-STA files carry a damaged template: the JSON stands in <think>, no <answer>.
    if not found and (thought := _THINK.search(value)):
        text = thought.group(1).strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise row.bad(field, f"JSON, as {problem_type.value} answers are") from None


def _check_answer(row: Row, field: str, value: Answer, problem_type: ProblemType) -> None:
    if value is None or value == "":
        raise row.bad(field, "a gold answer that is not empty")
    if problem_type in GROUNDING and not isinstance(value, dict | list):
        raise row.bad(field, f"a JSON object or list, as {problem_type.value} answers are")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if problem_type in (ProblemType.numerical, ProblemType.regression) and not (
        is_number or isinstance(value, str)
    ):
        raise row.bad(field, "a number or text")
    if problem_type is ProblemType.boolean and not isinstance(value, bool | str):
        raise row.bad(field, "true, false or text")


def _letter(row: Row, field: str, value: Answer, options: tuple[str, ...]) -> str:
    """The letter of a multiple-choice gold given as letter, as lettered option or as its text."""
    known = f"a letter from A to {LETTERS[len(options) - 1]}" if options else "a letter"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise row.bad(field, f"{known} or the text of one option")
    text = value.strip() if isinstance(value, str) else to_json_text(value)
    if letter := _plain_letter(text, len(options) or len(LETTERS)):
        return letter
    letters = _letters_of_text(text, options)
    if len(letters) > 1:
        raise row.bad(field, f"{known}; options {', '.join(letters)} have this same text")
    if not letters:
        shown = ", ".join(f"{LETTERS[i]}. {option}" for i, option in enumerate(options))
        raise row.bad(field, f"{known} or the text of one option ({shown or 'no options given'})")
    return letters[0]


def _plain_letter(text: str, count: int) -> str | None:
    match = re.fullmatch(r"\(?([A-Z])\)?[.:]?", text)
    return match.group(1) if match and match.group(1) in LETTERS[:count] else None


def _letters_of_text(text: str, options: tuple[str, ...]) -> list[str]:
    return [
        LETTERS[index]
        for index, option in enumerate(options)
        if text == option.strip() or _without_letter(text, LETTERS[index]) == option.strip()
    ]


def _check_agreement(row: Row, letter: str, answer: str, options: tuple[str, ...]) -> None:
    """`solution` decides; an `answer` that clearly names another option is a contradiction."""
    text = answer.strip()
    readings = {_plain_letter(text, len(options)), *_letters_of_text(text, options)} - {None}
    if readings and letter not in readings:
        raise row.bad("answer", f"the option {letter} that solution names")


# Offline trajectories


def _offline(row: Row) -> tuple[Trajectory, ...]:
    flag = row.get("has_offline_trajectory")
    if flag is not None and not isinstance(flag, bool):
        raise row.bad("has_offline_trajectory", "true or false")
    text = row.values.get("offline_output")
    if text is not None and not isinstance(text, str):
        raise row.bad("offline_output", "text")
    if flag and not (text or "").strip():
        raise row.bad("offline_output", "text, as has_offline_trajectory is true")
    if text and flag is not False:
        row.get("offline_output")
        return (Trajectory(text=text),)
    return _reasoned(row)


def _reasoned(row: Row) -> tuple[Trajectory, ...]:
    """Video-R1's supervised files keep the reasoning in `process`, the answer in `solution`."""
    process, solution = row.values.get("process"), row.values.get("solution")
    if not (isinstance(process, str) and "<think>" in process and isinstance(solution, str)):
        return ()
    row.get("process")
    return (Trajectory(text=f"{process.strip()}\n{solution.strip()}", source="process"),)
