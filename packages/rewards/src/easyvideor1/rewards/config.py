"""Settings of the rewards (group `reward`) and of `evr-score`. No heavy imports."""

from dataclasses import dataclass, field
from enum import StrEnum

from omegaconf import MISSING

from easyvideor1.schema.errors import UserError


class CoordinateSpace(StrEnum):
    """What the numbers of a box count."""

    original_pixels = "original_pixels"
    """Pixels of the image or video as it is stored."""
    resized_pixels = "resized_pixels"
    """Pixels of the model's input, after resizing."""
    relative_1000 = "relative_1000"
    """Thousandths of width and height."""
    relative_1 = "relative_1"
    """Shares of width and height."""


class GroundingMean(StrEnum):
    """Over which seconds the mean of the box IoUs of a track goes."""

    union = "union"
    """Those of the answer and those of the gold track: leaving out and padding both cost."""
    gold = "gold"
    """Those of the gold track: padding is free."""
    common_keys = "common_keys"
    """Those that both have: one box scores a whole track. For parity with scorers that do so."""


@dataclass(kw_only=True, slots=True)
class GroundingConfig:
    """Of spatial_grounding, spatial_temporal_grounding and tracking."""

    space: CoordinateSpace = CoordinateSpace.original_pixels
    """Of the boxes that the model writes; its instruction says so. The field `space` of a sample's
    `extra` goes before it. Sizes come from there too: `width` and `height` of the original,
    `resized_width` and `resized_height` of the model's input."""
    gold_space: CoordinateSpace = CoordinateSpace.original_pixels
    """Of the gold boxes; the field `gold_space` of a sample's `extra` goes before it."""
    mean: GroundingMean = GroundingMean.union


class OcrMetric(StrEnum):
    """How a text read from an image is compared."""

    auto = "auto"
    """`cer` where the gold text has characters of a script without spaces, else `wer`."""
    wer = "wer"
    """1 - word error rate, at least 0."""
    cer = "cer"
    """1 - character error rate, at least 0."""
    exact = "exact"
    """1 for the same text, else 0."""


@dataclass(kw_only=True, slots=True)
class OcrConfig:
    """Of ocr. Both texts are put into Unicode's NFKC form and single-spaced first."""

    metric: OcrMetric = OcrMetric.auto
    ignore_case: bool = True
    ignore_punctuation: bool = False


class OpenEndedMetric(StrEnum):
    """How a free text is compared with the gold text."""

    rouge = "rouge"
    """Mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L."""
    chrf = "chrf"
    """chrF: F2 of character n-grams; no stems, no words, any script."""


@dataclass(kw_only=True, slots=True)
class OpenEndedConfig:
    """Of open_ended."""

    metric: OpenEndedMetric = OpenEndedMetric.rouge


@dataclass(kw_only=True, slots=True)
class RewardConfig:
    """The `reward` config group."""

    accuracy_weight: float = 0.9
    format_weight: float = 0.1
    """The two weights sum to 1, so that a reward lies between 0 and 1."""
    deadline_s: float = 5.0
    """Wall-clock seconds for one answer; a worker that takes longer is killed, the answer gets
    status `timeout`."""
    workers: int = 2
    """Processes for answers that are not surely quick to score; started with the first of them."""
    grounding: GroundingConfig = field(default_factory=GroundingConfig)
    ocr: OcrConfig = field(default_factory=OcrConfig)
    open_ended: OpenEndedConfig = field(default_factory=OpenEndedConfig)

    def __post_init__(self) -> None:
        weights = (self.accuracy_weight, self.format_weight)
        if min(weights) < 0 or abs(sum(weights) - 1) > 1e-9:
            raise UserError(
                "reward.accuracy_weight and reward.format_weight must not be negative and must "
                f"sum to 1, got {self.accuracy_weight} and {self.format_weight}"
            )
        if self.deadline_s <= 0:
            raise UserError(f"reward.deadline_s must be above 0, got {self.deadline_s}")
        if self.workers < 1:
            raise UserError(f"reward.workers must be at least 1, got {self.workers}")


@dataclass(kw_only=True, slots=True)
class ScoreConfig:
    """Root of `conf/score.yaml`."""

    input: str = MISSING
    """JSONL of answers: rows {"id", "text"} beside `samples`, or sample fields plus "text"."""
    output: str | None = None
    """JSONL of scores; None is `<input without suffix>.scores.jsonl`."""
    samples: list[str] = field(default_factory=list)
    """Data files that hold the samples of rows that are only {"id", "text"}."""
    format: str = "auto"
    """Of those data files, as in `data.format`."""
    reward: RewardConfig = field(default_factory=RewardConfig)


def register() -> None:
    """Store the schema under the name that `conf/score.yaml` begins with."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="score_schema", node=ScoreConfig)
