"""One protocol's folder: `protocol.json`, append-only `predictions.jsonl`, what follows from it.

A prediction is on the disk before it counts. Which questions are still open is a set difference by
key, so a killed run goes on where it was, in whatever order answers came.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from easyvideor1.evaluate import protocol as protocols
from easyvideor1.evaluate.protocol import Protocol
from easyvideor1.schema import jsonl
from easyvideor1.schema.codec import from_plain, to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import new_file, write_json
from easyvideor1.schema.records import Prediction, PredictionStatus

FAILED = frozenset({PredictionStatus.load_failed, PredictionStatus.generate_failed})
"""Statuses that another attempt may change; `retry_failed` makes one."""


class ResultFolder:
    """`outputs/evaluate/<benchmark>/<fingerprint>/`.

    Example:
        folder = ResultFolder(root / "toybox", protocol)
        folder.open()
        open_questions = wanted - {p.key for p in folder.predictions()}
    """

    def __init__(self, benchmark_dir: Path, protocol: Protocol):
        self.protocol = protocol
        self.fingerprint = protocols.fingerprint(protocol)
        self.path = benchmark_dir / self.fingerprint
        self._file = self.path / "predictions.jsonl"
        self._lock: int | None = None

    def open(self) -> int:
        """Create the folder; takes over answers that only a change of scoring put elsewhere.

        Returns:
            How many answers were taken over.

        Raises:
            UserError: while another run has it open.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.path)
        write_json(self.path / "protocol.json", self.protocol)
        if self._file.exists():
            return 0
        for sibling in self._siblings():
            theirs = _read_protocol(sibling)
            if theirs.get("answers") == self.protocol["answers"]:
                rows = jsonl.read(sibling / "predictions.jsonl")
                jsonl.append(self._file, [row | {"fingerprint": self.fingerprint} for row in rows])
                return len(rows)
        return 0

    def close(self) -> None:
        """Let other runs write here."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def require(self) -> None:
        """Refuse to score what was never answered.

        Raises:
            UserError: naming how the stored run with the nearest protocol differs.
        """
        if self._file.exists() or self.open():
            return
        compared = [
            (protocols.differences(self.protocol, _read_protocol(folder)), folder.name)
            for folder in self._siblings()
        ]
        nearest = min(compared, key=lambda pair: len(pair[0]), default=None)
        hint = (
            f"; the nearest stored run, {nearest[1]}, differs in {', '.join(nearest[0])}"
            if nearest
            else ""
        )
        raise UserError(f"no answers in {self.path}{hint}; run with job=run first")

    def differing_in(self, field: str) -> dict[str, Any] | None:
        """The summary of the newest stored run whose protocol differs in this field alone."""
        for sibling in self._siblings():
            path = sibling / "summary.json"
            if path.is_file() and protocols.differences(self.protocol, _read_protocol(sibling)) == [
                field
            ]:
                summary = json.loads(path.read_text(encoding="utf-8"))
                return {name: summary[name] for name in ("accuracy", "official", "folder")}
        return None

    def predictions(self) -> list[Prediction]:
        """The newest one under each key, in order of their first appearance."""
        if not self._file.exists():
            return []
        rows = [from_plain(Prediction, row) for row in jsonl.read(self._file)]
        return list({row.key: row for row in rows}.values())

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Add predictions and return when they are on the disk."""
        jsonl.append(self._file, [to_plain(prediction) for prediction in predictions])

    def _siblings(self) -> list[Path]:
        """Folders of the same benchmark that hold answers, newest first."""
        files = self.path.parent.glob("*/predictions.jsonl")
        others = [file for file in files if file.parent != self.path]
        newest_first = sorted(others, key=lambda file: file.stat().st_mtime, reverse=True)
        return [file.parent for file in newest_first]


def _locked(folder: Path) -> int:
    """A lock on the folder that ends with this process, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(
            f"another run is writing to {folder}; wait for it, or end it and start again"
        ) from error
    return descriptor


def _read_protocol(folder: Path) -> Protocol:
    return json.loads((folder / "protocol.json").read_text(encoding="utf-8"))


def write_lines(path: Path, rows: Iterable[object]) -> None:
    """Write a whole JSONL file or leave the old one."""
    with new_file(path) as draft:
        draft.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
