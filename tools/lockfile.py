"""Keep index hosts out of the committed `uv.lock`, and put this machine's back in the working copy.

uv writes the absolute addresses of the package index into `uv.lock`, so a lock made behind one
mirror is of no use behind another. In the repository every address is therefore a placeholder.
`clean` and `smudge` are git's content filters between the two forms; `learn` (part of `make setup`)
asks uv for this machine's addresses and switches the filters on for this clone.

It runs before there is an environment: standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
LOCK_NAME = "uv.lock"

# RFC 2606 reserves `.invalid`: a lock that escapes the filter fails loudly instead of asking a
# stranger. Two placeholders, because an index and its files may live on two hosts.
NEUTRAL_INDEX = "https://index.invalid/simple"
NEUTRAL_FILES = "https://files.invalid/"

# Where PyPI, and every mirror that passes its pages through, keeps a file.
FILE_PATH = r'packages/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{60}/[^"/]+'
REGISTRY = re.compile(r'(?<=registry = ")[a-z+]+://[^"]+(?=")')
FILE_URL = re.compile(r'(?<=\{ url = ")([^"]+)(?=", hash = "([a-z0-9]+:[0-9a-f]+)")')
USUAL_URL = re.compile(rf"(.*?/)({FILE_PATH})")


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """What the two placeholders stand for on one machine."""

    index: str
    """As uv writes it into `registry = "…"`."""
    files: str | None
    """Everything before `packages/`; None where the index keeps files in a layout of its own."""


# --- the two directions -------------------------------------------------------------------------


def clean(text: str, urls_by_hash: dict[str, str] | None = None) -> str:
    """The form for the repository: placeholders for whatever hosts stand there.

    `urls_by_hash` gives the neutral address of files whose own address has an unusual layout.
    """

    def neutral_url(match: re.Match[str]) -> str:
        url, digest = match.groups()
        if usual := USUAL_URL.fullmatch(url):
            return NEUTRAL_FILES + usual[2]
        if known := (urls_by_hash or {}).get(digest):
            return known
        # Better an address that leads nowhere than a host: tests/test_lock.py reports it.
        return NEUTRAL_FILES + urlsplit(url).path.lstrip("/")

    return FILE_URL.sub(neutral_url, REGISTRY.sub(NEUTRAL_INDEX, text))


def smudge(text: str, addresses: Addresses) -> str:
    """The form for the working copy: this machine's addresses; undoes `clean` to the byte."""
    if addresses.files is None:
        return text
    text = text.replace(f'registry = "{NEUTRAL_INDEX}"', f'registry = "{addresses.index}"')
    return text.replace(f'{{ url = "{NEUTRAL_FILES}', f'{{ url = "{addresses.files}')


def urls_by_hash(lock: str) -> dict[str, str]:
    return {digest: url for url, digest in FILE_URL.findall(lock)}


# --- comparing two locks ------------------------------------------------------------------------


def _files(package: dict[str, Any]) -> list[dict[str, Any]]:
    sdist = [package["sdist"]] if "sdist" in package else []
    return sdist + package.get("wheels", [])


def hashes_by_version(lock: str) -> dict[tuple[str, str], set[str]]:
    """The file hashes of every package that comes from an index, by (name, version)."""
    return {
        (package["name"], package["version"]): {file["hash"] for file in _files(package)}
        for package in tomllib.loads(lock)["package"]
        if "registry" in package["source"]
    }


@dataclass(frozen=True, kw_only=True)
class Difference:
    other_versions: list[str]
    """Packages of which only one of the locks holds this version: the index lacks something."""
    other_hashes: list[str]
    """Same name and version, but a file that the committed lock does not know: do not install."""

    def __bool__(self) -> bool:
        return bool(self.other_versions or self.other_hashes)


def difference(committed: str, local: str) -> Difference:
    """What `local` would install that `committed` would not. Fewer files than there are fine."""
    ours, theirs = hashes_by_version(committed), hashes_by_version(local)
    return Difference(
        other_versions=[
            f"{name} {version}" for name, version in sorted(ours.keys() ^ theirs.keys())
        ],
        other_hashes=[
            f"{name} {version}"
            for name, version in sorted(ours.keys() & theirs.keys())
            if not theirs[name, version] or theirs[name, version] - ours[name, version]
        ],
    )


# --- git ----------------------------------------------------------------------------------------


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """The output of a git command, None where it fails or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.decode() if done.returncode == 0 else None


def in_git_checkout(root: Path) -> bool:
    """Whether `root` is itself a checkout, not merely a folder inside somebody else's."""
    top = git("rev-parse", "--show-toplevel", root=root)
    return top is not None and Path(top.rstrip("\n")).resolve() == root.resolve()


def staged_lock(root: Path) -> str | None:
    return git("show", f":{LOCK_NAME}", root=root)


def remembered_addresses(root: Path) -> Addresses | None:
    """What `learn` stored in this clone's git config."""
    index = git("config", "--get", "uvlock.index", root=root)
    files = git("config", "--get", "uvlock.files", root=root)
    if index is None:
        return None
    return Addresses(index=index.rstrip("\n"), files=files.rstrip("\n") if files else None)


def filter_python() -> str:
    """The Python that git shall run the filters with: by name, unless that one is too old."""
    try:
        probe = subprocess.run(
            ["python3", "-c", "import tomllib"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return shlex.quote(sys.executable)
    return "python3" if probe.returncode == 0 else shlex.quote(sys.executable)


def remember(addresses: Addresses, root: Path) -> None:
    # git runs filters from the top of the checkout.
    command = f"{filter_python()} tools/lockfile.py"
    settings = {
        "uvlock.index": addresses.index,
        "uvlock.files": addresses.files,
        "filter.uvlock.clean": f"{command} clean",
        "filter.uvlock.smudge": f"{command} smudge",
        # A filter that cannot run must stop the commit rather than let a host through.
        "filter.uvlock.required": "true",
    }
    for key, value in settings.items():
        if value is None:
            git("config", "--local", "--unset", key, root=root)
        elif git("config", "--local", key, value, root=root) is None:
            raise SystemExit(f"git config {key} failed in {root}")


def clean_for_commit(text: str, root: Path) -> str:
    """`clean`, with the staged lock at hand where this machine's index has another file layout.

    There uv had to write a lock of its own. As long as it says the same as the staged one, git is
    given the staged one back, so that `git status` stays empty.
    """
    addresses = remembered_addresses(root)
    if addresses is None or addresses.files is not None:
        return clean(text)
    staged = staged_lock(root)
    if staged is None:
        return clean(text)
    return staged if not difference(staged, text) else clean(text, urls_by_hash(staged))


# --- learning this machine's addresses ----------------------------------------------------------


def probe_package(lock: str) -> dict[str, Any]:
    """A small locked package without dependencies: cheap to resolve, and its address is known."""
    candidates = [
        package
        for package in tomllib.loads(lock)["package"]
        if "registry" in package["source"]
        and not package.get("dependencies")
        and package.get("wheels")
    ]
    return min(
        candidates, key=lambda p: (len(p["wheels"]), p["wheels"][0].get("size", 0), p["name"])
    )


def ask_uv(uv: str, package: dict[str, Any]) -> str:
    """The lock that uv makes, on this machine and with its settings, of that one package."""
    # Settings that tie uv to this project or forbid it to lock.
    dropped = {"UV_FROZEN", "UV_LOCKED", "UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    with tempfile.TemporaryDirectory(prefix="uvlock-") as folder:
        Path(folder, "pyproject.toml").write_text(
            "[project]\n"
            'name = "probe"\n'
            'version = "0"\n'
            'requires-python = ">=3.11"\n'
            f'dependencies = ["{package["name"]}=={package["version"]}"]\n'
        )
        done = subprocess.run(
            [uv, "lock", "--quiet", "--python", sys.executable],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(
                f"uv cannot reach a package index (asked for {package['name']} "
                f"{package['version']}):\n{done.stderr.strip()}\n"
                "set the index in uv's own settings (UV_DEFAULT_INDEX or uv.toml)"
            )
        return Path(folder, LOCK_NAME).read_text()


def addresses_of(local: str, package: dict[str, Any]) -> Addresses:
    """Read this machine's addresses off `local`, which locks the same `package`."""
    (answer,) = (p for p in tomllib.loads(local)["package"] if p["name"] == package["name"])
    index = answer["source"].get("registry", "")
    expected = {file["hash"]: file["url"] for file in _files(package)}
    prefixes: set[str | None] = set()
    for file in _files(answer):
        usual = USUAL_URL.fullmatch(file.get("url", ""))
        same = usual is not None and expected.get(file["hash"]) == NEUTRAL_FILES + usual[2]
        prefixes.add(usual[1] if usual is not None and same else None)
    files = prefixes.pop() if len(prefixes) == 1 else None
    return Addresses(index=index, files=files if "://" in index else None)


def relock(uv: str, root: Path) -> None:
    """Let uv write a lock for an index that the committed one cannot be translated to.

    `find-links` in pyproject.toml makes uv prefer the versions already in the lock.
    """
    committed = (root / LOCK_NAME).read_text()
    subprocess.run([uv, "lock", "--quiet"], cwd=root, check=True)
    differs = difference(committed, (root / LOCK_NAME).read_text())
    if differs.other_hashes:
        (root / LOCK_NAME).write_text(committed)
        raise SystemExit(
            "this machine's package index serves files that are not the locked ones: "
            + ", ".join(differs.other_hashes)
        )
    if differs.other_versions:
        print(
            "this machine's package index does not have all locked versions; the locks differ in: "
            + ", ".join(differs.other_versions),
            file=sys.stderr,
        )


def learn(uv: str, root: Path = ROOT) -> Addresses:
    """Make the working copy a true lock for this machine, and keep it so through git's filters."""
    lock_path = root / LOCK_NAME
    checkout = in_git_checkout(root)
    staged = staged_lock(root) if checkout else None
    neutral = clean(lock_path.read_text(), urls_by_hash(staged) if staged else None)

    package = probe_package(neutral)
    addresses = addresses_of(ask_uv(uv, package), package)
    if checkout:
        remember(addresses, root)

    if addresses.files is None:
        lock_path.write_text(neutral)
        relock(uv, root)
    elif (localised := smudge(neutral, addresses)) != lock_path.read_text():
        lock_path.write_text(localised)
    if staged is not None and clean_for_commit(lock_path.read_text(), root) == staged:
        # git takes a file of another size for modified without asking the filter; staging it, which
        # adds nothing to the commit, makes git note the new size.
        git("update-index", LOCK_NAME, root=root)
    return addresses


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("clean", help="git's clean filter: standard input to standard output")
    actions.add_parser("smudge", help="git's smudge filter: standard input to standard output")
    learner = actions.add_parser("learn", help="find this machine's index and set up this clone")
    learner.add_argument("--uv", default="uv", help="the uv to ask")
    arguments = parser.parse_args()

    if arguments.action == "learn":
        addresses = learn(arguments.uv)
        layout = "locked files" if addresses.files else "another file layout: lock made anew"
        print(f"package index: {urlsplit(addresses.index).hostname or addresses.index} ({layout})")
        return
    text = sys.stdin.buffer.read().decode()
    if arguments.action == "clean":
        text = clean_for_commit(text, ROOT)
    elif (known := remembered_addresses(ROOT)) is not None:
        text = smudge(text, known)
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    main()
