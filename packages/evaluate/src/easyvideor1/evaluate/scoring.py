"""Stored texts to scores to `summary.json`: a pure step that needs no model and no media.

Reads predictions as they are stored, scores them with `easyvideor1.rewards`, writes `scores.jsonl`
(one row per answer) and the summary. Run at the end of an evaluation and by `job=score`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from easyvideor1.evaluate import metrics
from easyvideor1.evaluate.aggregates import field_values
from easyvideor1.evaluate.alarms import Alarm
from easyvideor1.evaluate.benchmark_config import ExtractorConfig, Rule
from easyvideor1.evaluate.config import BenchmarkConfig
from easyvideor1.evaluate.official import score_official
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.results import write_lines
from easyvideor1.rewards import RewardConfig, score_many
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.files import write_json
from easyvideor1.schema.records import Prediction, PredictionStatus, Sample, Score

TO_SCORE = frozenset({PredictionStatus.ok, PredictionStatus.truncated})


def score_predictions(
    samples: Sequence[Sample],
    predictions: Sequence[Prediction],
    *,
    repeats: int,
    reward: RewardConfig,
    extractor: ExtractorConfig | None = None,
    known: Mapping[tuple[str, str, int], Score] | None = None,
) -> list[Outcome]:
    """One outcome per question and repeat, in the order of the questions, answered or not.

    Args:
        samples: all questions of the benchmark.
        predictions: what is stored; others than these questions' are ignored.
        repeats: answers per question.
        reward: settings of scoring.
        extractor: the benchmark's own rule; None, or `strict`: it has none.
        known: strict scores already given to some of the predictions, by their key.
    """
    stored = {(p.sample_id, p.repeat): p for p in predictions}
    wanted = [
        (sample, stored.get((sample.id, repeat))) for sample in samples for repeat in range(repeats)
    ]
    to_score = [(sample, p) for sample, p in wanted if p and p.status in TO_SCORE]
    strict = _strict_scores(
        [item for item in to_score if not _only_rule_tells(item[0], extractor)], reward, known or {}
    )
    ruled = strict
    if extractor is not None and extractor.rule is not Rule.strict:
        scores = score_official([(sample, p.text) for sample, p in to_score], extractor, reward)
        ruled = {p.key: score for (_, p), score in zip(to_score, scores, strict=True)}
        strict = {key: _strictly(score) for key, score in ruled.items()} | strict
    return [
        Outcome(
            sample=sample,
            prediction=p,
            repeat=place % repeats,
            score=ruled.get(p.key) if p else None,
            strict=strict.get(p.key) if p else None,
        )
        for place, (sample, p) in enumerate(wanted)
    ]


def _only_rule_tells(sample: Sample, extractor: ExtractorConfig | None) -> bool:
    """Whether the benchmark's rule alone can score a question.

    There is no gold answer, or the rule reads strictly and reports more than one number.
    """
    if extractor is None or extractor.rule is Rule.strict:
        return False
    return sample.answer is None or extractor.rule is Rule.tube


def _strictly(score: Score) -> Score:
    """A score by the rule, with the accuracy that the rule itself calls strict, if it does."""
    if "strict" not in score.parts:
        return score
    accuracy = score.parts["strict"]
    return replace(score, value=accuracy, parts=score.parts | {"accuracy": accuracy})


def _strict_scores(
    items: Sequence[tuple[Sample, Prediction]],
    reward: RewardConfig,
    known: Mapping[tuple[str, str, int], Score],
) -> dict[tuple[str, str, int], Score]:
    """Scores by `easyvideor1.rewards`, by the key of the prediction; known ones are kept."""
    new = [(sample, p) for sample, p in items if p.key not in known]
    scores = score_many(
        [(sample, p.text) for sample, p in new],
        reward,
        num_tokens=[len(p.token_ids) for _, p in new],
    )
    kept = {p.key: known[p.key] for _, p in items if p.key in known}
    return kept | {p.key: score for (_, p), score in zip(new, scores, strict=True)}


def write_scores(folder: Path, outcomes: Sequence[Outcome], group_by: Sequence[str] = ()) -> None:
    """`scores.jsonl`: one row per question and repeat.

    Each says which video it is about and its values of the fields that the score is broken down
    by, so that two runs can be compared from these files alone.
    """
    rows = [
        {
            "sample_id": outcome.sample.id,
            "repeat": outcome.repeat,
            "status": outcome.status,
            "video": metrics.video_of(outcome.sample),
            "groups": {
                field: field_values(outcome.sample, field) for field in ("problem_type", *group_by)
            },
            "accuracy": outcome.accuracy,
            "strict_accuracy": outcome.strictly().accuracy,
            "score": to_plain(outcome.score) if outcome.score else None,
            "strict": to_plain(outcome.strict) if outcome.strict else None,
        }
        for outcome in outcomes
    ]
    write_lines(folder / "scores.jsonl", rows)


def write_summary(
    folder: Path,
    outcomes: Sequence[Outcome],
    benchmark: BenchmarkConfig,
    header: dict[str, Any],
    alarms: Sequence[Alarm] = (),
) -> dict[str, Any]:
    """`summary.json`: header, numbers, alarms, and published scores with the difference to ours."""
    numbers = metrics.summarize(outcomes, benchmark.metric, benchmark.group_by)
    official = numbers["official"]
    published = [
        {
            "model": row.model,
            "metric": row.metric,
            "value": row.value / 100,
            # None: the number needs fields that these questions lack.
            "difference": official[row.metric] - row.value / 100
            if row.metric in official
            else None,
            "source": row.source,
        }
        for row in benchmark.published
    ]
    expected = benchmark.num_samples
    complete = expected is None or len({o.sample.id for o in outcomes}) == expected
    told = {"published": published, "alarms": [asdict(alarm) for alarm in alarms]}
    summary = header | {"complete": complete} | numbers | told
    write_json(folder / "summary.json", summary)
    return summary
