"""Settings of the rewards (group `reward`) and of `evr-score`. No heavy imports."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from easyvideor1.schema.errors import UserError


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
