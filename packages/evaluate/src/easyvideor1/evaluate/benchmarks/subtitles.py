"""Text of subtitle files: SRT, JSON lists and JSONL, in the forms that releases have them."""

import json
import re
from pathlib import Path
from typing import Any

from easyvideor1.schema.errors import UserError

MARKUP = re.compile(r"<[^>]*>")
TIME_LINE = re.compile(r"-->")


def read_subtitles(path: Path) -> str:
    """What is said, without times: a line an entry; words of word-level files in one line.

    Raises:
        UserError: for a file of another type or form.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if path.suffix == ".srt":
        return _srt(text)
    try:
        if path.suffix == ".jsonl":
            entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            return " ".join(_said(entry) for entry in entries)
        if path.suffix == ".json":
            return "\n".join(_said(entry) for entry in json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no list of subtitles with text ({error})") from None
    raise UserError(f"{path}: subtitles are read from .srt, .json and .jsonl files")


def _srt(text: str) -> str:
    """Lines of the blocks `number, times, text…`, without markup."""
    lines = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        rows = block.strip().split("\n")
        times = next((n for n, row in enumerate(rows) if TIME_LINE.search(row)), None)
        if times is not None and (said := MARKUP.sub("", " ".join(rows[times + 1 :])).strip()):
            lines.append(said)
    return "\n".join(lines)


def _said(entry: dict[str, Any]) -> str:
    """LongVideoBench names the text `line` in YouTube's files and `text` in the others."""
    return str(entry["text"] if "text" in entry else entry["line"]).strip()
