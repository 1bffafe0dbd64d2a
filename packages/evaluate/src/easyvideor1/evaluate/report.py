"""`report.html`: one self-contained page with the numbers and, per question, what the model saw.

Takes one or several evaluations. Tables and plots stand in the page; the questions are data that
`templates/report.js` shows as they are looked at, see `report_questions`. It asks for nothing from
anywhere and opens from the disk.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easyvideor1.evaluate.aggregates import by_field
from easyvideor1.evaluate.config import ReportConfig
from easyvideor1.evaluate.metrics import interval_95
from easyvideor1.evaluate.outcome import Outcome
from easyvideor1.evaluate.report_plots import accuracy_by, answer_lengths
from easyvideor1.evaluate.report_questions import QuestionBlocks, Section, script_json, watched_s

__all__ = ["Section", "headlines", "write_report"]

Interval = tuple[float, float] | None

MEANS = ("accuracy", "mIoU", "m_vIoU")
"""Official numbers that are the mean over all answers, unless a metric leaves some out."""


def write_report(path: Path, sections: Sequence[Section], config: ReportConfig) -> None:
    """Write the page to `path`.

    Args:
        path: of the HTML file.
        sections: evaluations, in order.
        config: how many frames and how much text to show.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("easyvideor1.evaluate"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["percent"] = _percent
    environment.filters["signed"] = _signed
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    blocks = QuestionBlocks(config, len(sections))
    for section in sections:
        blocks.add(section)
    page = environment.get_template("report.html.j2").render(
        sections=[_shown(section) for section in sections],
        questions=Markup(script_json(blocks.questions)),
        frames=[Markup(block) for block in blocks.frames],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _shown(section: Section) -> dict[str, Any]:
    from markupsafe import Markup

    outcomes = section.outcomes
    plots = {
        "Answer lengths, by verdict": answer_lengths(outcomes),
        "Accuracy by answer length": accuracy_by(outcomes, _answer_tokens, "tokens"),
        "Accuracy by time watched": accuracy_by(
            outcomes, watched_s, "seconds from the first to the last frame"
        ),
    }
    return {
        "title": section.title,
        "summary": section.summary,
        "protocol": section.protocol,
        "headlines": headlines(section.summary),
        "intervals": {
            name: {value: interval_95(part) for value, part in by_field(outcomes, name).items()}
            for name in section.summary["by"]
        },
        "plots": {title: Markup(svg) for title, svg in plots.items() if svg},
    }


def _answer_tokens(outcome: Outcome) -> int | None:
    return len(outcome.prediction.token_ids) if outcome.prediction and outcome.score else None


def headlines(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each official number: by both readings, its interval, and the published scores.

    The interval is that of the mean accuracy, so a number that is another statistic has none; the
    interval of a difference takes the published score as given.
    """
    rows = []
    for name, value in summary["official"].items():
        is_mean = name in MEANS and value == summary["accuracy"]
        interval: Interval = summary["accuracy_interval_95"] if is_mean else None
        rows.append(
            {
                "metric": name,
                "official": value,
                "strict": summary["strict"].get(name),
                "interval": interval,
                "published": [
                    row | {"interval": _minus(interval, row["value"])}
                    for row in summary["published"]
                    if row["metric"] == name
                ],
            }
        )
    return rows


def _minus(interval: Interval, value: float) -> Interval:
    return None if interval is None else (interval[0] - value, interval[1] - value)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f}"
