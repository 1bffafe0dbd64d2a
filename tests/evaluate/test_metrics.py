"""Numbers of a benchmark against a second statement of their formulas."""

import json
import math
import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

from easyvideor1.evaluate import metrics
from easyvideor1.evaluate.aggregates import (
    mlvu,
    temporal_grounding,
    video_mme_v2,
    video_mmmu,
    videomathqa,
)
from easyvideor1.evaluate.benchmark_config import Metric
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.scoring import score_predictions
from easyvideor1.rewards import RewardConfig
from easyvideor1.schema.records import (
    Media,
    MediaKind,
    Prediction,
    PredictionStatus,
    ProblemType,
    Sample,
)


def sample(
    name: str, answer: Any, kind: ProblemType = ProblemType.multiple_choice, **fields: Any
) -> Sample:
    video = fields.pop("video", name)
    return Sample(
        id=name,
        problem="?",
        answer=answer,
        problem_type=kind,
        options=("w", "x", "y", "z") if kind is ProblemType.multiple_choice else (),
        media=(Media(kind=MediaKind.video, path=f"{video}.mp4"),),
        **fields,
    )


def prediction(name: str, text: str = "", **fields: Any) -> Prediction:
    defaults: dict[str, Any] = {"status": PredictionStatus.ok}
    return Prediction(fingerprint="f", sample_id=name, text=text, **defaults | fields)


def outcomes(samples: list[Sample], predictions: list[Prediction], repeats: int = 1):
    return score_predictions(samples, predictions, repeats=repeats, reward=RewardConfig())


def test_what_failed_stays_in_the_denominator() -> None:
    samples = [sample(name, "A", category="even" if name in "bd" else "odd") for name in "abcde"]
    answered = [
        prediction("a", "<answer>A</answer>"),
        prediction("b", "<answer>B</answer>"),
        prediction("c", status=PredictionStatus.load_failed, error="gone"),
        prediction("d", "<answer>A</answer>", status=PredictionStatus.truncated),
    ]
    summary = metrics.summarize(outcomes(samples, answered), Metric.accuracy, ["category"])
    assert summary["official"] == {"accuracy": 2 / 5}
    assert summary["questions"] == 5 and summary["coverage"] == 3 / 5
    assert summary["statuses"] == {"load_failed": 1, "missing": 1, "ok": 2, "truncated": 1}
    assert summary["by"]["category"]["odd"] == {"questions": 3, "accuracy": 1 / 3}
    assert summary["by"]["category"]["even"] == {"questions": 2, "accuracy": 1 / 2}


def test_an_empty_answer_is_wrong_and_counted_as_no_answer() -> None:
    summary = metrics.summarize(
        outcomes([sample("a", "A")], [prediction("a", "")]), Metric.accuracy, []
    )
    assert summary["accuracy"] == 0 and summary["score_statuses"] == {"no_answer": 1}


def test_every_repeat_counts_as_one_answer() -> None:
    stored = [
        prediction("a", f"<answer>{letter}</answer>", repeat=i) for i, letter in enumerate("ABA")
    ]
    summary = metrics.summarize(
        outcomes([sample("a", "A")], stored, repeats=4), Metric.accuracy, []
    )
    assert summary["accuracy"] == 2 / 4 and summary["questions"] == 4


def grounding_by_hand(pairs: list[tuple[list[float], list[float] | None]]) -> dict[str, float]:
    """Recall at IoU and mean IoU, from intervals alone."""
    ious = []
    for (start, end), guess in pairs:
        if guess is None:
            ious.append(0.0)
            continue
        inter = max(0.0, min(end, guess[1]) - max(start, guess[0]))
        hull = max(end, guess[1]) - min(start, guess[0])
        apart = inter == 0.0
        union = (end - start) + (guess[1] - guess[0]) if apart else hull
        ious.append(inter / union)
    shares = {f"R@1 IoU={m}": sum(x >= m for x in ious) / len(ious) for m in (0.3, 0.5, 0.7)}
    return shares | {"mIoU": sum(ious) / len(ious)}


def test_grounding_metrics_are_those_of_the_formula() -> None:
    rng = random.Random(0)
    samples, answers, pairs = [], [], []
    for number in range(300):
        gold = sorted(rng.uniform(0, 30) for _ in range(2))
        guess = sorted(rng.uniform(0, 30) for _ in range(2)) if number % 7 else None
        if number % 11 == 0:
            guess = gold
        samples.append(sample(f"{number}", {"time": gold}, ProblemType.temporal_grounding))
        text = "no idea" if guess is None else f"<answer>{json.dumps({'time': guess})}</answer>"
        answers.append(prediction(f"{number}", text))
        pairs.append((gold, guess))
    found = temporal_grounding(outcomes(samples, answers))
    expected = grounding_by_hand(pairs)
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[name], expected[name], abs_tol=1e-9) for name in expected)


def test_an_iou_of_exactly_the_threshold_is_a_hit() -> None:
    samples = [sample("a", {"time": [0, 10]}, ProblemType.temporal_grounding)]
    answer = [prediction("a", '<answer>{"time": [0, 5]}</answer>')]
    found = temporal_grounding(outcomes(samples, answer))
    assert found == {"R@1 IoU=0.3": 1.0, "R@1 IoU=0.5": 1.0, "R@1 IoU=0.7": 0.0, "mIoU": 0.5}


def random_outcomes(rng: random.Random, videos: int, per_video: int) -> list[Outcome]:
    samples, answers = [], []
    for video in range(videos):
        share = rng.random()
        for question in range(per_video):
            name = f"{video}-{question}"
            samples.append(sample(name, "A", video=f"{video}"))
            answers.append(
                prediction(name, f"<answer>{'A' if rng.random() < share else 'B'}</answer>")
            )
    return outcomes(samples, answers)


def test_the_interval_is_as_wide_as_resampling_whole_videos_makes_it() -> None:
    rng = random.Random(1)
    rows = random_outcomes(rng, videos=60, per_video=5)
    by_video = [[o.accuracy for o in rows[i : i + 5]] for i in range(0, len(rows), 5)]
    means = [
        statistics.mean(x for group in rng.choices(by_video, k=60) for x in group)
        for _ in range(4000)
    ]
    low, high = metrics.interval_95(rows) or (0, 0)
    assert math.isclose((high - low) / 2, 1.96 * statistics.stdev(means), rel_tol=0.08)
    naive = 1.96 * math.sqrt(statistics.variance([o.accuracy for o in rows]) / len(rows))
    assert (high - low) / 2 > 1.3 * naive, "questions about one video are not independent"


def test_one_video_gives_no_interval() -> None:
    assert metrics.interval_95(random_outcomes(random.Random(0), 1, 4)) is None


@pytest.mark.parametrize(
    ("kind", "golds", "expected"),
    [
        (ProblemType.multiple_choice, ["A", "B", "B", "C"], 0.5),
        (ProblemType.boolean, [True, False, False, False], 0.75),
        (ProblemType.numerical, [1, 2, 3, 4], 0.25),
        (ProblemType.temporal_grounding, [{"time": [0, 4]}, {"time": [0, 2]}], 0.75),
    ],
)
def test_chance_is_the_best_constant_answer(
    kind: ProblemType, golds: list[Any], expected: float
) -> None:
    samples = [sample(f"{number}", gold, kind) for number, gold in enumerate(golds)]
    assert metrics.constant_answer_accuracy(samples) == expected


def test_chance_over_types_is_that_of_a_guesser_who_knows_the_type() -> None:
    samples = [
        *(sample(f"m{i}", letter) for i, letter in enumerate("AABC")),
        *(sample(f"b{i}", i == 0, ProblemType.boolean) for i in range(2)),
    ]
    summary = metrics.summarize(outcomes(samples, []), Metric.accuracy, [])
    assert summary["by_type"]["multiple_choice"]["chance"] == 0.5
    assert summary["chance"] == (0.5 * 4 + 0.5 * 2) / 6


def right_or_wrong(rows: list[tuple[Sample, bool | None]]) -> list[Outcome]:
    """Outcomes of questions answered rightly, wrongly, or (None) not at all."""
    answered = [prediction(s.id, s.answer if hit else "Z") for s, hit in rows if hit is not None]
    return outcomes([s for s, _ in rows], answered)


def test_a_question_that_lacks_a_pair_is_wrong() -> None:
    def pairs(name: str, count: int) -> list[tuple[Sample, bool | None]]:
        return [
            (
                replace(sample(f"{name}{i}", "A"), options=("x", "y"), extra={"question_id": name}),
                True,
            )
            for i in range(count)
        ]

    whole, short = pairs("a", 4), pairs("b", 3)
    assert videomathqa(right_or_wrong([*whole, *short])) == {"mbin": 0.5}
    unanswered = [*whole[:3], (whole[3][0], None)]
    assert videomathqa(right_or_wrong([*unanswered, *pairs("c", 4)])) == {"mbin": 0.5}


@pytest.mark.parametrize(
    ("structure", "hits", "score"),
    [
        ("[1,2,3,4]", (1, 1, 0, 1), 4 / 16),
        ("[1, [2, 3], 4]", (1, 0, 1, 1), 4 / 12),
        ("[1, [2, 3], 4]", (1, 1, 1, 0), 7 / 12),
        ("[1, [2, 3], 4]", (0, 1, 1, 1), 0.0),
        ("[[1, 2], 3, 4]", (0, 1, 1, 1), 1 / 10),
        ("[[1, 2], 3, 4]", (1, 1, 1, 0), 5 / 10),
        ("relevance", (1, 0, 1, 1), 9 / 16),
        ("relevance", (0, 0, 0, 0), 0.0),
    ],
)
def test_groups_score_by_their_structure_in_the_order_of_their_ids(
    structure: str, hits: tuple[int, ...], score: float
) -> None:
    kind = "relevance" if structure == "relevance" else "logic"
    about = {"video_id": "1", "group_type": kind, "group_structure": structure, "level": "2"}
    group = [
        (sample(f"001-{number + 8}", "A", video="1", extra=about), bool(hit))
        for number, hit in enumerate(hits)
    ]
    found = video_mme_v2(right_or_wrong(group[::-1]))
    assert found["Non-Lin"] == found["Level 2"] == pytest.approx(score)
    assert "Non-Lin" not in video_mme_v2(right_or_wrong(group[:3])), "no group without its four"


def test_a_mean_over_tasks_is_left_out_where_tasks_are_not_known() -> None:
    rows = [(sample(f"{i}", "A", extra={"file": "dev"}), i < 3) for i in range(4)]
    assert mlvu(right_or_wrong(rows)) == {"dev accuracy": 0.75}


def test_what_a_video_adds() -> None:
    kinds = ["Adaptation"] * 4 + ["Question only"] * 4 + ["Perception"] * 2
    hits = [True, True, True, False, True, False, False, False, True, False]
    rows = [
        (sample(f"{i}", "A", category=kind), hit)
        for i, (kind, hit) in enumerate(zip(kinds, hits, strict=True))
    ]
    found = video_mmmu(right_or_wrong(rows))
    assert found["Δknowledge"] == pytest.approx((0.75 - 0.25) / (1 - 0.25))
    assert found["accuracy"] == pytest.approx(4 / 6)
