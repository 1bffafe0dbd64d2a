"""What became of one question: its answer, scored by the benchmark's rule and by the strict one."""

from dataclasses import dataclass, replace

from easyvideor1.schema.records import Prediction, Sample, Score


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one question, one repeat of it."""

    sample: Sample
    prediction: Prediction | None
    """None where nothing is stored."""
    score: Score | None
    """By the benchmark's own rule; None where there is no text to score."""
    repeat: int = 0
    strict: Score | None = None
    """By `easyvideor1.rewards`; equal to `score` where the benchmark has no rule of its own."""

    @property
    def accuracy(self) -> float:
        """0 to 1; 0 for whatever went wrong before an answer."""
        return self.score.parts["accuracy"] if self.score else 0.0

    @property
    def status(self) -> str:
        """`ok`, `truncated`, `load_failed`, `refused`, `generate_failed` or `missing`."""
        return self.prediction.status.value if self.prediction else "missing"

    @property
    def text(self) -> str:
        """What the model wrote; empty for whatever went wrong before an answer."""
        return self.prediction.text if self.prediction and self.score else ""

    def strictly(self) -> "Outcome":
        """The same, as the strict rule counts it."""
        return replace(self, score=self.strict)
