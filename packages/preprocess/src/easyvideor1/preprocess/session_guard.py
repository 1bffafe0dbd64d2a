"""Ends what a killed driver leaves of its own Ray: a process that outlives it, and looks.

Ray's server dies with the driver, but processes that were about to join it wait for it up to
minutes. They are known by the session's folder: in their environment, which is lost once they give
themselves a title, or among their open files, where their logs are.
`ray_session` runs this file as a program, without the packages: `session_guard.py FOLDER`.
"""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

VARIABLE = "EVR_RAY_SESSION"
"""Environment variable of every process of a session: its folder."""
POLL_S = 0.2
QUIET_LOOKS = 5
"""In a row without a process, after which none will come: its parent was killed before."""


def members(folder: str) -> list[int]:
    """Processes of the session that can be seen."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if process.name != str(os.getpid()) and _belongs(process, folder)
    ]


def _belongs(process: Path, folder: str) -> bool:
    try:
        if f"{VARIABLE}={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
            return True
        links = [os.readlink(descriptor) for descriptor in (process / "fd").iterdir()]
    except OSError:  # it has ended, or is another user's
        return False
    return any(link.startswith(f"{folder}/") for link in links)


def end_members(folder: str) -> None:
    """Kill them, and those that they had just started."""
    quiet = 0
    while quiet < QUIET_LOOKS:
        pids = members(folder)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        quiet = 0 if pids else quiet + 1
        time.sleep(POLL_S)


def guard(folder: str, driver: int) -> None:
    """Wait for the driver to be gone, then end its session and delete its folder."""
    while os.getppid() == driver:
        time.sleep(POLL_S)
    end_members(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    guard(sys.argv[1], int(sys.argv[2]))
