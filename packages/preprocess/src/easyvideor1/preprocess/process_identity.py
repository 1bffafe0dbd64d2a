"""Which process this is, and whether another one has certainly ended: what a lease file says.

A process is known by its PID and start time within one boot and PID namespace; from elsewhere (a
container, another node) nothing can be said about it.
"""

import functools
import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessIdentity:
    """Example: ProcessIdentity(host="node7", space="bee7…:4026531836", pid=4711, started=90121)."""

    host: str
    """For messages."""
    space: str
    """Boot and PID namespace: where `pid` means this process."""
    pid: int
    started: int
    """Clock ticks since boot; a later process of the same PID has another."""

    @classmethod
    def current(cls) -> Self:
        """The process that asks."""
        pid = os.getpid()
        started = _start_time(pid)
        assert started is not None, "a process that runs has a start time"
        return cls(host=os.uname().nodename, space=_pid_space(), pid=pid, started=started)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self | None:
        """The inverse of `as_json`; None for what is torn or not one."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def as_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))

    def has_ended(self) -> bool:
        """Whether it is certain that the process is gone."""
        return self.space == _pid_space() and _start_time(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@functools.cache
def _pid_space() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        # Equal to no other, so that nothing is ever said about PIDs.
        return uuid.uuid4().hex


def _start_time(pid: int) -> int | None:
    """None if no process of this PID runs; one that ended and was not waited for does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before it is in parentheses and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])
