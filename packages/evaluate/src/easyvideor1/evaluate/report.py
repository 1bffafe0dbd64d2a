"""`report.html`: one self-contained page with the numbers and, per question, what the model saw.

Frames come from the same store the engine was fed from, see `shown_frames`. Takes several sections,
so that runs can be shown together.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.config import BenchmarkConfig, ReportConfig
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.evaluate.shown_frames import ShownFrames, ShownMedium
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import Sample

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip


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
    media: list[ShownMedium]


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
    megabytes = config.max_megabytes
    limit = f"report.max_megabytes={megabytes}"
    frames = ShownFrames(config.max_frames, megabytes * 1_000_000, limit)
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


def _card(section: Section, outcome: Outcome, frames: ShownFrames) -> _Card:
    sample, prediction, score = outcome.sample, outcome.prediction, outcome.score
    shown, instruction = prompt_parts(sample, section.benchmark, section.reward)
    details = [prediction.error if prediction else "", score.detail if score else ""]
    return _Card(
        id=sample.id,
        verdict=_verdict(outcome),
        accuracy=outcome.accuracy,
        status=score.status.value if score and outcome.status == "ok" else outcome.status,
        prompt="\n".join(
            part for part in (shown.problem, *shown.lettered_options, instruction) if part
        ),
        gold=_plain(sample.answer),
        text=prediction.text if prediction else "",
        extracted=_plain(score.extracted if score else None),
        detail="; ".join(filter(None, details)),
        prompt_tokens=prediction.prompt_tokens if prediction else 0,
        answer_tokens=len(prediction.token_ids) if prediction else 0,
        media=frames.of(section.load, sample),
    )


def _verdict(outcome: Outcome) -> str:
    if outcome.score is None:
        return "failed"
    return "right" if outcome.accuracy == 1 else "wrong" if outcome.accuracy == 0 else "partly"


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
