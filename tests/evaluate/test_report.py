"""The page shows the numbers and the very pixels that the model saw, and needs nothing else."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from easyvideor1.evaluate import metrics
from easyvideor1.evaluate.config import Metric, ReportConfig
from easyvideor1.evaluate.report import Section, write_report
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.errors import MissingClipError
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import Prediction, PredictionStatus, Sample
from tests.clips import sample_about, video


def section(samples: list[Sample], texts: list[str], load: Any, **header: Any) -> Section:
    predictions = [
        Prediction(fingerprint="f", sample_id=s.id, status=PredictionStatus.ok, text=text)
        for s, text in zip(samples, texts, strict=False)
    ]
    outcomes = score_predictions(samples, predictions, repeats=1, reward=RewardConfig())
    summary = metrics.summarize(outcomes, Metric.accuracy, ["category"])
    top = {
        "model": "m",
        "fingerprint": "f",
        "blank_frames": False,
        "complete": True,
        "notes": "",
        "published": [],
    }
    return Section(
        title="toybox",
        summary=top | header | summary,
        protocol={"answers": {"x": 1}},
        outcomes=outcomes,
        load=load,
    )


def page(folder: Path, *sections: Section, **config: int) -> str:
    path = folder / "report.html"
    write_report(path, sections, ReportConfig(**config))
    return path.read_text()


def shown_frames(text: str) -> list[np.ndarray]:
    uris = re.findall(r'src="data:image/(?:png|jpeg);base64,([^"]+)"', text)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri)))) for uri in uris]


def numbered(clips: list[Clip], count: int) -> list[Sample]:
    return [sample_about(clips, id=f"s{number}") for number in range(count)]


def test_frames_on_the_page_are_those_of_the_clip(tmp_path: Path) -> None:
    clip = video(4, height=64, width=96)
    text = page(
        tmp_path, section(numbered([clip], 1), ["<answer>A</answer>"], lambda sample: [clip])
    )
    frames = shown_frames(text)
    assert len(frames) == 4
    for shown, original in zip(frames, clip.frames, strict=True):
        assert np.array_equal(shown, original.transpose(1, 2, 0))
    assert all(f"{time:.2f} s" in text for time in clip.metadata.timestamps_s)
    assert "http" not in re.sub(r"data:image[^\"]+", "", text), "self-contained"


def test_long_clips_are_thinned_and_large_frames_compressed_and_said_so(tmp_path: Path) -> None:
    clip = video(40, height=160, width=192)
    rows = section(numbered([clip], 1), ["B"], lambda sample: [clip])
    text = page(tmp_path, rows, max_frames=5)
    assert len(shown_frames(text)) == 5
    assert "5 of 40 frames of 192 x 160, as JPEG" in text
    first, last = clip.metadata.timestamps_s[0], clip.metadata.timestamps_s[-1]
    assert f"{first:.2f} s" in text and f"{last:.2f} s" in text


def test_a_full_page_says_that_it_leaves_frames_out(tmp_path: Path) -> None:
    clip = video(16, height=160, width=192)
    rows = section(numbered([clip], 12), ["A"] * 12, lambda sample: [clip])
    text = page(tmp_path, rows, max_megabytes=1)
    with_frames = len(shown_frames(text)) / 16
    assert 1 <= with_frames < 12
    assert text.count("frames left out: report.max_megabytes=1") == 12 - with_frames
    assert len(text) < 2_000_000


def test_the_models_text_is_text(tmp_path: Path) -> None:
    answer = "<script>alert(1)</script> <answer>B</answer>"
    text = page(tmp_path, section(numbered([], 1), [answer], lambda sample: []))
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &lt;answer&gt;B&lt;/answer&gt;" in text


def test_a_question_says_what_was_asked_answered_and_read(tmp_path: Path) -> None:
    samples = numbered([], 3)
    rows = section(samples, ["I see <answer>A</answer>", "<answer>B</answer>"], lambda sample: [])
    text = page(tmp_path, rows)
    assert "A. red\nB. blue\nReason briefly" in text
    verdicts = re.findall(r'<span class="verdict">(\w+)</span>', text)
    assert verdicts == ["right", "wrong", "failed"]
    assert "I see &lt;answer&gt;A" in text and ">33.3</b>" in text


def test_frames_that_are_gone_leave_their_reason(tmp_path: Path) -> None:
    def load(sample: Sample) -> list[Clip]:
        raise MissingClipError(sample.id, "clip.mp4", "outputs/cache", "no run has filled it")

    text = page(tmp_path, section(numbered([], 1), ["<answer>A</answer>"], load))
    assert "the frames of clip.mp4 are not in the cache" in text


def test_many_questions_are_sampled_and_several_runs_share_a_page(tmp_path: Path) -> None:
    rows = section(numbered([], 50), ["<answer>A</answer>"] * 50, lambda sample: [])
    blind = section(numbered([], 2), [], lambda sample: [], blank_frames=True)
    text = page(tmp_path, rows, blind, max_samples=10)
    assert "10 of 50 shown, spread evenly" in text
    assert text.count("<section>") == 2 and text.count("blind run: all frames are grey") == 1
