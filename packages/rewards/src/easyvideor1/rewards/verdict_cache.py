"""Verdicts of judges on disk: one sqlite3 file that all processes of a machine read and write.

Entries never change: equal keys mean equal questions to the same judge. Called by `judge`.
"""

import os
import sqlite3
import threading
import time
from pathlib import Path

from easyvideor1.schema.errors import UserError

BUSY_TIMEOUT_S = 60.0
"""How long to wait for another process that writes."""


class VerdictCache:
    """Verdicts by key; safe for several threads and processes."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0

    def get(self, key: str) -> float | None:
        """The verdict stored under `key`.

        Raises:
            UserError: the file cannot be read or is no such cache.
        """
        rows = self._run("SELECT verdict FROM verdicts WHERE key = ?", (key,))
        return float(rows[0][0]) if rows else None

    def put(self, key: str, verdict: float, *, judge: str) -> None:
        """Store a verdict; one that is stored already stays.

        Raises:
            UserError: the file cannot be written.
        """
        self._run(
            "INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?)", (key, verdict, judge, time.time())
        )

    def _run(self, statement: str, values: tuple) -> list[tuple]:
        with self._lock:
            try:
                return self._connect().execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise UserError(
                    f"{self._path}: the cache of verdicts cannot be used ({error}); remove the "
                    "file, or set reward.judge.cache to another one or to null"
                ) from error

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: each statement is a transaction of its own. The lock makes it safe to
            # share the connection between threads; a forked process opens its own.
            self._connection = sqlite3.connect(
                self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._pid = os.getpid()
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS verdicts "
                "(key TEXT PRIMARY KEY, verdict REAL NOT NULL, judge TEXT, stored_s REAL) STRICT"
            )
        return self._connection
