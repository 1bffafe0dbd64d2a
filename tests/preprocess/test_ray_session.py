"""Folders of our own Rays: those of killed drivers go, all others stay."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.preprocess import ray_session
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
