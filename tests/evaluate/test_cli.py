"""`evr-evaluate`: mistakes at once, missing files by name, and a run that survives being killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "vllm", "ray", "transformers", "mlflow")
PROBE = f"""
import atexit, sys
atexit.register(lambda: print("heavy:", [m for m in {HEAVY} if m in sys.modules]))
sys.argv = ["evr-evaluate", *sys.argv[1:]]
from easyvideor1.evaluate.cli import main
main()
"""
COMMAND = [sys.executable, "-c", "from easyvideor1.evaluate.cli import main; main()"]


def call(*overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, *overrides], capture_output=True, text=True, timeout=60
    )


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["engine.max_num_seq=4"], "engine.max_num_seqs"),
        (["benchmarks.toybox.repeat=4"], "repeat"),
        (["benchmark=toybocks"], "toybocks"),
        (["benchmark=[]"], "no benchmark chosen"),
        (["benchmark=video_mme"], "test-00000-of-00001.parquet does not exist"),
        (["model.path=./no/such/model", "model.build=null"], "no/such/model"),
        (["benchmarks.toybox.generation.n=4"], "set repeats"),
        (["pipeline.prefetch_bytes=0"], "pipeline.prefetch_bytes must be at least 1"),
    ],
)
def test_a_mistake_is_one_paragraph_before_anything_heavy_loads(
    overrides: list[str], expected: str
) -> None:
    done = call(*overrides)
    assert done.returncode == 2
    paragraph = done.stderr.strip().splitlines()[-1]
    assert paragraph.startswith("evr-evaluate: ") and expected in paragraph
    assert done.stdout.strip().endswith("heavy: []")


def test_a_bad_row_names_file_row_and_field(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("AAAAA 0.0 5.5##fine\nAAAAA 5.5##no end\n")
    done = call("benchmark=charades_sta", f"benchmarks.charades_sta.data.validation=[{file}]")
    assert done.returncode == 2
    assert f"{file}:2:line: got 'AAAAA 5.5##no end'" in done.stderr
    assert "heavy: []" in done.stdout


def test_check_lists_the_missing_files_without_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("HERE1 0.0 5.5##a\nGONE1 1.0 2.0##b\nGONE1 2.0 3.0##c\n")
    (tmp_path / "HERE1.mp4").touch()
    chosen = [
        "benchmark=charades_sta",
        f"benchmarks.charades_sta.data.validation=[{file}]",
        f"benchmarks.charades_sta.data.media_root={tmp_path}",
    ]
    done = call("job=check", *chosen)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == str(tmp_path / "GONE1.mp4")
    expected = "charades_sta: 3 questions on 2 media files, 1 files missing, which 2 questions need"
    assert lines[1] == expected
    assert lines[-1] == "heavy: []"
    (tmp_path / "GONE1.mp4").touch()
    assert call("job=check", *chosen).returncode == 0


def test_a_benchmark_without_any_media_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "charades_sta_test.txt"
    file.write_text("GONE1 1.0 2.0##b\n")
    done = call("benchmark=charades_sta", f"benchmarks.charades_sta.data.validation=[{file}]")
    assert done.returncode == 2
    assert "benchmarks.charades_sta.data.media_root" in done.stderr


def test_a_sweep_runs_each_benchmark_and_leaves_nothing_where_it_was_started(
    tmp_path: Path,
) -> None:
    arguments = ["--multirun", "benchmark=toybox,real_clips", "job=check"]
    settings = os.environ | {"EVR_OUTPUTS": str(tmp_path / "outputs")}
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=tmp_path / "here",
        env=settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "toybox: " in done.stdout and "real_clips: " in done.stdout
    assert not list((tmp_path / "here").iterdir())


def test_help_loads_nothing_heavy() -> None:
    done = call("--help")
    assert done.returncode == 0
    assert "benchmark" in done.stdout and "heavy: []" in done.stdout
