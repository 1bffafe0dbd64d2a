"""Two runs side by side: the interval by a second formula, and what the command says of runs."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easyvideor1.evaluate.compare import compare, compare_runs, find_run, paired, read_run
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.schema.conf import compose
from easyvideor1.schema.errors import UserError


def rows(seed: int, videos: int) -> list[tuple[str, float, float]]:
    """Questions of uneven number per video; how hard a video is and who gains on it is its own."""
    rng = random.Random(seed)
    made = []
    for video in range(videos):
        ease, gain = rng.random(), rng.gauss(0.05, 0.3)
        for _ in range(rng.randint(1, 7)):
            a = float(rng.random() < ease)
            b = float(rng.random() < min(1.0, max(0.0, ease + gain)))
            made.append((f"v{video}", a, b))
    rng.shuffle(made)
    return made


def sandwich(made: list[tuple[str, float, float]]) -> tuple[float, float]:
    """Regression of the differences on a constant: coefficient and cluster-robust error.

    V = (X'X)^-1 (sum over g of X_g' u_g u_g' X_g) (X'X)^-1 times G/(G-1).
    """
    names = [row[0] for row in made]
    y = np.array([b - a for _, a, b in made])
    x = np.ones((len(made), 1))
    bread = np.linalg.inv(x.T @ x)
    beta = bread @ x.T @ y
    u = y - x @ beta
    groups = sorted(set(names))
    member = np.array([[name == group for name in names] for group in groups], dtype=float)
    same = member.T @ member  # 1 where two questions are about one video
    meat = x.T @ (np.outer(u, u) * same) @ x
    variance = bread @ meat @ bread * len(groups) / (len(groups) - 1)
    return float(beta[0]), float(np.sqrt(variance[0, 0]))


@pytest.mark.parametrize("seed", range(5))
def test_the_interval_is_that_of_the_cluster_robust_regression(seed: int) -> None:
    made = rows(seed, videos=60)
    found = paired(made)
    difference, error = sandwich(made)
    assert found.interval_95 is not None
    assert found.difference == pytest.approx(difference, abs=1e-12)
    assert found.interval_95[0] == pytest.approx(difference - 1.96 * error, abs=1e-12)
    assert found.interval_95[1] == pytest.approx(difference + 1.96 * error, abs=1e-12)


def test_the_interval_is_as_wide_as_resampling_videos_makes_it() -> None:
    made = rows(11, videos=300)
    found = paired(made)
    assert found.interval_95 is not None
    names = sorted({row[0] for row in made})
    totals = np.array([sum(b - a for v, a, b in made if v == name) for name in names])
    counts = np.array([sum(v == name for v, _, _ in made) for name in names])
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(names), size=(20_000, len(names)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    width = found.interval_95[1] - found.interval_95[0]
    assert width == pytest.approx(2 * 1.96 * means.std(), rel=0.03)
    gains = [b - a for _, a, b in made]
    unclustered = 2 * 1.96 * float(np.std(gains)) / len(gains) ** 0.5
    assert width > 1.2 * unclustered, "the questions about one video gain together"


def test_one_video_gives_no_interval_and_gains_are_counted() -> None:
    found = paired([("v", 0.0, 1.0), ("v", 1.0, 0.0), ("v", 0.0, 0.5), ("v", 1.0, 1.0)])
    assert found.interval_95 is None and (found.better, found.worse) == (2, 1)
    assert (found.a, found.b, found.difference) == (0.5, 0.625, 0.125)


# --- stored runs --------------------------------------------------------------------------------


def store(root: Path, name: str, scores: dict[str, list[float | None]], **protocol: Any) -> Path:
    """A run's files: scores of each question and repeat, None for one that is not answered yet."""
    folder = root / "bench" / name
    folder.mkdir(parents=True)
    lines = [
        {
            "sample_id": sample,
            "repeat": repeat,
            "status": "missing" if score is None else "ok",
            "video": f"{sample[0]}.mp4",
            "groups": {"category": [f"c{sample[1]}"]},
            "accuracy": score or 0.0,
            "strict_accuracy": 0.0,
        }
        for sample, repeats in scores.items()
        for repeat, score in enumerate(repeats)
    ]
    (folder / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    official = {"M": sum(line["accuracy"] for line in lines) / len(lines)}
    (folder / "summary.json").write_text(json.dumps({"official": official}))
    (folder / "protocol.json").write_text(json.dumps({"answers": protocol}))
    return folder


def compared(a: str, b: str, root: Path) -> EvaluateConfig:
    register()
    chosen = ["job=compare", f"a={a}", f"b={b}", f"output_dir={root}"]
    return compose("evaluate", chosen, EvaluateConfig)


def test_questions_of_one_run_only_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = store(tmp_path, "aa11", {"x1": [1.0], "x2": [0.0], "y1": [0.0], "y3": [1.0]}, fps=2)
    b = store(tmp_path, "bb22", {"x1": [1.0], "x2": [1.0], "y1": [None], "z1": [1.0]}, fps=1)
    found = compare_runs(compared(str(a), "bench/bb", tmp_path))
    assert found.only_a == ["y1", "y3"] and found.only_b == ["z1"]
    assert found.official.questions == 2 and found.official.difference == 0.5
    assert found.by["category"]["c2"].difference == 1.0
    shown = capsys.readouterr().out
    assert "only in a, left out: 2 questions: y1, y3" in shown
    assert "answers.fps: 2 -> 1" in shown and "M: 0.500 -> 0.750" in shown
    written = json.loads((tmp_path / "bench" / "compare_aa11_bb22.json").read_text())
    assert written["only_a"] == ["y1", "y3"] and written["official"]["difference"] == 0.5
    assert read_run(b).questions.keys() == {"x1", "x2", "z1"}


def test_repeats_of_a_question_count_as_their_mean(tmp_path: Path) -> None:
    a = store(tmp_path, "aa", {"x1": [1.0, 0.0, 1.0, 0.0], "y1": [1.0]})
    b = store(tmp_path, "bb", {"x1": [1.0], "y1": [1.0]})
    found = compare(read_run(a), read_run(b))
    assert found.official.difference == 0.25 and found.official.questions == 2


def test_runs_that_cannot_be_compared_say_why(tmp_path: Path) -> None:
    a = store(tmp_path, "aa11", {"x1": [1.0]})
    b = store(tmp_path, "aa22", {"y1": [1.0]})
    with pytest.raises(UserError, match="no question in common"):
        compare(read_run(a), read_run(b))
    with pytest.raises(UserError, match=r"names 2 stored runs, not one.*bench/aa11, bench/aa22"):
        find_run("bench/aa", tmp_path)
    with pytest.raises(UserError, match="there are none"):
        find_run("other/aa", tmp_path)
    (b / "scores.jsonl").unlink()
    with pytest.raises(UserError, match=r"no scores.jsonl.*job=score"):
        read_run(b)


def test_a_comparison_without_two_runs_is_refused_and_so_are_runs_without_one() -> None:
    register()
    with pytest.raises(UserError, match="job=compare needs two runs"):
        compose("evaluate", ["job=compare", "a=x/y"], EvaluateConfig)
    with pytest.raises(UserError, match="this is job=run"):
        compose("evaluate", ["a=x/y"], EvaluateConfig)
