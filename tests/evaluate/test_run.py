"""From questions to a summary on a running engine: what is asked, and what is asked again."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate import run
from easyvideor1.evaluate.compare import compare_runs
from easyvideor1.evaluate.config import EvaluateConfig, register
from easyvideor1.evaluate.protocol import model_identity
from easyvideor1.schema.conf import compose
from tests.live_engine import LiveEngine
from tests.stored_clips import put_in_cache


class Bench:
    """The small toybox as a benchmark of its own, answered by the session's engine.

    Args:
        engine: answers.
        data: a copy of the toybox.
        outputs: for results.
        cache: what is not in there is decoded on the fly.
    """

    def __init__(self, engine: LiveEngine, data: Path, outputs: Path, cache: Path):
        self.engine, self.data, self.outputs, self.cache = engine, data, outputs, cache

    def config(self, *overrides: str) -> EvaluateConfig:
        register()
        settings = [
            f"model.path={self.engine.model_path}",
            "model.build=null",
            "benchmarks.toybox.data.toybox=null",
            f"benchmarks.toybox.data.validation=[{self.data}/validation.jsonl]",
            "benchmarks.toybox.generation.max_new_tokens=4",
            f"cache.dir={self.cache}",
            f"output_dir={self.outputs}",
        ]
        return compose("evaluate", [*settings, *overrides], EvaluateConfig)

    def open(self, *overrides: str) -> tuple[EvaluateConfig, run.Evaluation]:
        config = self.config(*overrides)
        opened = run.open_benchmark("toybox", config.benchmarks["toybox"])
        return config, run.prepare(
            config, opened, model=model_identity(self.engine.model_path), family=self.engine.family
        )

    def asked(self, *overrides: str) -> set[str]:
        """Which questions a run would ask now."""
        _, evaluation = self.open(*overrides)
        evaluation.folder.close()
        return {question.sample.id for question in evaluation.questions}

    def finish(self, *overrides: str) -> dict[str, Any]:
        config, evaluation = self.open(*overrides)
        self.engine.run(run.answer(config, evaluation, self.engine.engine))
        return run.conclude(config, evaluation, self.engine.model_path)

    def questions_about(self, clip: str) -> set[str]:
        """Ids of the questions about one clip."""
        return {question for question in self.all_questions if f"/{clip[-9:-4]}/" in question}

    @property
    def all_questions(self) -> set[str]:
        opened = run.open_benchmark("toybox", self.config().benchmarks["toybox"])
        return {sample.id for sample in opened.samples}


@pytest.fixture(scope="module")
def cache(
    session_engine: LiveEngine, toybox_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Holds all clips, so that an evaluation starts no decoder process."""
    folder = tmp_path_factory.mktemp("cache")
    filled = Bench(session_engine, toybox_dir, folder / "results", folder / "frames")
    _, evaluation = filled.open()
    evaluation.folder.close()
    put_in_cache(evaluation.store, *evaluation.opened.samples)
    return filled.cache


@pytest.fixture
def bench(engine: LiveEngine, toybox_dir: Path, tmp_path: Path, cache: Path) -> Bench:
    data = tmp_path / "data"
    shutil.copytree(toybox_dir, data)
    return Bench(engine, data, tmp_path / "results", cache)


def clips(bench: Bench) -> list[Path]:
    return sorted((bench.data / "clips").glob("validation_*.mp4"))


def test_a_run_answers_everything_once_and_a_second_one_asks_nothing(bench: Bench) -> None:
    assert bench.asked() == bench.all_questions
    summary = bench.finish("cache.mode=live")
    assert summary["statuses"] == {"truncated": len(bench.all_questions)}
    assert summary["videos"] == len(clips(bench)) and summary["coverage"] == 1.0
    assert summary["cache"] == {"hits": 0, "misses": len(clips(bench)), "hit_rate": 0.0}
    assert set(summary["by_type"]) >= {"multiple_choice", "numerical", "boolean"}
    assert bench.asked() == set()
    again = bench.finish()
    spent: dict[str, dict] = {"seconds": {}, "cache": {}}
    assert again | spent == summary | spent


def test_missing_media_count_as_failures_until_they_are_there(bench: Bench) -> None:
    clip = clips(bench)[2]
    hidden = clip.rename(bench.data / "hidden.mp4")
    lost = bench.questions_about(clip.name)
    assert bench.asked() == bench.all_questions - lost
    summary = bench.finish()
    assert summary["statuses"]["load_failed"] == len(lost)
    assert summary["questions"] == len(bench.all_questions)
    assert bench.asked() == set()
    hidden.rename(clip)
    assert bench.asked() == lost
    assert "load_failed" not in bench.finish()["statuses"]


def test_what_cannot_be_decoded_is_asked_again_on_request(bench: Bench) -> None:
    clip = clips(bench)[0]
    clip.write_bytes(b"not a video" * 100)
    assert bench.finish()["statuses"]["load_failed"] == len(bench.questions_about(clip.name))
    assert bench.asked() == set()
    assert bench.asked("retry_failed=true") == bench.questions_about(clip.name)


def test_questions_about_a_replaced_video_are_asked_again(bench: Bench) -> None:
    bench.finish()
    first, second = clips(bench)[:2]
    shutil.copy(second, first)
    assert bench.asked() == bench.questions_about(first.name)


def test_a_blind_run_is_another_protocol_on_the_same_frames(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.finish()
    assert bench.asked("blank_frames=true") == bench.all_questions
    seeing, blind = bench.open()[1], bench.open("blank_frames=true")[1]
    assert seeing.folder.fingerprint != blind.folder.fingerprint
    seeing.folder.close()
    blind.folder.close()
    assert "blind" not in bench.finish(), "there is no blind run yet"
    summary = bench.finish("blank_frames=true")
    assert summary["cache"]["hit_rate"] == 1.0
    assert summary["blank_frames"] and summary["questions"] == len(bench.all_questions)
    assert "blind" not in summary
    again = bench.finish()
    assert again["blind"] == {name: summary[name] for name in ("accuracy", "official", "folder")}
    gain = again["accuracy"] - summary["accuracy"]
    assert f"without {summary['accuracy']:.3f}: {gain:+.3f}" in capsys.readouterr().out
    (page,) = bench.outputs.glob(f"toybox/{seeing.folder.fingerprint}/report.html")
    assert "Without the video" in page.read_text()


def test_several_benchmarks_of_a_run_share_a_page(bench: Bench) -> None:
    opened = []
    for length in (3, 4):
        shorter = f"benchmarks.toybox.generation.max_new_tokens={length}"
        bench.finish(shorter)
        benchmark = bench.config(shorter).benchmarks["toybox"]
        opened.append(run.open_benchmark("toybox", benchmark))
    run.evaluate_opened(bench.config("job=report"), opened)
    (table,) = bench.outputs.glob("reports/*/summary.csv")
    rows = list(csv.DictReader(table.open()))
    assert [row["benchmark"] for row in rows] == ["toybox"] * 2
    summaries = [json.loads((Path(row["folder"]) / "summary.json").read_text()) for row in rows]
    for row, summary in zip(rows, summaries, strict=True):
        assert float(row["official"]) == summary["official"]["accuracy"]
        assert float(row["strict"]) == summary["strict"]["accuracy"]
        assert [float(row["low_95"]), float(row["high_95"])] == summary["accuracy_interval_95"]
        assert float(row["coverage"]) == 1.0
    lines = table.with_suffix(".md").read_text().splitlines()
    assert len(lines) == 4 and lines[2].startswith("| toybox | accuracy | ")
    (page,) = bench.outputs.glob("reports/*/report.html")
    (block,) = re.findall(r'id="questions">(.*?)</script>', page.read_text())
    lengths = [question["answer_tokens"] for question in json.loads(block)]
    assert lengths == [3] * len(bench.all_questions) + [4] * len(bench.all_questions)


def test_repeats_are_several_answers_to_one_question(bench: Bench) -> None:
    overrides = [
        "benchmarks.toybox.repeats=3",
        "benchmarks.toybox.generation.temperature=1.0",
        "benchmarks.toybox.max_samples=5",
    ]
    summary = bench.finish(*overrides)
    assert summary["questions"] == 15
    _, evaluation = bench.open(*overrides)
    evaluation.folder.close()
    stored = evaluation.folder.predictions()
    assert {(p.sample_id, p.repeat) for p in stored} == {
        (sample.id, repeat) for sample in evaluation.opened.samples for repeat in range(3)
    }
    assert len({p.token_ids for p in stored}) > 5


def test_two_runs_of_one_protocol_give_the_same_answers(bench: Bench, tmp_path: Path) -> None:
    other = Bench(bench.engine, bench.data, tmp_path / "other", bench.cache)
    sampled = "benchmarks.toybox.generation.temperature=1.0"
    texts = []
    for each, limits in ((bench, "pipeline.max_requests=1"), (other, "pipeline.max_requests=64")):
        each.finish(sampled, limits)
        _, evaluation = each.open(sampled)
        evaluation.folder.close()
        texts.append({p.key: p.token_ids for p in evaluation.folder.predictions()})
    assert texts[0] == texts[1]


def test_a_question_whose_placeholders_do_not_match_is_not_asked_and_counted(bench: Bench) -> None:
    path = bench.data / "validation.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    row["problem"] = f"<image>{row['problem']}"
    path.write_text("\n".join([json.dumps(row), *others]) + "\n")
    assert bench.asked() == bench.all_questions - {row["id"]}
    statuses = bench.finish()["statuses"]
    assert statuses == {"load_failed": 1, "truncated": len(bench.all_questions) - 1}


def test_a_change_of_fps_prompt_or_extractor_is_another_protocol_and_compare_names_it(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["benchmarks.toybox.max_samples=6"]
    other = Bench(bench.engine, bench.data, tmp_path / "other", bench.cache)
    first, again = bench.finish(*few), other.finish(*few)
    assert first["fingerprint"] == again["fingerprint"]
    same = compare_runs(bench.config("job=compare", f"a={first['folder']}", f"b={again['folder']}"))
    assert not same.protocol and same.official.difference == 0
    assert "they have the same protocol" in capsys.readouterr().out

    changes = {
        "benchmarks.toybox.budget.video.fps=1.0": "answers.frames.budget.video.fps",
        "benchmarks.toybox.prompt.text='{question} {options}'": "answers.prompt.text",
        "benchmarks.toybox.extractor.rule=first_character": "scoring.extractor.rule",
    }
    for override, field in changes.items():
        _, evaluation = bench.open(*few, override)
        evaluation.folder.close()
        put_in_cache(evaluation.store, *evaluation.opened.samples)
        changed = bench.finish(*few, override)
        assert changed["fingerprint"] != first["fingerprint"]
        b = f"b=toybox/{changed['fingerprint'][:8]}"
        found = compare_runs(bench.config("job=compare", f"a={first['folder']}", b))
        assert field in [change.field for change in found.protocol]
        assert f"{field}: " in capsys.readouterr().out
        assert found.official.questions == 6 and not found.only_a
