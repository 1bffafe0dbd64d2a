"""Media that could not be decoded, with their reasons: `<cache.dir>/quarantine.jsonl`.

An entry keeps later runs from decoding the same content again under the same settings. A mended
file has another key and is tried at once; `decode.retry_quarantined` tries all again.
"""

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

    def reasons(self) -> dict[str, str]:
        """Why media failed, by cache key."""
        return {row["key"]: row["reason"] for row in self._rows() if row["key"]}

    def add(self, failures: Sequence[Failure]) -> None:
        """Note failures that are not noted yet; returns when they are on the disk."""
        if not failures:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Several runs may share the cache; a file apart, because the first append makes the other.
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            noted = {(row["path"], row["reason"], row["key"]) for row in self._rows()}
            new = [f for f in failures if (f.path, f.reason, f.key) not in noted]
            jsonl.append(self.path, new)

    def _rows(self) -> list[dict[str, Any]]:
        return jsonl.read(self.path) if self.path.exists() else []


def quarantine_path(config: CacheConfig) -> Path:
    """Where a cache keeps its quarantine."""
    return resolve_output(config.dir) / "quarantine.jsonl"
