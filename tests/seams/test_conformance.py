"""`evr-train job=conformance`: all checks hold on every tiny model, and a broken one is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from easyvideor1.train.conformance.media import ALTERED, CASES
from easyvideor1.train.conformance.report import at_least, at_most, equal, table
from tests.seams.cases import FAMILIES

NUM_CHECKS = 2 * len(CASES) + 3 + 2 * len(CASES) + 2 * len(ALTERED) + 1
"""Tokens and positions, times of the video cases, log-probs twice, frames on both sides, update."""


def conformance(family: str, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(str(Path(sys.executable).with_name("evr-train")), "job=conformance"),
            *(f"model=tiny_{family}", f"output_dir={folder}", *overrides),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_check_holds(family: str, tmp_path: Path) -> None:
    done = conformance(family, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NUM_CHECKS} of {NUM_CHECKS} checks hold" in done.stdout
    report = json.loads((tmp_path / "conformance" / "report.json").read_text())
    assert report["passed"] is True
    assert len(report["checks"]) == NUM_CHECKS
    assert report["versions"]["torch"]


@pytest.mark.slow
def test_engine_and_learner_that_take_turns_pass_as_well(tmp_path: Path) -> None:
    done = conformance("qwen3_vl", tmp_path, "rollout.colocated=true")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_checkpoint_without_a_family_is_refused_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llava"}')
    done = conformance("qwen3_vl", tmp_path, f"model.path={folder}", "model.build=null")
    assert done.returncode == 2
    assert "llava" in done.stderr


def test_a_figure_that_is_no_number_never_passes() -> None:
    nan = float("nan")
    assert not at_most("x", nan, 1.0).ok
    assert not at_least("x", nan, 1.0).ok
    assert at_most("x", 1.0, 1.0).ok
    assert at_least("x", 1.0, 1.0).ok
    assert not equal("x", ["3 tokens, not 4"]).ok


def test_the_table_marks_what_fails() -> None:
    lines = table([at_most("short", 2.0, 1.0, unit="s"), equal("a longer name", [])]).splitlines()
    assert lines == ["FAIL short          2 <= 1 s", "ok   a longer name"]
