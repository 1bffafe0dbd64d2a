"""The records every package speaks: samples, completions, scores, groups and predictions.

Frozen, keyword-only and slotted; they cross process boundaries by pickle and hold no tensors.
`schema.arrow` stores them, `schema.readers` makes samples from files.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from string import ascii_uppercase
from typing import Any


class ProblemType(StrEnum):
    """What kind of answer a sample asks for; it picks the instruction, extraction and score."""

    multiple_choice = "multiple_choice"
    numerical = "numerical"
    regression = "regression"
    temporal_grounding = "temporal_grounding"
    spatial_temporal_grounding = "spatial_temporal_grounding"
    spatial_grounding = "spatial_grounding"
    tracking = "tracking"
    open_ended = "open_ended"
    math = "math"
    ocr = "ocr"
    boolean = "boolean"
    code = "code"
    svg_code = "svg_code"
    html_code = "html_code"
    preference = "preference"


ALIASES: dict[str, ProblemType] = {
    "mc": ProblemType.multiple_choice,
    "mcq": ProblemType.multiple_choice,
    "multi_choice": ProblemType.multiple_choice,
    "number": ProblemType.numerical,
    "numeric": ProblemType.numerical,
    "temporal": ProblemType.temporal_grounding,
    "spatiotemporal_grounding": ProblemType.spatial_temporal_grounding,
    "spatio_temporal_grounding": ProblemType.spatial_temporal_grounding,
    "object_tracking": ProblemType.tracking,
    "free_form": ProblemType.open_ended,
    "video_qa": ProblemType.open_ended,
    "video_description": ProblemType.open_ended,
    "caption": ProblemType.open_ended,
    "captioning": ProblemType.open_ended,
    "qa": ProblemType.open_ended,
    "mathematics": ProblemType.math,
    "binary_classification": ProblemType.boolean,
    "binary": ProblemType.boolean,
    "yes_no": ProblemType.boolean,
    "bool": ProblemType.boolean,
    "coding": ProblemType.code,
    "svg": ProblemType.svg_code,
    "html": ProblemType.html_code,
    "llava": ProblemType.preference,
    "critic": ProblemType.preference,
}
"""Names seen in published data sets, after lower-casing and mapping `-`, space and `/` to `_`."""


def parse_problem_type(name: str) -> ProblemType:
    """The problem type called `name` in any published data set.

    Raises:
        ValueError: for a name that is neither a type nor an alias; the text lists the known.
    """
    key = "_".join(name.strip().lower().replace("-", " ").replace("/", " ").split()).strip("_")
    if key in ProblemType.__members__:
        return ProblemType[key]
    if key in ALIASES:
        return ALIASES[key]
    known = sorted([*ProblemType.__members__, *ALIASES])
    raise ValueError(f"unknown problem type {name!r}; known: {', '.join(known)}")


class MediaKind(StrEnum):
    image = "image"
    video = "video"


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """One image or video, or a span of a video.

    Example:
        Media(kind=MediaKind.video, path="clips/0007.mp4", start_s=2.0, end_s=9.5)
    """

    kind: MediaKind
    path: str = ""
    """File to open. Empty for a video given as `frames`."""
    start_s: float | None = None
    """Seconds from the first frame; None is the beginning."""
    end_s: float | None = None
    """Seconds from the first frame; None is the end."""
    frames: tuple[str, ...] = ()
    """Image files that are the frames of a video, in order; then `frames_fps` is set."""
    frames_fps: float | None = None

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.frames):
            raise ValueError("a medium has either a path or a list of frames")
        if self.frames and not 0 < (self.frames_fps or 0.0) < math.inf:
            raise ValueError(f"a frame list needs frames_fps above 0, got {self.frames_fps}")
        has_span = self.start_s is not None or self.end_s is not None
        if self.kind is MediaKind.image and (self.frames or has_span):
            raise ValueError("an image has no frames, start_s or end_s")
        start_s = self.start_s or 0.0
        if not 0 <= start_s < math.inf:
            raise ValueError(f"start_s must be 0 or more and finite, got {self.start_s}")
        if self.end_s is not None and not start_s < self.end_s < math.inf:
            raise ValueError(f"end_s must lie after start_s, got {self.start_s} to {self.end_s}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """An answer from elsewhere (another model, a person) that may join a group of rollouts."""

    text: str
    source: str = "offline"
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of the behaviour policy, one per token, when they are known."""


Answer = str | int | float | bool | list | dict | None
"""A gold answer in the meaning it has in the data: numbers, booleans and JSON stay what they are.
None where the gold answer is hidden (a test split): such a sample can be answered, not scored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One question about text, images and videos.

    Example:
        Sample(id="toybox/train/17", problem="<video>Which colour is the square?", answer="B",
               problem_type=ProblemType.multiple_choice, options=("red", "blue"),
               media=(Media(kind=MediaKind.video, path="clips/17.mp4"),))
    """

    id: str
    problem: str
    """The question. `<image>` and `<video>` place the media; without any, media come first."""
    answer: Answer
    problem_type: ProblemType
    media: tuple[Media, ...] = ()
    options: tuple[str, ...] = ()
    """Choices without their letters, in order; their letters are A, B, C, …"""
    offline: tuple[Trajectory, ...] = ()
    source: str = ""
    category: str = ""
    pass_rate: float | None = None
    """Share of correct answers in earlier sampling, 0 to 1."""
    extra: dict[str, Any] = field(default_factory=dict)
    """All other fields of the row, JSON-serialisable."""

    @property
    def data_type(self) -> str:
        """`text`, `image`, `video` or `mixed`."""
        kinds = {medium.kind.value for medium in self.media}
        return "mixed" if len(kinds) > 1 else next(iter(kinds), "text")

    @property
    def lettered_options(self) -> list[str]:
        """The options as they are shown, e.g. `["A. red", "B. blue"]`."""
        return [f"{ascii_uppercase[i]}. {option}" for i, option in enumerate(self.options)]


class Role(StrEnum):
    assistant = "assistant"
    user = "user"
    tool = "tool"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A run of tokens in a completion: the model's own, or a tool's or user's between them."""

    token_ids: tuple[int, ...]
    role: Role = Role.assistant
    trainable: bool = True
    """Whether the loss counts these tokens."""
    media: tuple[Media, ...] = ()
    """Media shown within this segment, in the order of their placeholders."""
    logprobs: tuple[float, ...] | None = None
    """[L] under the weights that sampled it; None where unknown (offline, tool)."""
    policy_version: int | None = None
    """Published version of the weights that sampled it; None where no policy of ours did."""

    def __post_init__(self) -> None:
        if self.logprobs is not None and len(self.logprobs) != len(self.token_ids):
            raise ValueError(f"{len(self.token_ids)} tokens but {len(self.logprobs)} log-probs")


class Source(StrEnum):
    """Where a completion comes from."""

    policy = "policy"
    offline = "offline"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """Everything that follows the prompt, as segments; a single-turn answer has one.

    Example:
        Completion(text="<answer>B</answer>", finish_reason="stop",
                   segments=(Segment(token_ids=(27, 9, 4), logprobs=(-.1, -.7, -.2)),))
    """

    segments: tuple[Segment, ...]
    text: str
    """Decoded trainable text, without special tokens: what the reward reads."""
    finish_reason: str
    """`stop`, `length` or `abort`; `offline` for a trajectory."""
    source: Source = Source.policy

    @property
    def token_ids(self) -> list[int]:
        """[L] all tokens after the prompt."""
        return [token for segment in self.segments for token in segment.token_ids]

    @property
    def loss_mask(self) -> list[bool]:
        """[L] True where the loss counts the token."""
        return [s.trainable for s in self.segments for _ in s.token_ids]

    @property
    def logprobs(self) -> list[float] | None:
        """[L] sampling log-probs, zero on tokens nobody sampled; None if a trainable lacks them."""
        if any(s.logprobs is None and s.trainable for s in self.segments):
            return None
        return [x for s in self.segments for x in (s.logprobs or (0.0,) * len(s.token_ids))]


class ScoreStatus(StrEnum):
    ok = "ok"
    no_answer = "no_answer"
    """Nothing could be extracted from the text; it scores 0 and is counted."""
    timeout = "timeout"
    no_verdict = "no_verdict"
    """A judge was asked and its reply holds no verdict."""
    unavailable = "unavailable"
    """What the score needs was not there: a sandbox, a judge that answers."""
    error = "error"
    """The scorer itself failed; `detail` says how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A reward with its parts.

    Example:
        Score(value=0.95, parts={"accuracy": 1.0, "format": 0.5}, extracted="B")
    """

    value: float
    parts: dict[str, float]
    status: ScoreStatus = ScoreStatus.ok
    extracted: Any = None
    """What was read from the text, JSON-serialisable."""
    detail: str = ""

    def part(self, key: str) -> float:
        """The part `key`; 0 where scoring failed before there was such a part.

        Raises:
            KeyError: a score that is `ok` has no such part.
        """
        if key not in self.parts and self.status is not ScoreStatus.ok:
            return 0.0
        return self.parts[key]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """All completions of one sample in one step, with their scores."""

    sample: Sample
    completions: tuple[Completion, ...]
    scores: tuple[Score, ...]

    def __post_init__(self) -> None:
        if len(self.completions) != len(self.scores):
            raise ValueError(f"{len(self.completions)} completions, {len(self.scores)} scores")

    @property
    def rewards(self) -> list[float]:
        """[G] reward of each completion."""
        return [score.value for score in self.scores]


class PredictionStatus(StrEnum):
    ok = "ok"
    truncated = "truncated"
    """The answer hit the token limit."""
    load_failed = "load_failed"
    """Its media are missing or cannot be decoded."""
    refused = "refused"
    """The prompt does not fit or its media and placeholders disagree."""
    generate_failed = "generate_failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What the model answered to one benchmark sample; scoring reads `text`, nothing else."""

    fingerprint: str
    """Of the protocol: equal fingerprints mean comparable numbers."""
    sample_id: str
    repeat: int = 0
    status: PredictionStatus
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    media: tuple[dict[str, Any], ...] = ()
    """Per medium: cache key, frame indices, timestamps and size the model saw."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Under which the result is stored and resumed."""
        return self.fingerprint, self.sample_id, self.repeat
