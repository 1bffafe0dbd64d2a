"""Releases whose questions stand within other structures, as rows of one question each.

What a row's fields mean is the layout's business. Rows of EasyVideoR1's converted file pass as they
are.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.benchmarks.converted import is_converted
from easyvideor1.evaluate.benchmarks.options import lettered_lines
from easyvideor1.evaluate.benchmarks.rows import UNSEEN, table_rows
from easyvideor1.schema.errors import DataError, UserError

Rows = Iterator[tuple[int, dict[str, Any]]]

OVO_GROUPS = {
    "backward": ("EPM", "ASI", "HLD"),
    "realtime": ("OCR", "ACR", "ATR", "STU", "FPD", "OJR"),
    "forward": ("REC", "SSR", "CRR"),
}
"""Tasks of each group (JoeLeelyf/OVO-Bench, constant.py)."""
OVO_GROUP_OF = {task: group for group, tasks in OVO_GROUPS.items() for task in tasks}


def tempcompass_rows(path: Path) -> Rows:
    """Questions by video and aspect, or the rows of the table on Hugging Face."""
    task = path.parent.name if path.stem.startswith("test") else path.stem
    for number, row in table_rows(path):
        if is_converted(row):
            yield number, row
        elif "question" in row:
            yield number, {"task": task, "index": number} | _tempcompass_choices(row, task)
        else:
            for video_id, aspects in row.items():
                for dim, questions in aspects.items():
                    about = _about_caption(path, video_id, dim) if task == "captioning" else {}
                    about |= _tempcompass_type(path, video_id, dim)
                    shared = {"task": task, "video_id": video_id, "dim": dim} | about
                    for index, question in enumerate(questions):
                        asked = _tempcompass_choices(question, task)
                        yield number, asked | shared | {"index": index}


def _tempcompass_choices(row: dict[str, Any], task: str) -> dict[str, Any]:
    """The question apart from its options; `asked` is the whole of it."""
    asked = str(row.get("question"))
    if task == "multi-choice":
        head, choices = lettered_lines(asked)
    elif task == "caption_matching":
        head, *choices = asked.split("\n")
    else:
        head, choices = asked, ()
    return row | {"question": head, "choices": list(choices), "asked": asked}


def _tempcompass_type(path: Path, video_id: str, dim: str) -> dict[str, Any]:
    """The finer aspect that `meta_info.json` names, where it is beside the questions."""
    types = _tempcompass_types(path.parent.with_name("meta_info.json"))
    found = "order" if dim == "order" else types.get(video_id, {}).get(dim)
    return {"type": found} if found else {}


@lru_cache(maxsize=1)
def _tempcompass_types(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    videos = json.loads(path.read_text(encoding="utf-8"))
    return {
        video_id: {
            dim: about["type"]
            for dim, about in video["eval_dim"].items()
            if about and "type" in about
        }
        for video_id, video in videos.items()
    }


def _about_caption(path: Path, video_id: str, dim: str) -> dict[str, Any]:
    """The first multiple-choice question on a video and aspect, which its captions must answer."""
    (first, *_) = _multi_choice(path.with_name("multi-choice.json"))[video_id][dim]
    return {"mc_question": first["question"], "mc_answer": first["answer"]}


@lru_cache(maxsize=1)
def _multi_choice(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path} is not there; captions are scored with its questions")
    return json.loads(path.read_text(encoding="utf-8"))


def ovo_bench_rows(path: Path) -> Rows:
    """A row for each time at which something is asked; `clip` is the video up to that time."""
    for number, row in table_rows(path):
        if is_converted(row):
            yield number, row
            continue
        task = row.get("task")
        if task not in OVO_GROUP_OF:
            raise DataError(path, number, "task", task, f"one of {', '.join(OVO_GROUP_OF)}")
        shared = {"group": OVO_GROUP_OF[task], "clip": str(row.get("id"))}
        if "test_info" not in row:
            yield number, row | shared
            continue
        for index, test in enumerate(row["test_info"]):
            asked = _ovo_forward(row | test)
            yield number, row | test | shared | {"clip": f"{row['id']}_{index}"} | asked


def _ovo_forward(row: dict[str, Any]) -> dict[str, Any]:
    """Question and answer of a forward task (JoeLeelyf/OVO-Bench, utils/OVOBench.py)."""
    if row["task"] == "REC":
        return {"question": f"How many times did they {row['activity']}?", "gt": row["count"]}
    question = row["step"] if row["task"] == "SSR" else row["question"]
    return {"question": question, "gt": "Yes" if row["type"] else "No"}


def video_mmmu_rows(path: Path) -> Rows:
    """Questions of a track; those of the adaptation track come once more without the video."""
    for number, row in table_rows(path):
        if is_converted(row):
            # Only the questions of this track have an image; which track others are of is lost.
            yield number, row | ({"track": "Adaptation"} if row.get("image_path") else {})
            continue
        track = path.parent.name if path.stem.startswith("test") else path.stem
        track = track.capitalize()
        subject = "_".join(str(row["id"]).split("_")[1:-1])
        yield number, row | {"track": track, "subject": subject}
        if track == "Adaptation":
            yield number, row | {"track": QUESTION_ONLY, "subject": subject, UNSEEN: True}


QUESTION_ONLY = "Question only"
"""The adaptation track without its videos: what is known before they are seen."""


def videoreasonbench_rows(path: Path) -> Rows:
    """Questions by name; the file's own name is what is played."""
    for number, row in table_rows(path):
        if is_converted(row):
            yield number, row
            continue
        for name, question in row.items():
            yield number, question | {"name": name, "demo": path.stem}


def stvg_rows(path: Path) -> Rows:
    """Descriptions by video, with a box for each frame (README of tzhhhh123/HC-STVG).

    The boxes become one a second, of the frame nearest to it, as corners.
    """
    for number, row in table_rows(path):
        if is_converted(row):
            yield number, row
            continue
        for video, about in row.items():
            answer = {
                "time": [about["st_time"], about["ed_time"]],
                "boxes": _boxes_by_second(about),
            }
            shown = {name: value for name, value in about.items() if name != "bbox"}
            yield number, shown | {"video": video, "answer": answer}


HC_STVG_SECONDS = 20
"""Length of every clip of HC-STVG, whose `img_num` frames are spread over it."""


def _boxes_by_second(about: dict[str, Any]) -> dict[str, list[float]]:
    fps = about["img_num"] / HC_STVG_SECONDS
    boxes = {}
    for second in range(HC_STVG_SECONDS + 1):
        frame = round(second * fps) + 1 - about["st_frame"]
        if 0 <= frame < len(about["bbox"]):
            x, y, width, height = about["bbox"][frame]
            boxes[str(second)] = [x, y, x + width, y + height]
    return boxes
