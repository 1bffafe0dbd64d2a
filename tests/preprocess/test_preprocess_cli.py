"""`evr-preprocess` as its users run it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.preprocess import decode_counter

REPOSITORY = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("evr-preprocess")


def run(*overrides: str, cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(COMMAND), *overrides],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_real_clips_are_cached_once(tmp_path: Path) -> None:
    cache, counts = tmp_path / "cache", tmp_path / "counts"
    arguments = ["data=real_clips", f"cache.dir={cache}"]
    environment = {decode_counter.VARIABLE: str(counts)}

    first = run(*arguments, cwd=REPOSITORY / "docs", **environment)
    assert first.returncode == 0, first.stderr
    found = re.search(r"(\d+) decoded, 0 reused, 0 failed", first.stdout)
    assert found, first.stdout
    clips = int(found[1])
    assert clips >= 4
    assert decode_counter.total(counts) == clips

    second = run(*arguments, **environment)
    assert f" 0 decoded, {clips} reused, 0 failed" in second.stdout
    assert decode_counter.total(counts) == clips

    stats = run("job=stats", f"cache.dir={cache}")
    assert f"clips        {clips} of" in stats.stdout, stats.stderr
    verified = run("job=verify", f"cache.dir={cache}")
    assert verified.stdout == f"{clips} clips in {cache} are intact\n"

    (shard, *_) = cache.rglob("*.arrow")
    with shard.open("r+b") as file:
        file.seek(shard.stat().st_size // 2)
        file.write(bytes(64))
    damaged = run("job=verify", f"cache.dir={cache}")
    assert damaged.returncode == 2
    assert f"1 of {clips} clips in {cache} are damaged" in damaged.stderr


MISTAKES = {
    "decode.wokers=3": "Did you mean decode.workers?",
    "data.train=[/absent.jsonl]": "/absent.jsonl",
    "decode.deadline_s=0": "decode.deadline_s must be above 0, got 0.0",
    "cache.codec=jpeg cache.jpeg_quality=0": "cache.jpeg_quality must be 1 to 100, got 0",
    "cache.mode=cached": "cache.mode takes one of require, prefer, live",
    "job=clean": "job takes one of cache, plan, stats, verify, gc, export",
    "data.train=[] data.validation=[]": "are both empty; name at least one file",
    "budget.video.fps=-1": "budget fps must be above 0",
    "data.on_bad_row=ignore": "data.on_bad_row must be raise or skip, got 'ignore'",
    "model.build=null model.path=./absent": "model.path=./absent does not exist",
}


@pytest.fixture(scope="module")
def without_heavy_imports(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH on which torch, ray, vllm and transformers fail to import."""
    folder = tmp_path_factory.mktemp("heavy")
    for name in ("torch", "ray", "vllm", "transformers"):
        (folder / f"{name}.py").write_text("raise AssertionError('a heavy import')")
    return str(folder)


@pytest.mark.parametrize("overrides", MISTAKES)
def test_a_mistake_is_answered_in_one_paragraph(overrides: str, without_heavy_imports: str) -> None:
    result = run("data=real_clips", *overrides.split(), PYTHONPATH=without_heavy_imports)
    assert result.returncode == 2, result.stderr
    assert MISTAKES[overrides] in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
