"""The benchmarks' own ways to read and count an answer, one rule a script.

`score_official` applies the rule of a benchmark to stored texts and asks the judge of the rewards
where a script asks one. Text up to the last `</think>` does not count, as in Qwen's own evaluation.
"""

from collections.abc import Sequence
from dataclasses import replace

from easyvideor1.evaluate.benchmark_config import ExtractorConfig, Rule
from easyvideor1.evaluate.official import grounded, letters, typed
from easyvideor1.evaluate.official.mmmu import mmmu
from easyvideor1.evaluate.official.reading import OfficialRule, Reading, judged, strict_or_judge
from easyvideor1.evaluate.official.simulated import videoreasonbench
from easyvideor1.rewards import RewardConfig, ScorerUnavailableError
from easyvideor1.rewards.judge import Grade, NoVerdictError, Ruling, judge_of
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
    Rule.first_character: typed.first_character,
    Rule.odv_bench: typed.odv_bench,
    Rule.videomathqa: letters.videomathqa,
}
"""Of questions with options; a judge decides about free text beside them."""

RULES: dict[Rule, OfficialRule] = {
    **LETTER_RULES,
    Rule.vsi_bench: typed.vsi_bench,
    Rule.ovo_bench: typed.ovo_bench,
    Rule.tempcompass: typed.tempcompass,
    Rule.mmmu: mmmu,
    Rule.interval: grounded.interval,
    Rule.tube: grounded.tube,
    Rule.vcr_bench: grounded.vcr_bench,
    Rule.videoreasonbench: videoreasonbench,
    Rule.judge: strict_or_judge,
}
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
    # All is asked before the first verdict is waited for.
    rulings = [(_ask(one.judge, reward), _ask(one.steps, reward)) for one in readings]
    return [
        _with_steps(_score(reading, decides, config), steps)
        for reading, (decides, steps) in zip(readings, rulings, strict=True)
    ]


def _ask(request: Grade | None, reward: RewardConfig) -> Ruling | None:
    if request is None or reward.judge.base_url is None:
        return None
    return judge_of(reward.judge).submit(request)


def _with_steps(score: Score, ruling: Ruling | None) -> Score:
    """The score with the grade of the reasoning; 0 where the judge gave none."""
    if ruling is None:
        return score
    try:
        grade = ruling.verdict()
    except (NoVerdictError, ScorerUnavailableError) as reason:
        return replace(score, parts=score.parts | {"steps": 0.0}, detail=str(reason))
    return replace(score, parts=score.parts | {"steps": grade})


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
        parts={"accuracy": accuracy, **reading.parts},
        status=status,
        extracted=reading.extracted,
    )
