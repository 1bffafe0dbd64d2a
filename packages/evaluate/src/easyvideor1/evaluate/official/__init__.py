"""The benchmarks' own ways to read and count an answer, one rule a script.

`score_official` applies the rule of a benchmark to stored texts and asks the judge of the rewards
where a script asks one. Text up to the last `</think>` does not count, as in Qwen's own evaluation.
"""

from collections.abc import Sequence

from easyvideor1.evaluate.benchmark_config import ExtractorConfig, Rule
from easyvideor1.evaluate.official import letters
from easyvideor1.evaluate.official.reading import OfficialRule, Reading, judged
from easyvideor1.rewards import RewardConfig, ScorerUnavailableError
from easyvideor1.rewards.judge import NoVerdictError, Ruling, judge_of
from easyvideor1.rewards.scoring import failure
from easyvideor1.schema.records import ProblemType, Sample, Score, ScoreStatus

__all__ = ["RULES", "Reading", "read", "score_official"]

LETTER_RULES: dict[Rule, OfficialRule] = {
    Rule.first_letter: letters.first_letter,
    Rule.last_letter: letters.last_letter,
    Rule.before_bracket: letters.before_bracket,
    Rule.polished: letters.polished,
    Rule.first_word: letters.first_word,
    Rule.marked_letter: letters.marked_letter,
    Rule.tagged_text: letters.tagged_text,
}
"""Of questions with options; a judge decides about free text beside them."""

RULES: dict[Rule, OfficialRule] = {**LETTER_RULES}
"""All but `strict`, which is no rule of a benchmark."""

THOUGHT_END = "</think>"


def read(text: str, sample: Sample, config: ExtractorConfig) -> Reading:
    """What the rule of a benchmark reads in a model's text."""
    text = text.rpartition(THOUGHT_END)[2]
    if config.rule in LETTER_RULES and sample.problem_type is ProblemType.open_ended:
        return judged(text, sample)
    return RULES[config.rule](text, sample, config)


def score_official(
    items: Sequence[tuple[Sample, str]], config: ExtractorConfig, reward: RewardConfig
) -> list[Score]:
    """The score of each (sample, text) by the rule of a benchmark, in order.

    An answer that only a judge can decide is `unavailable` and wrong where none is set.
    """
    readings = [read(text, sample, config) for sample, text in items]
    rulings = [_ask(reading, reward) for reading in readings]
    return [
        _score(reading, ruling, config) for reading, ruling in zip(readings, rulings, strict=True)
    ]


def _ask(reading: Reading, reward: RewardConfig) -> Ruling | None:
    if reading.judge is None or reward.judge.base_url is None:
        return None
    return judge_of(reward.judge).submit(reading.judge)


def _score(reading: Reading, ruling: Ruling | None, config: ExtractorConfig) -> Score:
    if reading.judge is None:
        status = ScoreStatus.no_answer if reading.extracted is None else ScoreStatus.ok
        return _scored(reading, reading.accuracy, status)
    if ruling is None:
        return failure(
            ScoreStatus.unavailable, "a judge decides, and reward.judge.base_url is not set"
        )
    try:
        verdict = ruling.verdict()
    except NoVerdictError as reason:
        return failure(ScoreStatus.no_verdict, str(reason))
    except ScorerUnavailableError as reason:
        return failure(ScoreStatus.unavailable, str(reason))
    grade = verdict if config.judge_from is None else float(verdict >= config.judge_from)
    return _scored(reading, grade, ScoreStatus.ok)


def _scored(reading: Reading, accuracy: float, status: ScoreStatus) -> Score:
    return Score(
        value=accuracy,
        parts={"accuracy": accuracy},
        status=status,
        extracted=reading.extracted,
    )
