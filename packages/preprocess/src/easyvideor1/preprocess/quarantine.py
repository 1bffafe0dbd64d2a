"""Media that could not be decoded, with their reasons: `<cache.dir>/quarantine.jsonl`.

An entry keeps later runs from decoding the same content again under the same settings. A mended
file has another key and is tried at once; `decode.retry_quarantined` tries all again.
"""

import contextlib
import fcntl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.config import CacheConfig
from easyvideor1.schema import jsonl
from easyvideor1.schema.conf import resolve_output


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One medium without frames."""

    path: str
    reason: str
    sample_ids: tuple[str, ...]
    """Samples that show it."""
    key: str = ""
    """Cache key; empty where the file is missing and so has none."""


class Quarantine:
    def __init__(self, config: CacheConfig):
        self.path = quarantine_path(config)
        self._rows: list[dict[str, Any]] = []
        self._reasons: dict[str, str] = {}
        self._state: tuple[int, int, int] | None = None

    def reasons(self) -> dict[str, str]:
        """Why media failed, in any run until now, by cache key."""
        self._refresh()
        return dict(self._reasons)

    def reason(self, key: str) -> str | None:
        """Why one medium failed; None if it did not."""
        self._refresh()
        return self._reasons.get(key)

    def add(self, failures: Sequence[Failure]) -> None:
        """Note failures that are not noted yet; returns when they are on the disk."""
        if not failures:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Several runs may share the cache; a file apart, because the first append makes the other.
        with self.path.with_suffix(".lock").open("w") as lock:
            # Without locks on the file system, lines of two runs could at worst meet.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            noted = {(row["path"], row["reason"], row["key"]) for row in self._rows}
            new = [f for f in failures if (f.path, f.reason, f.key) not in noted]
            jsonl.append(self.path, new)

    def _refresh(self) -> None:
        """Read the file if it has changed."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        if state != self._state:
            self._rows, self._state = jsonl.read(self.path), state
            self._reasons = {row["key"]: row["reason"] for row in self._rows if row["key"]}


def quarantine_path(config: CacheConfig) -> Path:
    """Where a cache keeps its quarantine."""
    return resolve_output(config.dir) / "quarantine.jsonl"
