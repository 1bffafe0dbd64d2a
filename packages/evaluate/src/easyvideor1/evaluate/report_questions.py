"""What the report holds about each question: a JSON object, its frames in a block of their own.

The browser parses a block of frames when its question is looked at, so that a page of thousands of
questions opens at once. Texts are cut in the middle where they are longer than the page allows.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.aggregates import field_values
from easyvideor1.evaluate.config import BenchmarkConfig, ReportConfig
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.protocol import prompt_parts
from easyvideor1.evaluate.shown_frames import ShownFrames, ShownMedium
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.records import Media, Sample, Score

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip

MIN_CHARACTERS = 200
"""Of a text, however many benchmarks share the page."""

Question = dict[str, Any]
"""JSON-serialisable; `templates/report.js` reads it."""


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
    """Its official words and the fields to filter by."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Settings of the instructions."""


class QuestionBlocks:
    """Gathers the questions of all sections, and the frames of some.

    Args:
        config: how many frames, and how much text.
        num_sections: that share the page; each gets an even part of its room, for frames and for
            the length of a text.
    """

    def __init__(self, config: ReportConfig, num_sections: int):
        self._config = config
        self._num_sections = num_sections
        whole = config.max_characters
        self._max_characters = max(whole // num_sections, min(whole, MIN_CHARACTERS))
        self.questions: list[Question] = []
        self.frames: list[str] = []
        """JSON text of each block; a question names its block by the place in this list."""

    def add(self, section: Section) -> None:
        """All questions of a section, in order, with frames where there is room for them."""
        config, outcomes = self._config, section.outcomes
        shown = ShownFrames(
            config.max_frames,
            config.max_megabytes * 1_000_000 // self._num_sections,
            f"report.max_megabytes={config.max_megabytes}",
            max_side=config.max_frame_side,
        )
        with_frames = _spread(len(outcomes), max(1, config.max_samples // self._num_sections))
        blocks: dict[tuple[Media, ...], int] = {}
        for place, outcome in enumerate(outcomes):
            question = self._question(section, outcome)
            media = outcome.sample.media
            if media and place in with_frames and media not in blocks:
                blocks[media] = len(self.frames)
                self.frames.append(script_json(_block(shown.of(section.load, outcome.sample))))
            question["frames"] = blocks.get(media)
            self.questions.append(question)

    def _question(self, section: Section, outcome: Outcome) -> Question:
        sample, prediction = outcome.sample, outcome.prediction
        asked, instruction = prompt_parts(sample, section.benchmark, section.reward)
        prompt = "\n".join(filter(None, (asked.problem, *asked.lettered_options, instruction)))
        return {
            "benchmark": section.title,
            "id": sample.id,
            "repeat": outcome.repeat,
            "verdict": verdict(outcome),
            "status": outcome.status,
            "error": prediction.error if prediction else "",
            "prompt": self._cut(prompt),
            "gold": _plain(sample.answer),
            "text": self._cut(prediction.text) if prediction else "",
            "official": _reading(outcome.score),
            "strict": _reading(outcome.strict),
            "prompt_tokens": prediction.prompt_tokens if prediction else 0,
            "answer_tokens": len(prediction.token_ids) if prediction else 0,
            "watched_s": watched_s(outcome),
            "fields": {
                name: field_values(sample, name)
                for name in ("problem_type", *section.benchmark.group_by)
            },
        }

    def _cut(self, text: str) -> str:
        limit = self._max_characters
        if len(text) <= limit:
            return text
        start, end = limit - limit // 2, limit // 2
        named = f"report.max_characters={self._config.max_characters}"
        shared = f" over {self._num_sections} benchmarks" if self._num_sections > 1 else ""
        gone = f"\n… {len(text) - limit} characters left out: {named}{shared} …\n"
        return text[:start] + gone + text[len(text) - end :]


def verdict(outcome: Outcome) -> str:
    """`right`, `partly`, `wrong`, or `failed` where there is no answer to score."""
    if outcome.score is None:
        return "failed"
    return "right" if outcome.accuracy == 1 else "wrong" if outcome.accuracy == 0 else "partly"


def watched_s(outcome: Outcome) -> float | None:
    """Seconds from the first to the last frame that the model saw; None without a video."""
    media = outcome.prediction.media if outcome.prediction else ()
    spans = [
        (medium["frame_indices"][-1] - medium["frame_indices"][0]) / medium["source_fps"]
        for medium in media
        if len(medium["frame_indices"]) > 1
    ]
    return round(sum(spans), 2) if spans else None


def script_json(value: Any) -> str:
    """JSON text that can stand in a script element: nothing in it opens or ends a tag."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _block(media: Sequence[ShownMedium]) -> list[dict[str, Any]]:
    return [to_plain(medium) for medium in media]


def _reading(score: Score | None) -> dict[str, Any] | None:
    if score is None:
        return None
    return {
        "accuracy": score.parts.get("accuracy", 0.0),
        "extracted": _plain(score.extracted),
        "status": score.status.value,
        "detail": score.detail,
    }


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _spread(count: int, wanted: int) -> set[int]:
    """`wanted` places below `count`, evenly; all if there are no more."""
    if count <= wanted:
        return set(range(count))
    return {int(place * count / wanted) for place in range(wanted)}
