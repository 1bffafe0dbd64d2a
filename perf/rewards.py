"""`mc_overhead`, `math_overhead`: what the rewards add to the bare comparison they are built on.

The baseline of `mc_overhead` is one regular expression that takes a letter out of an answer tag,
and `==`; that of `math_overhead` is math-verify's own `parse` of gold and answer and its `verify`.
Both sides read the same answers on one core: each run has answers of its own, so that no cache
helps. `ratio` is ours over the baseline, as the word overhead says, so less is better. `detail`
holds answers per second and core for every problem type, scored in batches as training does it.
"""

import json
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from easyvideor1.rewards import RewardConfig, render_gold, score_many
from easyvideor1.rewards.workers import load_tasks
from easyvideor1.schema.records import Answer, ProblemType, Sample

NUM_RUNS = 5
NUM_CHOICES = 20_000
NUM_EXPRESSIONS = 400
RATE_S = 2.0
"""How long the rate of a type is measured."""
ONE_CORE = RewardConfig(workers=1)

Item = tuple[Sample, str]
REASON = "<think>The clip shows a man who opens the door and picks up the cup.</think>\n"


def question(problem_type: ProblemType, answer: Answer, options: tuple[str, ...] = ()) -> Sample:
    return Sample(id="q", problem="?", answer=answer, problem_type=problem_type, options=options)


def timed(job: Callable[[list[Item]], list[float]], items: list[Item]) -> tuple[float, list[float]]:
    """Seconds that `job` takes, and what it returns."""
    start = time.perf_counter()
    result = job(items)
    return time.perf_counter() - start, result


def accuracies(items: Sequence[Item]) -> list[float]:
    return [score.parts["accuracy"] for score in score_many(items, ONE_CORE)]


# --- multiple choice ----------------------------------------------------------------------------

LETTER = re.compile(r"<answer>\s*([A-Z])\s*</answer>")
OPTIONS = ("Sits down", "Picks up the cup", "Leaves", "Turns around")


def choices(rng: random.Random) -> list[Item]:
    return [
        (
            question(ProblemType.multiple_choice, rng.choice("ABCD"), OPTIONS),
            f"{REASON}<answer>{rng.choice('ABCD')}</answer>",
        )
        for _ in range(NUM_CHOICES)
    ]


def match_letters(items: Sequence[Item]) -> list[float]:
    return [
        float((match := LETTER.search(text)) is not None and match[1] == sample.answer)
        for sample, text in items
    ]


# --- math ---------------------------------------------------------------------------------------


def expressions(rng: random.Random) -> list[Item]:
    """Right and wrong answers in forms that need sympy, each with a gold answer of its own."""
    items = []
    for _ in range(NUM_EXPRESSIONS):
        a, b, c = (rng.randrange(2, 10_000) for _ in range(3))
        gold, right = rng.choice(
            [
                (rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{2 * a}}}{{{2 * b}}}"),
                (rf"\sqrt{{{a * a}}}", f"{a}"),
                (rf"{a}\pi", rf"\pi \cdot {a}"),
                (rf"\{{{a}, {b}, {c}\}}", rf"\{{{c}, {a}, {b}\}}"),
                (f"{a}x + {b}", f"{b} + {a}x"),
                (rf"\left({a}, {a + b}\right]", f"({a}, {a + b}]"),
                (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{b}}} \cdot {a}"),
                (f"x = {a}.5", rf"\frac{{{2 * a + 1}}}{{2}}"),
            ]
        )
        answer = right if rng.random() < 0.6 else right.replace(str(a), str(a + 1))
        items.append((question(ProblemType.math, gold), f"<answer>${answer}$</answer>"))
    return items


def bare_math_verify(items: Sequence[Item]) -> list[float]:
    from math_verify import LatexExtractionConfig, parse, verify

    # Without its timeouts, which our pool of processes replaces.
    config: Any = {"extraction_config": [LatexExtractionConfig()], "parsing_timeout": None}
    verdicts = []
    for sample, text in items:
        answer = text.removeprefix("<answer>").removesuffix("</answer>")
        gold = parse(f"${sample.answer}$", **config)
        found = parse(answer, **config)
        verdicts.append(float(verify(gold, found, timeout_seconds=None)))
    return verdicts


# --- rates --------------------------------------------------------------------------------------

TRACK = {str(second): [10, 20, 110 + second, 220] for second in range(8)}
SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='64' height='64'>{}</svg>"
TEXT = "A man in a red jacket rides a bike down the street, stops at a light and waves."
EXAMPLES: dict[ProblemType, tuple[Answer, str]] = {
    ProblemType.multiple_choice: ("B", "A"),
    ProblemType.numerical: (1234.5, "1,234"),
    ProblemType.regression: (12.5, "about 13 metres"),
    ProblemType.temporal_grounding: ([4, 8], '{"time": [2.5, 6.5]}'),
    ProblemType.spatial_temporal_grounding: (
        {"time": [0, 7], "boxes": TRACK},
        json.dumps({"time": [1, 7], "boxes": dict(list(TRACK.items())[1:])}),
    ),
    ProblemType.spatial_grounding: ([10, 20, 110, 220], '{"boxes": [12, 22, 100, 230]}'),
    ProblemType.tracking: ({"boxes": TRACK}, json.dumps({"boxes": dict(list(TRACK.items())[1:])})),
    ProblemType.open_ended: (TEXT, "A cyclist in red rides along a street and waves at a light."),
    ProblemType.math: (r"\frac{1}{2}", r"\frac{3}{6}"),
    ProblemType.ocr: (TEXT, TEXT.replace("jacket", "packet")),
    ProblemType.boolean: (True, "no"),
    ProblemType.code: (
        {"language": "python", "entry": "add", "tests": ["assert add(1, 2) == 3"]},
        "def add(a, b):\n    return a - b",
    ),
    ProblemType.svg_code: (
        SVG.format("<rect width='32' height='64' fill='red'/>"),
        SVG.format("<circle cx='32' cy='32' r='20' fill='red'/>"),
    ),
    ProblemType.html_code: ("<p>Hello <b>world</b></p>", "<p>Hello <i>there</i></p>"),
    ProblemType.preference: ("Response 2", "Response 1"),
}
"""Of each type a gold answer and one that is not."""


def rate(problem_type: ProblemType) -> float:
    """Answers per second and core; half of them are right."""
    gold, other = EXAMPLES[problem_type]
    sample = question(problem_type, gold, OPTIONS if problem_type == "multiple_choice" else ())
    items = [
        (sample, REASON + render_gold(sample)),
        (sample, f"{REASON}<answer>{other}</answer>"),
    ]
    score_many(items, ONE_CORE)
    count, size, start = 0, 2, time.perf_counter()
    while (spent := time.perf_counter() - start) < RATE_S:
        scores = score_many(items * (size // 2), ONE_CORE)
        assert {score.status.value for score in scores} == {"ok"}, scores[:2]
        count += len(scores)
        size = min(2 * size, 10_000)
    return count / spent


# ------------------------------------------------------------------------------------------------


def compare(
    claim: str,
    make_items: Callable[[random.Random], list[Item]],
    bare: Callable[[list[Item]], list[float]],
) -> dict[str, object]:
    """Time both sides alternately, on answers of each run's own; they must agree about them."""
    ours: list[float] = []
    baseline: list[float] = []
    for job in (accuracies, bare):
        job(make_items(random.Random("first")))
    for run in range(NUM_RUNS):
        items = make_items(random.Random(f"{claim}/{run}"))
        our_s, our_results = timed(accuracies, items)
        bare_s, bare_results = timed(bare, items)
        assert our_results == bare_results, claim
        ours.append(our_s)
        baseline.append(bare_s)
    ours_s, baseline_s = statistics.median(ours), statistics.median(baseline)
    return {
        "claim": claim,
        "ratio": ours_s / baseline_s,
        "ours_s": ours_s,
        "baseline_s": baseline_s,
        "detail": {"ours": ours, "baseline": baseline, "threads": 1, "nproc": os.cpu_count()},
    }


def main() -> None:
    load_tasks()
    rates = {kind.value: round(rate(kind), 1) for kind in ProblemType}
    for result in (
        compare("mc_overhead", choices, match_letters),
        compare("math_overhead", expressions, bare_math_verify),
    ):
        detail = result["detail"]
        assert isinstance(detail, dict)
        detail["answers_per_s_per_core"] = rates
        print(json.dumps(result))


if __name__ == "__main__":
    main()
