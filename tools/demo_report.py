"""The page that `make demo` ends with: accuracies, the course of training, and where time went.

One self-contained HTML file; the frames each model saw are in the evaluation reports it links to.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

MODELS = {
    "random_init": "random weights",
    "before": "after the warm start, before GRPO",
    "after": "after GRPO",
    "warm_start_only": "as many supervised updates instead of GRPO",
    "without_video": "after GRPO, frames blanked",
}


def write_report(
    path: Path,
    summary: dict[str, Any],
    evaluations: dict[str, dict[str, Any]],
    metrics: Sequence[dict[str, Any]],
) -> None:
    """Write the page.

    Args:
        path: of the HTML file.
        summary: what `summary.json` holds.
        evaluations: by model, then by benchmark: the summary that `evr-evaluate` wrote.
        metrics: rows of the training run's `metrics.jsonl`.
    """
    steps = [row for row in metrics if "reward/policy" in row]
    rows = [
        {
            "label": label,
            "accuracy": summary[f"accuracy_{name}"],
            "by_type": evaluations[name]["toybox"]["by_type"],
            "link": _link(path, evaluations[name]["toybox"]),
        }
        for name, label in MODELS.items()
    ]
    page = Environment(autoescape=True).from_string(PAGE)
    path.write_text(
        page.render(
            summary=summary,
            rows=rows,
            types=list(evaluations["after"]["toybox"]["by_type"]),
            real=evaluations["after"].get("real_clips"),
            real_link=_link(path, evaluations["after"]["real_clips"]),
            curves=[
                curve("reward", [(row["step"], row["reward/policy"]) for row in steps]),
                curve("accuracy", [(row["step"], row["reward/policy/accuracy"]) for row in steps]),
            ],
        )
    )


def _link(page: Path, benchmark: dict[str, Any]) -> str:
    return os.path.relpath(Path(benchmark["folder"]) / "report.html", page.parent)


def curve(name: str, points: list[tuple[float, float]]) -> dict[str, Any]:
    """Points scaled to a 400 x 120 drawing with y from 0 to 1, y downwards as in SVG."""
    last = max((x for x, _ in points), default=1.0)
    scaled = " ".join(f"{400 * x / last:.1f},{120 * (1 - y):.1f}" for x, y in points)
    return {"name": name, "points": scaled, "first": points[0][1], "last": points[-1][1]}


PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>EasyVideoR1 demo</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; margin: 2rem auto; max-width: 60rem;
         padding: 0 1rem; }
  h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
  table { border-collapse: collapse; width: 100%; }
  th, td { padding: .35rem .6rem; border-bottom: 1px solid #dde3ea; text-align: right; }
  th:first-child, td:first-child { text-align: left; }
  .bar { background: #e8edf3; height: .8rem; min-width: 10rem; position: relative; }
  .bar i { background: #2f6db3; display: block; height: 100%; }
  .bar b { position: absolute; top: -.2rem; bottom: -.2rem; width: 2px; background: #c2410c; }
  .curves { display: flex; gap: 2rem; flex-wrap: wrap; }
  svg { background: #f5f7fa; overflow: visible; }
  polyline { fill: none; stroke: #2f6db3; stroke-width: 2; }
  .note { color: #55606e; }
</style>
<h1>EasyVideoR1 demo</h1>
<p>{{ summary.clips_cached }} clips were decoded once into the cache;
  {{ summary.grpo_steps }} GRPO steps followed an unfinished warm start, and training decoded
  {{ summary.decodes_during_training }} clips again. All models answered the same
  {{ summary.questions }} held-out questions with discrete answers, greedily.</p>
<h2>Accuracy on held-out clips</h2>
<table>
  <tr><th>model</th><th></th><th>accuracy</th><th>answers</th></tr>
  {% for row in rows %}
  <tr><td>{{ row.label }}</td>
    <td><div class="bar"><i style="width:{{ '%.1f' % (100 * row.accuracy) }}%"></i>
      <b style="left:{{ '%.1f' % (100 * summary.chance) }}%"></b></div></td>
    <td>{{ '%.3f' % row.accuracy }}</td>
    <td><a href="{{ row.link }}">with frames</a></td></tr>
  {% endfor %}
</table>
<p class="note">The mark is the best constant answer per type: {{ '%.3f' % summary.chance }}.</p>
<h2>By problem type</h2>
<table>
  <tr><th>model</th>{% for type in types %}<th>{{ type.replace('_', ' ') }}</th>{% endfor %}</tr>
  {% for row in rows %}
  <tr><td>{{ row.label }}</td>
    {% for type in types %}<td>{{ '%.3f' % row.by_type[type].accuracy }}</td>{% endfor %}</tr>
  {% endfor %}
</table>
<p class="note">Temporal grounding is mean IoU, open-ended answers are mean ROUGE F1.</p>
<h2>Training</h2>
<div class="curves">
  {% for curve in curves %}
  <figure><svg width="400" height="120"><polyline points="{{ curve.points }}"/></svg>
    <figcaption>{{ curve.name }} of sampled answers by step: {{ '%.2f' % curve.first }} to
      {{ '%.2f' % curve.last }}</figcaption></figure>
  {% endfor %}
</div>
<h2>Real clips</h2>
<p>The same model on {{ real.questions }} questions about real H.264 clips:
  accuracy {{ '%.3f' % real.accuracy }}. It has never seen a natural image, so this shows the path,
  not skill. <a href="{{ real_link }}">Answers with frames</a>.</p>
<h2>Seconds by phase</h2>
<table>
  {% for phase, seconds in summary.seconds.items() %}
  <tr><td>{{ phase.replace('_', ' ') }}</td><td>{{ '%.0f' % seconds }}</td></tr>
  {% endfor %}
</table>
</html>
"""
