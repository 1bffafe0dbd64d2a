"""Each benchmark's numbers against its formula stated again, and against its official script.

`official/recorded.json` holds what the script of a benchmark's own repository printed, run outside
of this repository on the answers of `official/cases.py`: repository, commit, file, numbers, and how
it was called. Benchmarks that are not in it are held to the restated formula alone.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate.benchmarks import load_benchmark
from easyvideor1.evaluate.metrics import summarize
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import Prediction, PredictionStatus
from tests.evaluate.benchmark_fixtures import config_of
from tests.evaluate.official.cases import CASES, Case
from tests.evaluate.official.formulas import FORMULAS

HERE = Path(__file__).parent / "official"
RECORDED: dict[str, dict[str, Any]] = json.loads((HERE / "recorded.json").read_text())


def our_numbers(name: str, case: Case, folder: Path) -> dict[str, float]:
    """Official numbers and those of each group, from release files through loader and scorer."""
    rows, texts = case
    files = written(rows, folder)
    benchmark = config_of(name)
    benchmark.data.validation = [str(file) for file in files]
    benchmark.data.media_root = str(folder)
    samples = load_benchmark(name, benchmark)
    assert len(samples) == len(texts)
    answers = dict(zip(in_order(rows, files), texts, strict=True))
    predictions = [
        Prediction(fingerprint="f", sample_id=sample.id, status=PredictionStatus.ok, text=text)
        for place, sample in enumerate(samples)
        if (text := answers[place]) is not None
    ]
    outcomes = score_predictions(
        samples,
        predictions,
        repeats=1,
        reward=RewardConfig(),
        extractor=benchmark.extractor,
    )
    summary = summarize(outcomes, benchmark.metric, benchmark.group_by)
    groups = {
        f"{field}={value}{'' if metric == 'accuracy' else f' {metric}'}": number
        for field, parts in summary["by"].items()
        for value, part in parts.items()
        for metric, number in part.items()
        if metric != "questions"
    }
    return summary["official"] | groups


def written(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """The rows as files of the release: one, or one for each value of `file`."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        own = {name: value for name, value in row.items() if name != "file"}
        parts.setdefault(row.get("file", "release"), []).append(own)
    files = []
    for name, part in parts.items():
        files.append(folder / f"{name}.json")
        files[-1].write_text(json.dumps(part))
    return files


ASKED = frozenset({"question", "problem", "Question", "options", "caption"})
"""Fields of which a question has one."""


def num_questions(row: dict[str, Any]) -> int:
    """How many questions a row of a release holds."""
    if row.get("file") == "Adaptation":
        return 2  # with and without its video
    for field in ("qa", "test_info"):
        if field in row:
            return len(row[field])
    if ASKED & row.keys():
        return 1
    nested = [part for name, part in row.items() if name != "file"]
    return sum(1 if ASKED & part.keys() else sum(map(len, part.values())) for part in nested)


def in_order(rows: list[dict[str, Any]], files: list[Path]) -> list[int]:
    """For each question as generated, its place among those read from the files."""
    names = [row.get("file", "release") for row in rows for _ in range(num_questions(row))]
    order = sorted(range(len(names)), key=lambda place: [f.stem for f in files].index(names[place]))
    places = [0] * len(names)
    for read, generated in enumerate(order):
        places[generated] = read
    return places


@pytest.mark.parametrize("name", FORMULAS)
def test_the_numbers_are_those_of_the_formula(name: str, tmp_path: Path) -> None:
    rows, texts = CASES[name]()
    assert len(texts) >= 200 and None in texts and "" in texts
    found = our_numbers(name, (rows, texts), tmp_path)
    expected = FORMULAS[name](rows, texts)
    assert found == pytest.approx(expected, abs=1e-9)
    assert 0.05 < found[next(iter(found))] < 0.95, "a case that tells nothing"


@pytest.mark.parametrize("name", RECORDED)
def test_the_numbers_are_those_of_the_official_script(name: str, tmp_path: Path) -> None:
    found = our_numbers(name, CASES[name](), tmp_path)
    numbers = RECORDED[name]["numbers"]
    assert numbers and numbers == pytest.approx({key: found[key] for key in numbers}, abs=1e-9)


def test_every_formula_is_held_to_a_case_and_knows_nothing_of_the_product() -> None:
    assert set(FORMULAS) == set(CASES) and set(RECORDED) <= set(FORMULAS)
    for path in sorted(HERE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "easyvideor1" for name in names), path
