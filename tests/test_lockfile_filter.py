"""The uv.lock filter, against a real uv, a real git and a package index on the loopback device."""

import base64
import hashlib
import http.server
import io
import os
import re
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools import environment, lockfile
from tools.lockfile import Addresses

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = lockfile.clean((ROOT / "uv.lock").read_text())

MIRRORS = [
    Addresses(index="https://mirror.example/simple", files="https://files.mirror.example/"),
    Addresses(
        index="https://user:secret@mirror.example:8443/api/pypi/all/simple/",
        files="https://user:secret@mirror.example:8443/api/pypi/all/packages/",
    ),
    Addresses(index="http://127.0.0.1:3141/team/pypi/+simple", files="http://127.0.0.1:3141/"),
]


@pytest.mark.parametrize("mirror", MIRRORS, ids=lambda mirror: mirror.index)
def test_the_whole_lock_survives_the_round_trip_to_the_byte(mirror: Addresses) -> None:
    local = lockfile.smudge(COMMITTED, mirror)
    assert ".invalid" not in local
    assert lockfile.clean(local) == COMMITTED
    assert lockfile.smudge(lockfile.clean(local), mirror) == local


def test_cleaning_a_clean_lock_changes_nothing() -> None:
    assert lockfile.clean(COMMITTED) == COMMITTED


def test_a_file_at_an_unusual_place_is_found_by_its_hash_or_at_least_loses_its_host() -> None:
    line = '    { url = "https://mirror.example/+f/ab/wheel.whl", hash = "sha256:00ff", size = 3 },'
    known = {"sha256:00ff": "https://files.invalid/packages/aa/bb/cc/wheel.whl"}
    assert known["sha256:00ff"] in lockfile.clean(line, known)
    assert '"https://files.invalid/+f/ab/wheel.whl"' in lockfile.clean(line)


# --- an index on the loopback device ------------------------------------------------------------


def wheel(name: str, version: str) -> bytes:
    """A wheel that installs nothing but its own name; the same bytes at each call."""
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
        "RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file_name, text in files.items():
            # An explicit entry has a fixed date; by name alone it would be the present.
            archive.writestr(zipfile.ZipInfo(f"{name}-{version}.dist-info/{file_name}"), text)
    return buffer.getvalue()


@dataclass
class Index:
    """A simple-API index under a path prefix, with a password, in the usual or a flat layout."""

    prefix: str = "/api/pypi/all"
    password: str | None = None
    usual_layout: bool = True
    wheels: dict[str, bytes] = field(default_factory=dict)
    server: http.server.ThreadingHTTPServer | None = None

    def publish(self, name: str, version: str, content: bytes | None = None) -> None:
        file_name = f"{name}-{version}-py3-none-any.whl"
        self.wheels[file_name] = wheel(name, version) if content is None else content

    def path_of(self, file_name: str) -> str:
        if not self.usual_layout:
            return f"{self.prefix}/flat/{file_name}"
        # The place depends on name and version only, as if a mirror had replaced the content.
        digest = hashlib.blake2b(file_name.encode(), digest_size=32).hexdigest()
        return f"{self.prefix}/packages/{digest[:2]}/{digest[2:4]}/{digest[4:]}/{file_name}"

    def page(self, project: str) -> bytes:
        links = [
            f'<a href="{self.path_of(name)}#sha256={hashlib.sha256(content).hexdigest()}">'
            f"{name}</a>"
            for name, content in self.wheels.items()
            if name.startswith(f"{project}-")
        ]
        return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode()

    @property
    def url(self) -> str:
        assert self.server is not None
        user = f"user:{self.password}@" if self.password else ""
        return f"http://{user}127.0.0.1:{self.server.server_port}{self.prefix}/simple"

    def answer(self, path: str) -> bytes | None:
        if match := re.fullmatch(rf"{self.prefix}/simple/([^/]+)/", path):
            return self.page(match[1])
        return next((c for name, c in self.wheels.items() if self.path_of(name) == path), None)


@pytest.fixture
def indexes() -> Iterator[list[Index]]:
    """Indexes that a test started; the fixture stops them."""
    started: list[Index] = []
    yield started
    for index in started:
        if index.server is not None:
            index.server.shutdown()
            index.server.server_close()


def start(index: Index) -> Index:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = index.answer(self.path)
            if index.password:
                expected = base64.b64encode(f"user:{index.password}".encode()).decode()
                if self.headers.get("Authorization") != f"Basic {expected}":
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", 'Basic realm="index"')
                    self.end_headers()
                    return
            self.send_response(404 if body is None else 200)
            kind = "text/html" if self.path.endswith("/") else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body or b"")

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    index.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=index.server.serve_forever, args=(0.02,), daemon=True).start()
    return index


@dataclass(frozen=True)
class Clone:
    """A clone of the small project below on a machine with its own index."""

    root: Path
    uv: str

    def git(self, *arguments: str) -> str:
        return self.run("git", *arguments)

    def lock(self) -> str:
        return (self.root / "uv.lock").read_text()

    def use(self, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)

    def run_uv(self, *arguments: str) -> None:
        self.run(self.uv, *arguments)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command} in {self.root}: {done.stderr}"
        return done.stdout


PROJECT = """\
[project]
name = "product"
version = "0"
requires-python = ">=3.11"
dependencies = [{dependencies}]

[tool.uv]
package = false
find-links = ["wheels"]
"""


@pytest.fixture
def origin(
    tmp_path: Path, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Clone]:
    """A repository with a host-neutral lock that was made against an index long gone."""
    uv = environment.find_uv()
    if uv is None:
        pytest.skip("needs uv: run `make setup`")
    for variable in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a developer")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "developer@example.invalid")

    clone = Clone(root=tmp_path / "origin", uv=str(uv))
    (clone.root / "tools").mkdir(parents=True)
    (clone.root / "wheels").mkdir()
    (clone.root / "wheels" / "README.md").write_text("Stays.\n")
    (clone.root / ".gitattributes").write_text("uv.lock filter=uvlock text eol=lf\n")
    shutil.copy(ROOT / "tools" / "lockfile.py", clone.root / "tools")
    (clone.root / "pyproject.toml").write_text(PROJECT.format(dependencies='"alpha", "beta"'))

    maker = start(Index())
    indexes.append(maker)
    maker.publish("alpha", "1.0")
    maker.publish("beta", "2.0")
    clone.use(maker, monkeypatch)
    clone.run_uv("lock")
    (clone.root / "uv.lock").write_text(lockfile.clean(clone.lock()))
    clone.git("init", "--quiet", "--initial-branch=main")
    clone.git("add", ".")
    clone.git("commit", "--quiet", "--message=a project")
    yield clone


def clone_of(origin: Clone, name: str) -> Clone:
    origin.git("clone", "--quiet", str(origin.root), str(origin.root.parent / name))
    return Clone(root=origin.root.parent / name, uv=origin.uv)


def full_index(index: Index, indexes: list[Index]) -> Index:
    """`index` with the locked versions and newer ones that a careless re-lock would take."""
    indexes.append(start(index))
    for name, version in [("alpha", "1.0"), ("alpha", "1.1"), ("beta", "2.0"), ("beta", "2.1")]:
        index.publish(name, version)
    return index


def hosts(text: str) -> set[str]:
    return set(re.findall(r"https?://[^/\"]*", text))


def test_a_clone_behind_a_mirror_with_a_path_and_a_password_gets_a_true_lock_and_stays_clean(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = full_index(Index(prefix="/artifactory/pypi", password="secret"), indexes)
    clone = clone_of(origin, "clone")
    clone.use(mirror, monkeypatch)

    lockfile.learn(clone.uv, clone.root)

    assert ".invalid" not in clone.lock()
    assert "secret" not in clone.lock()
    assert clone.git("status", "--porcelain") == ""
    clone.run_uv("sync", "--locked")
    assert sorted(p.name for p in clone.root.glob(".venv/lib/*/site-packages/*.dist-info")) == [
        "alpha-1.0.dist-info",
        "beta-2.0.dist-info",
    ]
    assert clone.git("status", "--porcelain", "--", "uv.lock") == ""
    lockfile.learn(clone.uv, clone.root)
    assert clone.git("status", "--porcelain", "--", "uv.lock") == ""


def test_a_new_lock_is_committed_without_hosts_and_arrives_localised_elsewhere(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (full_index(Index(prefix=p), indexes) for p in ("/here", "/there/deep"))
    author, reader = clone_of(origin, "author"), clone_of(origin, "reader")
    for clone, index in ((author, here), (reader, there)):
        clone.use(index, monkeypatch)
        lockfile.learn(clone.uv, clone.root)

    author.use(here, monkeypatch)
    author.run_uv("lock", "--upgrade-package", "alpha")
    author.git("commit", "--quiet", "--all", "--message=alpha 1.1")
    assert hosts(author.git("show", "HEAD:uv.lock")) == {
        "https://index.invalid",
        "https://files.invalid",
    }
    changed = author.git("show", "--format=", "HEAD").splitlines()
    assert "beta" not in "".join(line for line in changed if line[:1] in "+-")

    reader.git("pull", "--quiet", str(author.root), "main")
    assert reader.git("status", "--porcelain") == ""
    assert hosts(reader.lock()) == {"http://" + there.url.split("/")[2]}
    assert 'version = "1.1"' in reader.lock()
    reader.use(there, monkeypatch)
    reader.run_uv("sync", "--locked")


def test_a_lock_under_edit_keeps_the_edit_when_the_machine_is_learned_again(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = full_index(Index(), indexes)
    clone = clone_of(origin, "clone")
    clone.use(mirror, monkeypatch)
    clone.run_uv("lock", "--upgrade-package", "alpha")

    lockfile.learn(clone.uv, clone.root)

    assert 'version = "1.1"' in clone.lock()
    assert clone.git("status", "--porcelain").strip() == "M uv.lock"
    assert clone.git("diff", "--cached") == ""


def test_an_index_with_another_file_layout_keeps_the_locked_versions_and_a_clean_status(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = full_index(Index(usual_layout=False), indexes)
    clone = clone_of(origin, "clone")
    clone.use(odd, monkeypatch)

    assert lockfile.learn(clone.uv, clone.root).files is None

    assert lockfile.hashes_by_version(clone.lock()) == lockfile.hashes_by_version(
        origin.git("show", "HEAD:uv.lock")
    )
    assert clone.git("status", "--porcelain") == ""
    clone.run_uv("sync", "--locked")
    clone.run_uv("lock", "--upgrade-package", "alpha")
    assert clone.git("status", "--porcelain", "--", "uv.lock").strip() == "M uv.lock"
    clone.git("add", "uv.lock")
    assert hosts(clone.git("show", ":uv.lock")) == {
        "https://index.invalid",
        "https://files.invalid",
    }


def test_an_index_that_serves_another_file_under_a_locked_name_is_refused(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = full_index(Index(usual_layout=False), indexes)
    odd.publish("beta", "2.0", content=wheel("beta", "2.0") + b"something else")
    clone = clone_of(origin, "clone")
    clone.use(odd, monkeypatch)
    before = clone.lock()
    with pytest.raises(SystemExit, match=r"not the locked ones: beta 2\.0"):
        lockfile.learn(clone.uv, clone.root)
    assert clone.lock() == before


def test_a_tree_without_git_gets_a_true_lock_too(
    origin: Clone, indexes: list[Index], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mirror = full_index(Index(), indexes)
    origin.use(mirror, monkeypatch)
    unpacked = tmp_path / "unpacked"
    shutil.copytree(origin.root, unpacked, ignore=shutil.ignore_patterns(".git"))
    lockfile.learn(origin.uv, unpacked)
    Clone(root=unpacked, uv=origin.uv).run_uv("sync", "--locked")


def test_an_unreachable_index_is_one_message(
    origin: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(SystemExit, match="cannot reach a package index"):
        lockfile.learn(origin.uv, origin.root)
