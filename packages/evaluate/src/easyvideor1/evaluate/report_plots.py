"""Plots of the report as SVG text: answer lengths by verdict, accuracy by what a question has.

Drawn without a library, so that the page needs no script for them; colours are the page's. Bars
carry their numbers as titles, for the pointer and for screen readers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from easyvideor1.evaluate.aggregates import mean_accuracy
from easyvideor1.evaluate.metrics import interval_95
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.report_questions import verdict

WIDTH, HEIGHT = 440, 190
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 34
MAX_BINS = 8
LENGTH_BINS = 20
VERDICTS = ("right", "partly", "wrong", "failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bin:
    """Outcomes whose values lie from `low` to `high`."""

    low: float
    high: float
    outcomes: list[Outcome]


def bins_of(outcomes: Sequence[Outcome], value_of: Callable[[Outcome], float | None]) -> list[Bin]:
    """Up to `MAX_BINS` bins of about as many outcomes each; equal values share a bin.

    Outcomes without a value are left out.
    """
    pairs = [(value, outcome) for outcome in outcomes if (value := value_of(outcome)) is not None]
    pairs.sort(key=lambda pair: pair[0])
    if not pairs:
        return []
    wanted = len(pairs) / MAX_BINS
    bins: list[list[tuple[float, Outcome]]] = [[]]
    for place, pair in enumerate(pairs):
        full = place >= wanted * len(bins)
        if bins[-1] and full and pair[0] != bins[-1][-1][0]:
            bins.append([])
        bins[-1].append(pair)
    return [
        Bin(low=part[0][0], high=part[-1][0], outcomes=[outcome for _, outcome in part])
        for part in bins
    ]


def accuracy_by(
    outcomes: Sequence[Outcome], value_of: Callable[[Outcome], float | None], name: str
) -> str:
    """Mean accuracy in bins of a value, with the 95 % interval clustered by video; "" for none."""
    bins = bins_of(outcomes, value_of)
    if not bins:
        return ""
    step = (WIDTH - LEFT - RIGHT) / len(bins)
    marks = []
    for place, part in enumerate(bins):
        accuracy, interval = mean_accuracy(part.outcomes), interval_95(part.outcomes)
        around = f", {_percent(interval[0])} to {_percent(interval[1])}" if interval else ""
        title = (
            f"{_range(part)} {name}: {_percent(accuracy)} of {len(part.outcomes)} answers{around}"
        )
        x, middle = LEFT + place * step, LEFT + (place + 0.5) * step
        marks.append(_bar(x + 0.15 * step, 0.7 * step, 0.0, accuracy, "right", title))
        if interval:
            marks.append(
                f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" '
                f'y1="{_y(interval[0]):.1f}" y2="{_y(interval[1]):.1f}"/>'
            )
        marks.append(_text(middle, HEIGHT - BOTTOM + 14, _range(part), "middle"))
    axis = [(share, _percent(share)) for share in (0.0, 0.5, 1.0)]
    return _svg(f"Accuracy by {name}", axis, marks, name)


def answer_lengths(outcomes: Sequence[Outcome]) -> str:
    """Histogram of tokens in an answer, by verdict; "" where nothing was answered."""
    lengths = [
        (len(o.prediction.token_ids), verdict(o)) for o in outcomes if o.prediction and o.score
    ]
    if not lengths:
        return ""
    width = max(1, -(-(max(length for length, _ in lengths) + 1) // LENGTH_BINS))
    counts = Counter((length // width, kind) for length, kind in lengths)
    num_bins = max(place for place, _ in counts) + 1
    totals = Counter(length // width for length, _ in lengths)
    highest = max(totals.values())
    step = (WIDTH - LEFT - RIGHT) / num_bins
    marks = []
    for place in range(num_bins):
        base = 0
        for kind in VERDICTS:
            if count := counts[place, kind]:
                title = f"{place * width} to {(place + 1) * width - 1} tokens: {count} {kind}"
                low, high = base / highest, (base + count) / highest
                marks.append(_bar(LEFT + place * step, 0.9 * step, low, high, kind, title))
                base += count
    for place in sorted({0, num_bins // 2, num_bins - 1}):
        middle = LEFT + (place + 0.45) * step
        marks.append(_text(middle, HEIGHT - BOTTOM + 14, str(place * width), "middle"))
    return _svg("Answer lengths", [(0.0, "0"), (1.0, str(highest))], marks, "tokens of the answer")


def _svg(title: str, axis: Sequence[tuple[float, str]], marks: Sequence[str], name: str) -> str:
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(at):.1f}" '
        f'y2="{_y(at):.1f}"/>{_text(LEFT - 6, _y(at) + 4, label, "end")}'
        for at, label in axis
    )
    under = _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, name, "middle")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{grid}{''.join(marks)}{under}</svg>"
    )


def _bar(x: float, width: float, low: float, high: float, kind: str, title: str) -> str:
    """From `low` to `high`, shares of the plot's height."""
    return (
        f'<rect class="{kind}" x="{x:.1f}" width="{width:.1f}" y="{_y(high):.1f}" '
        f'height="{_y(low) - _y(high):.1f}"><title>{escape(title)}</title></rect>'
    )


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _range(part: Bin) -> str:
    low, high = f"{part.low:.0f}", f"{part.high:.0f}"
    return low if low == high else f"{low}–{high}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
