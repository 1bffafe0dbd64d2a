"""The page shows the numbers and the very pixels that the model saw, and needs nothing else."""

import base64
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from easyvideor1.evaluate import metrics
from easyvideor1.evaluate.benchmark_config import Rule
from easyvideor1.evaluate.config import BenchmarkConfig, Metric, ReportConfig
from easyvideor1.evaluate.report import Section, headlines, write_report
from easyvideor1.evaluate.report_plots import bins_of
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.errors import MissingClipError
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import Media, MediaKind, Prediction, PredictionStatus, Sample
from tests.clips import sample_about, video


def section(
    samples: list[Sample],
    texts: list[str],
    load: Any,
    *,
    benchmark: BenchmarkConfig | None = None,
    title: str = "toybox",
    **header: Any,
) -> Section:
    predictions = [
        Prediction(
            fingerprint="f",
            sample_id=s.id,
            status=PredictionStatus.ok,
            text=text,
            token_ids=tuple(range(len(text.split()))),
            prompt_tokens=7,
            media=({"frame_indices": [0, 24, 48], "source_fps": 24.0},) if s.media else (),
        )
        for s, text in zip(samples, texts, strict=False)
    ]
    benchmark = benchmark or BenchmarkConfig(group_by=["category"])
    outcomes = score_predictions(
        samples, predictions, repeats=1, reward=RewardConfig(), extractor=benchmark.extractor
    )
    summary = metrics.summarize(outcomes, Metric.accuracy, benchmark.group_by)
    top = {
        "model": "m",
        "fingerprint": "f",
        "blank_frames": False,
        "complete": True,
        "notes": "",
        "published": [],
        "alarms": [],
        "prompt_tokens": None,
    }
    return Section(
        title=title,
        summary=top | header | summary,
        protocol={"answers": {"x": 1}},
        outcomes=outcomes,
        load=load,
        benchmark=benchmark,
    )


def page(folder: Path, *sections: Section, **config: int) -> str:
    path = folder / "report.html"
    write_report(path, sections, ReportConfig(**config))
    return path.read_text()


def data_of(text: str, name: str) -> Any:
    """What a JSON block of the page holds."""
    pattern = rf'<script type="application/json" id="{name}">(.*?)</script>'
    (block,) = re.findall(pattern, text, re.DOTALL)
    return json.loads(block)


def questions_of(text: str) -> list[dict[str, Any]]:
    return data_of(text, "questions")


def media_of(text: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    return data_of(text, f"frames-{question['frames']}")


def shown_frames(media: list[dict[str, Any]]) -> list[np.ndarray]:
    uris = [frame["uri"].partition(",")[2] for medium in media for frame in medium["frames"]]
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri)))) for uri in uris]


def numbered(clips: list[Clip], count: int) -> list[Sample]:
    return [sample_about(clips, id=f"s{number}") for number in range(count)]


def on_own_videos(count: int) -> list[Sample]:
    """Questions about a video each."""
    media = [(Media(kind=MediaKind.video, path=f"{number}.mp4"),) for number in range(count)]
    return [
        sample_about([video(2)], id=f"s{number}", media=one) for number, one in enumerate(media)
    ]


def test_frames_on_the_page_are_those_of_the_clip(tmp_path: Path) -> None:
    clip = video(4, height=64, width=96)
    samples = numbered([clip], 2)
    text = page(tmp_path, section(samples, ["<answer>A</answer>"] * 2, lambda sample: [clip]))
    first, second = questions_of(text)
    assert first["frames"] == second["frames"] == 0, "one block for both questions on the video"
    media = media_of(text, first)
    for shown, original in zip(shown_frames(media), clip.frames, strict=True):
        assert np.array_equal(shown, original.transpose(1, 2, 0))
    assert [frame["time_s"] for frame in media[0]["frames"]] == list(clip.metadata.timestamps_s)
    assert "http" not in re.sub(r"data:image[^\"]+", "", text), "self-contained"


def test_long_clips_are_thinned_and_large_frames_compressed_and_said_so(tmp_path: Path) -> None:
    clip = video(40, height=160, width=192)
    rows = section(numbered([clip], 1), ["B"], lambda sample: [clip])
    text = page(tmp_path, rows, max_frames=5)
    (medium,) = media_of(text, questions_of(text)[0])
    assert len(medium["frames"]) == 5
    assert medium["caption"] == "5 of 40 frames of 192 x 160, as JPEG"
    times = clip.metadata.timestamps_s
    assert medium["frames"][0]["time_s"] == times[0]
    assert medium["frames"][-1]["time_s"] == times[-1]


def test_frames_above_the_side_of_the_page_are_shown_smaller_and_said_so(tmp_path: Path) -> None:
    clip = video(2, height=160, width=192)
    rows = section(numbered([clip], 1), ["B"], lambda sample: [clip])
    text = page(tmp_path, rows, max_frame_side=96)
    (medium,) = media_of(text, questions_of(text)[0])
    assert medium["caption"] == "2 frames of 192 x 160, as JPEG of 96 x 80"
    assert {frame.shape for frame in shown_frames([medium])} == {(80, 96, 3)}


def test_a_full_page_says_that_it_leaves_frames_out(tmp_path: Path) -> None:
    clip = video(16, height=160, width=192)
    rows = section(on_own_videos(30), ["A"] * 30, lambda sample: [clip])
    text = page(tmp_path, rows, max_megabytes=1)
    captions = [media_of(text, question)[0]["caption"] for question in questions_of(text)]
    left_out = captions.count("frames left out: report.max_megabytes=1")
    assert 1 <= len(captions) - left_out < 30
    assert len(text) < 2_000_000


def test_the_models_text_is_text(tmp_path: Path) -> None:
    answer = "</script><script>alert(1)</script> <!-- <answer>B</answer>"
    text = page(tmp_path, section(numbered([], 1), [answer], lambda sample: []))
    assert questions_of(text)[0]["text"] == answer
    assert "<script>alert(1)" not in text and "<!--" not in text


def test_a_question_has_what_was_asked_answered_and_read_both_ways(tmp_path: Path) -> None:
    samples = numbered([], 4)
    benchmark = BenchmarkConfig(group_by=["category", "source"])
    benchmark.extractor.rule = Rule.first_letter
    benchmark.extractor.letters = "AB"
    texts = ["I see <answer>A</answer>", "<answer>B</answer>", "A cat, or so"]
    rows = section(samples, texts, lambda sample: [], benchmark=benchmark)
    text = page(tmp_path, rows)
    questions = questions_of(text)
    assert [question["id"] for question in questions] == [sample.id for sample in samples]
    assert "A. red\nB. blue\nReason briefly" in questions[0]["prompt"]
    assert [question["text"] for question in questions] == [*texts, ""]
    for question, outcome in zip(questions, rows.outcomes, strict=True):
        for name, score in (("official", outcome.score), ("strict", outcome.strict)):
            if score is None:
                assert question[name] is None
                continue
            assert question[name]["accuracy"] == score.parts["accuracy"]
            assert question[name]["status"] == score.status.value
            assert question[name]["detail"] == score.detail
    assert questions[2]["official"]["extracted"] == "A"
    assert questions[2]["strict"]["status"] == "no_answer"
    assert [question["verdict"] for question in questions] == ["right", "wrong", "right", "failed"]
    assert questions[3]["status"] == "missing"
    assert set(questions[0]["fields"]) == {"problem_type", "category", "source"}
    assert (questions[0]["prompt_tokens"], questions[0]["answer_tokens"]) == (7, 3)
    assert "<b>50.0</b>" in text


def test_long_texts_lose_their_middle_and_say_so(tmp_path: Path) -> None:
    answer = "begin " + "x" * 5_000 + " <answer>A</answer>"
    rows = section(numbered([], 1), [answer], lambda sample: [])
    shown = questions_of(page(tmp_path, rows, max_characters=100))[0]
    assert shown["text"].startswith("begin x") and shown["text"].endswith("<answer>A</answer>")
    left_out = len(answer) - 100
    assert f"{left_out} characters left out: report.max_characters=100" in shown["text"]
    assert shown["official"]["extracted"] == "A", "scored by the whole text"


def test_benchmarks_on_one_page_share_the_room_for_texts(tmp_path: Path) -> None:
    rows = section(numbered([], 1), ["x" * 1_000 + " <answer>A</answer>"], lambda sample: [])
    shown = questions_of(page(tmp_path, rows, rows, max_characters=600))
    assert "report.max_characters=600 over 2 benchmarks" in shown[0]["text"]
    assert len(shown[0]["text"].replace("x", "")) < 150 and shown[0]["text"].count("x") < 300


def test_frames_that_are_gone_leave_their_reason(tmp_path: Path) -> None:
    def load(sample: Sample) -> list[Clip]:
        raise MissingClipError(sample.id, "clip.mp4", "outputs/cache", "no run has filled it")

    clip = video(2)
    text = page(tmp_path, section(numbered([clip], 1), ["<answer>A</answer>"], load))
    (medium,) = media_of(text, questions_of(text)[0])
    assert "the frames of clip.mp4 are not in the cache" in medium["caption"]


def test_all_questions_are_listed_and_some_have_frames(tmp_path: Path) -> None:
    clip = video(2)
    rows = section(on_own_videos(50), ["<answer>A</answer>"] * 50, lambda sample: [clip])
    text = page(tmp_path, rows, max_samples=10)
    places = [place for place, q in enumerate(questions_of(text)) if q["frames"] is not None]
    assert places == list(range(0, 50, 5))


def test_several_benchmarks_share_a_page_and_its_room(tmp_path: Path) -> None:
    clip = video(2)
    seen = section(on_own_videos(20), ["<answer>A</answer>"] * 20, lambda sample: [clip])
    blind = section(numbered([], 2), [], lambda sample: [], title="blind", blank_frames=True)
    text = page(tmp_path, seen, blind, max_samples=10)
    questions = questions_of(text)
    assert [q["benchmark"] for q in questions] == ["toybox"] * 20 + ["blind"] * 2
    assert sum(question["frames"] is not None for question in questions) == 5
    assert text.count('<details class="evaluation"') == 2
    assert text.count("blind run: all frames are grey") == 1
    assert "2 benchmarks</h1>" in text


def test_alarms_and_what_a_blind_run_scored_stand_beside_the_numbers(tmp_path: Path) -> None:
    alarm = {"name": "truncated", "share": 0.25, "limit": 0.05, "meaning": "Raise it <now>."}
    blind = {"accuracy": 0.25, "official": {}, "folder": "outputs/blind"}
    texts = ["<answer>A</answer>"] * 4
    told = section(on_own_videos(4), texts, lambda sample: [video(2)], alarms=[alarm], blind=blind)
    text = page(tmp_path, told)
    assert "<b>truncated</b> 25.0 %, above 5.0 %: Raise it &lt;now&gt;." in text
    assert "Without the video the accuracy is 25.0, with it 100.0: +75.0" in text
    plain = page(tmp_path, section(on_own_videos(4), texts, lambda sample: [video(2)]))
    assert "Without the video" not in plain and "above 5.0" not in plain


def test_a_headline_has_its_interval_and_that_of_its_difference() -> None:
    summary = {
        "official": {"accuracy": 0.6, "total": 0.7, "backward": 0.6},
        "strict": {"accuracy": 0.5, "total": 0.65, "backward": 0.5},
        "accuracy": 0.6,
        "accuracy_interval_95": (0.55, 0.65),
        "published": [
            {"model": "M", "metric": "accuracy", "value": 0.5, "difference": 0.1},
            {"model": "N", "metric": "total", "value": 0.8, "difference": -0.1},
        ],
    }
    accuracy, total, backward = headlines(summary)
    assert accuracy["interval"] == (0.55, 0.65) and accuracy["strict"] == 0.5
    assert accuracy["published"][0]["interval"] == pytest.approx((0.05, 0.15))
    # An interval of the mean accuracy says nothing about another statistic.
    assert total["interval"] is None and total["published"][0]["interval"] is None
    assert backward["interval"] is None, "equal to it by chance"


def test_bins_hold_every_outcome_once_and_equal_values_together() -> None:
    values = [3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 9, 5, 4, 7, 8, None]
    rows = section(numbered([], len(values)), ["<answer>A</answer>"] * len(values), None)
    value_of = dict(zip((outcome.sample.id for outcome in rows.outcomes), values, strict=True))
    bins = bins_of(rows.outcomes, lambda outcome: value_of[outcome.sample.id])
    held = [value_of[outcome.sample.id] for part in bins for outcome in part.outcomes]
    assert held == sorted(value for value in values if value is not None)
    assert all(part.high < later.low for part, later in itertools.pairwise(bins))
    assert bins[0].low == bins[0].high == 1


def test_plots_are_there_with_their_numbers(tmp_path: Path) -> None:
    texts = ["<answer>A</answer>"] * 3 + ["it is <answer>B</answer>"]
    text = page(tmp_path, section(on_own_videos(4), texts, lambda sample: [video(2)]))
    assert "0 to 0 tokens" not in text and "1 to 1 tokens: 3 right" in text
    assert "3 to 3 tokens: 1 wrong" in text
    assert "2 seconds from the first to the last frame: 75.0 of 4 answers" in text
