"""Signs that a score is not what it seems, by simple counts over the answers.

A benchmark number hides how it came about: answers that ran into the limit, one text for all
questions, one letter for all choices. Each count has a limit in the config; what is above it is
told on the console, in the summary and in the report. Called by `run`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any

from easyvideor1.evaluate.config import AlarmConfig
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.rewards.config import RepetitionConfig
from easyvideor1.rewards.penalties import repetition
from easyvideor1.schema.records import PredictionStatus, ProblemType, ScoreStatus

NGRAMS = RepetitionConfig(weight=1.0, ngram=4)
"""Words in a row that a sensible answer seldom repeats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alarm:
    """A share above its limit."""

    name: str
    share: float
    limit: float
    meaning: str

    def __str__(self) -> str:
        return f"{self.name}: {self.share:.1%}, above {self.limit:.1%}. {self.meaning}"


MEANINGS = {
    "truncated": "Answers ended at the token limit: raise generation.max_new_tokens.",
    "repetitive": "Answers repeat themselves: look at sampling, template and chat format.",
    "same_answer": "One text answers most questions: the model may not read them.",
    "no_answer": "Nothing could be read from these answers: compare prompt and extractor.",
    "not_answered": "Questions without an answer count as wrong: statuses and errors say why.",
    "letter_skew": "Letters are chosen that far from how the right ones lie.",
}


def alarms(outcomes: Sequence[Outcome], config: AlarmConfig) -> list[Alarm]:
    """What is above its limit; nothing for fewer than `min_answers` answers.

    Args:
        outcomes: of one benchmark.
        config: the limits.
    """
    limits = asdict(config)
    return [
        Alarm(name=name, share=share, limit=limits[name], meaning=MEANINGS[name])
        for name, share in shares(outcomes, config.min_answers).items()
        if share > limits[name]
    ]


def shares(outcomes: Sequence[Outcome], min_answers: int) -> dict[str, float]:
    """Each count over what it is a share of; without those that have too few answers.

    `letter_skew` is half the sum of differences between the shares of chosen and of right letters
    (total variation): 0 where both lie alike, 1 where they have no letter in common.
    """
    found: dict[str, float] = {}
    if len(outcomes) < min_answers:
        return found
    answered = [outcome for outcome in outcomes if outcome.score is not None]
    found["not_answered"] = 1 - len(answered) / len(outcomes)
    if len(answered) < min_answers:
        return found
    count = len(answered)
    texts = Counter(outcome.text.strip() for outcome in answered)
    found["truncated"] = sum(_is_truncated(o) for o in answered) / count
    found["repetitive"] = sum(_is_repetitive(o) for o in answered) / count
    found["no_answer"] = sum(_has_no_answer(o) for o in answered) / count
    choices = [o for o in answered if o.sample.problem_type is ProblemType.multiple_choice]
    if len(choices) < count / 2:  # for choices the skew says it, and few texts are usual
        found["same_answer"] = texts.most_common(1)[0][1] / count
    pairs = [(_letter(o.score.extracted), _letter(o.sample.answer)) for o in choices if o.score]
    known = [(chosen, right) for chosen, right in pairs if chosen and right]
    if len(known) >= min_answers:
        found["letter_skew"] = _total_variation([c for c, _ in known], [r for _, r in known])
    return found


def _is_truncated(outcome: Outcome) -> bool:
    return outcome.status == PredictionStatus.truncated


def _is_repetitive(outcome: Outcome) -> bool:
    """Whether more than half of its runs of words stood there before."""
    return repetition(outcome.text, NGRAMS) < -0.5


def _has_no_answer(outcome: Outcome) -> bool:
    return outcome.score is not None and outcome.score.status is ScoreStatus.no_answer


def _letter(answer: Any) -> str | None:
    return answer if isinstance(answer, str) and answer in tuple(ascii_uppercase) else None


def _total_variation(ours: Sequence[str], theirs: Sequence[str]) -> float:
    a, b = Counter(ours), Counter(theirs)
    return sum(abs(a[x] / len(ours) - b[x] / len(theirs)) for x in a.keys() | b.keys()) / 2
