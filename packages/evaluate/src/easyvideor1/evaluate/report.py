"""`report.html`: one self-contained page with the numbers and, per question, what the model saw.

Frames come from the same store the engine was fed from; small ones are embedded losslessly, large
ones as JPEG, and the page says which. Takes several sections, so that runs can be shown together.
"""

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.config import BenchmarkConfig, ReportConfig
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

if TYPE_CHECKING:
    import numpy as np

    from easyvideor1.preprocess.clip import Clip

LOSSLESS_PIXELS = 128 * 128
"""Frames up to this size are PNG, the exact pixels; larger ones JPEG."""
JPEG_QUALITY = 85


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One evaluation on the page."""

    title: str
    summary: dict[str, Any]
    protocol: dict[str, Any]
    outcomes: list[Outcome]
    load: "Callable[[Sample], list[Clip]]"
    """The clips of a sample as the engine got them, blanked in a blind run."""
    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    """Its official words."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Settings of the instructions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    uri: str
    time_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Medium:
    frames: list[_Frame]
    caption: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Card:
    """One question as the page shows it."""

    id: str
    verdict: str
    """`right`, `partly`, `wrong` or `failed`."""
    accuracy: float
    status: str
    prompt: str
    gold: str
    text: str
    extracted: str
    detail: str
    prompt_tokens: int
    answer_tokens: int
    media: list[_Medium]


def write_report(path: Path, sections: Sequence[Section], config: ReportConfig) -> None:
    """Write the page to `path`.

    Args:
        path: of the HTML file.
        sections: evaluations, in order.
        config: how many questions and frames to show.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("easyvideor1.evaluate"), autoescape=True, undefined=StrictUndefined
    )
    frames = _Frames(config)
    environment.filters["percent"] = _percent
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    shown = [
        {
            "title": section.title,
            "summary": section.summary,
            "protocol": section.protocol,
            "cards": [_card(section, o, frames) for o in _chosen(section.outcomes, config)],
        }
        for section in sections
    ]
    page = environment.get_template("report.html.j2").render(sections=shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _chosen(outcomes: Sequence[Outcome], config: ReportConfig) -> list[Outcome]:
    """Spread evenly over all questions if there are more than the page shows."""
    if len(outcomes) <= config.max_samples:
        return list(outcomes)
    step = len(outcomes) / config.max_samples
    return [outcomes[int(index * step)] for index in range(config.max_samples)]


def _card(section: Section, outcome: Outcome, frames: "_Frames") -> _Card:
    sample, prediction, score = outcome.sample, outcome.prediction, outcome.score
    shown, instruction = prompt_parts(sample, section.benchmark, section.reward)
    lettered = [f"{chr(65 + i)}. {option}" for i, option in enumerate(shown.options)]
    details = [prediction.error if prediction else "", score.detail if score else ""]
    return _Card(
        id=sample.id,
        verdict=_verdict(outcome),
        accuracy=outcome.accuracy,
        status=score.status.value if score and outcome.status == "ok" else outcome.status,
        prompt="\n".join(part for part in [shown.problem, *lettered, instruction] if part),
        gold=_plain(sample.answer),
        text=prediction.text if prediction else "",
        extracted=_plain(score.extracted if score else None),
        detail="; ".join(filter(None, details)),
        prompt_tokens=prediction.prompt_tokens if prediction else 0,
        answer_tokens=len(prediction.token_ids) if prediction else 0,
        media=frames.of(section, sample),
    )


def _verdict(outcome: Outcome) -> str:
    if outcome.score is None:
        return "failed"
    return "right" if outcome.accuracy == 1 else "wrong" if outcome.accuracy == 0 else "partly"


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Frames:
    """Turns clips into inline images until the page is full."""

    def __init__(self, config: ReportConfig):
        self._config = config
        self._room = config.max_megabytes * 1_000_000

    def of(self, section: Section, sample: Sample) -> list[_Medium]:
        """The media of a sample as the page shows them."""
        if self._room <= 0:
            limit = self._config.max_megabytes
            return [_Medium(frames=[], caption=f"frames left out: report.max_megabytes={limit}")]
        try:
            clips = section.load(sample)
        except UserError as error:
            return [_Medium(frames=[], caption=str(error))]
        return [self._medium(clip) for clip in clips]

    def _medium(self, clip: "Clip") -> _Medium:
        count, _, height, width = clip.shape
        wanted = self._config.max_frames
        shown = range(count) if count <= wanted else _spread(count, wanted)
        frames = [
            _Frame(uri=_data_uri(clip.frames[index]), time_s=clip.metadata.timestamps_s[index])
            for index in shown
        ]
        self._room -= sum(len(frame.uri) for frame in frames)
        lossy = "" if height * width <= LOSSLESS_PIXELS else ", as JPEG"
        part = "" if len(frames) == count else f"{len(frames)} of "
        return _Medium(frames=frames, caption=f"{part}{count} frames of {width} x {height}{lossy}")


def _spread(count: int, wanted: int) -> list[int]:
    """`wanted` indices below `count`, evenly, with the first and the last."""
    if wanted == 1:
        return [0]
    return [round(index * (count - 1) / (wanted - 1)) for index in range(wanted)]


def _data_uri(frame: "np.ndarray") -> str:
    """A frame, uint8 [3, H, W], as an inline image."""
    from PIL import Image

    image = Image.fromarray(frame.transpose(1, 2, 0))
    lossless = image.width * image.height <= LOSSLESS_PIXELS
    buffer = io.BytesIO()
    if lossless:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "JPEG", quality=JPEG_QUALITY)
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
