"""Our own Rays: what killed drivers leave goes, processes and folders; all else stays."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.preprocess import ray_session, session_guard
from easyvideor1.preprocess.process_identity import ProcessIdentity


def folder_of(parent: Path, name: str, owner: str | None) -> Path:
    folder = parent / name
    (folder / "session_1" / "logs").mkdir(parents=True)
    if owner is not None:
        (folder / "owner.json").write_text(owner)
    return folder


def test_only_folders_of_drivers_that_have_certainly_ended_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_session, "FOLDERS", tmp_path)
    ours = ProcessIdentity.current()
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    dead = replace(ours, pid=ended.pid)
    elsewhere = replace(dead, space="another machine")
    removed = folder_of(tmp_path, "evr-ray-dead", dead.as_json())
    kept = [
        folder_of(tmp_path, "evr-ray-live", ours.as_json()),
        folder_of(tmp_path, "evr-ray-elsewhere", elsewhere.as_json()),
        folder_of(tmp_path, "evr-ray-just-made", None),
        folder_of(tmp_path, "evr-ray-torn", '{"host": "node7", "sp'),
        folder_of(tmp_path, "ray", dead.as_json()),
    ]
    assert ray_session.remove_leftovers() == 1
    assert not removed.exists()
    assert all(folder.exists() for folder in kept)


DRIVER = """
import os, subprocess, sys, time
from easyvideor1.preprocess.ray_session import _guarded
with _guarded(sys.argv[1]):
    # Of a group of its own, and deaf to a polite end: as Ray's processes that wait for its server.
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.DEVNULL
    )
    print(child.pid, flush=True)
    time.sleep(float(sys.argv[2]))
print("left", flush=True)
"""


def started_driver(folder: Path, stays_s: float) -> tuple[subprocess.Popen[str], int]:
    """A driver in a session of its own, and a process of that session."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder), str(stays_s)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    return driver, int(driver.stdout.readline())


def gone(is_gone: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not is_gone() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return is_gone()


def test_what_a_killed_driver_leaves_behind_is_ended(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "evr-ray-x", None)
    driver, child = started_driver(folder, stays_s=600)
    assert session_guard.members(str(folder)) == [child]
    driver.kill()
    driver.wait()
    assert gone(lambda: not session_guard.members(str(folder)))
    assert gone(lambda: not folder.exists())


def test_a_session_that_ends_in_peace_ends_nobody(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "evr-ray-x", None)
    driver, child = started_driver(folder, stays_s=0.5)
    output, _ = driver.communicate(timeout=60)
    try:
        assert output == "left\n"
        time.sleep(2 * session_guard.POLL_S)
        assert session_guard.members(str(folder)) == [child]
        assert folder.exists()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_without_its_environment_is_known_by_its_log(tmp_path: Path) -> None:
    """As Ray's own, which write their titles over it."""
    with (tmp_path / "agent.log").open("wb") as log:
        agent = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], env={}, stdout=log
        )
    other = tmp_path.with_name(tmp_path.name + "-other")
    try:
        assert session_guard.members(str(tmp_path)) == [agent.pid]
        assert session_guard.members(str(other)) == []
        session_guard.end_members(str(tmp_path))
        assert agent.wait(timeout=10) == -signal.SIGKILL
    finally:
        agent.kill()
