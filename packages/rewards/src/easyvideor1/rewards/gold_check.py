"""Check a data set: every gold answer, written as a model would, must score 1. Called by `cli`.

What cannot be checked so is counted apart: hidden gold answers, answers that a judge decides, and
those that data hold in no form to answer with (code that is given by its tests alone).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tqdm import tqdm

from easyvideor1.rewards.batch import score_many
from easyvideor1.rewards.config import ScoreConfig
from easyvideor1.rewards.registry import GoldError, task_of
from easyvideor1.rewards.score_file import in_chunks
from easyvideor1.rewards.score_table import aligned
from easyvideor1.rewards.scoring import check_gold, render_gold
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Sample, Score

OUTCOMES = ("right", "wrong", "hidden", "not checked")


def check_data(config: ScoreConfig) -> int:
    """Print the samples whose gold answers do not score 1, and a table; return their number.

    Raises:
        UserError: no data are named, or they cannot be read.
    """
    sources = config.samples or ([] if config.input is None else [config.input])
    if not sources:
        raise UserError("job=check takes data files: samples=[FILE]")
    samples = read_samples(sources, format=config.format)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tqdm(total=len(samples), desc="check", unit="sample") as progress:
        for chunk in in_chunks(samples):
            for sample, (outcome, reason) in zip(chunk, _check(chunk, config), strict=True):
                counts[sample.problem_type.value][outcome] += 1
                if outcome == "wrong":
                    tqdm.write(f"{sample.id} ({sample.problem_type.value}): {reason}")
            progress.update(len(chunk))
    lines = [["problem_type", *OUTCOMES]]
    lines += [
        [name, *(str(counts[name][outcome]) for outcome in OUTCOMES)] for name in sorted(counts)
    ]
    print(aligned(lines))
    return sum(count["wrong"] for count in counts.values())


def _check(samples: Sequence[Sample], config: ScoreConfig) -> list[tuple[str, str]]:
    """Outcome and reason for each sample."""
    found: dict[int, tuple[str, str]] = {}
    texts: dict[int, str] = {}
    for place, sample in enumerate(samples):
        try:
            if sample.answer is None and not task_of(sample).needs_judge(sample, config.reward):
                found[place] = "hidden", ""
                continue
            check_gold(sample, config.reward)
        except UserError as error:
            found[place] = "wrong", str(error)
            continue
        try:
            if not task_of(sample).needs_judge(sample, config.reward):
                texts[place] = render_gold(sample, config.reward)
        except GoldError:
            pass  # usable, but there is no text of it
    lengths = [0] * len(texts)
    items = [(samples[place], text) for place, text in texts.items()]
    scores = score_many(items, config.reward, num_tokens=lengths)
    for (place, text), score in zip(texts.items(), scores, strict=True):
        found[place] = ("right", "") if _is_right(score) else ("wrong", _reason(text, score))
    return [found.get(place, ("not checked", "")) for place in range(len(samples))]


def _is_right(score: Score) -> bool:
    return score.parts["accuracy"] >= 1 - 1e-9 and score.parts["format"] == 1


def _reason(text: str, score: Score) -> str:
    shown = text if len(text) <= 200 else f"{text[:199]}…"
    accuracy, form = score.parts["accuracy"], score.parts["format"]
    detail = f", {score.detail}" if score.detail else ""
    return f"{shown} scores accuracy {accuracy:g}, format {form:g} ({score.status.value}{detail})"
