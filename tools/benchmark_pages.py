"""Write `docs/benchmarks/<name>.md` from `conf/benchmark/<name>.yaml`, a page for each benchmark.

A page says where the benchmark is had, how its files lie, what the official protocol is and where
ours differs. `--check` only says whether the pages are current.
"""

import argparse
import sys
from pathlib import Path

from easyvideor1.evaluate.benchmark_config import Rule
from easyvideor1.evaluate.config import BenchmarkConfig, EvaluateConfig, register
from easyvideor1.schema.conf import compose, conf_dir

PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
HEADER = "<!-- Written by `make docs` from conf/benchmark/{name}.yaml; change that file. -->\n"


def described() -> dict[str, BenchmarkConfig]:
    """The benchmarks that say what they are, by name."""
    register()
    names = sorted(path.stem for path in (conf_dir() / "benchmark").glob("*.yaml"))
    chosen = [name for name in names if name != "all"]
    config = compose("evaluate", [f"benchmark=[{','.join(chosen)}]"], EvaluateConfig)
    return {name: one for name, one in sorted(config.benchmarks.items()) if one.about.title}


def render(name: str, config: BenchmarkConfig) -> str:
    """The page of one benchmark."""
    about = config.about
    count = "not checked" if config.num_samples is None else f"{config.num_samples:,}"
    lines = [
        HEADER.format(name=name),
        f"# {about.title}",
        "",
        f"`benchmark={name}`, {about.paper}.",
    ]
    lines += [f"Questions: {count}.", ""]
    lines += ["## Where to get it", "", *(f"- {step}" for step in about.get), ""]
    lines += [f"Below `{config.data.media_root}/`, or where `benchmarks.{name}.data` says:", ""]
    lines += ["```text", about.files, "```", ""]
    lines += ["EasyVideoR1's converted JSON is read too; it is told by its fields.", ""]
    lines += ["## Protocol", "", *(f"- {fact}" for fact in about.protocol), ""]
    lines += [*prompts(config), *reading(config), *settings(config)]
    if config.published:
        lines += [
            "## Published scores",
            "",
            "| model | metric | score | source |",
            "|---|---|--:|---|",
        ]
        lines += [
            f"| {p.model} | {p.metric} | {p.value:g} | {p.source} |" for p in config.published
        ]
        lines += [""]
    lines += ["## Deviations", "", config.notes or "None known.", ""]
    return "\n".join(lines)


def prompts(config: BenchmarkConfig) -> list[str]:
    """What the model is asked."""
    prompt = config.prompt
    texts = {
        f"Where `{' '.join(prompt.by)}` is `{value}`:": text for value, text in prompt.texts.items()
    }
    if prompt.text is not None:
        texts["Of other questions:" if texts else "The model is asked:"] = prompt.text
    if not texts:
        return ["The model is asked the question with the instruction of its problem type.", ""]
    shown = [
        line for head, text in texts.items() for line in (head, "", "```text", text, "```", "")
    ]
    option = prompt.option.format(letter="A", text="text")
    return [*shown, f"An option is shown as `{option}`.", ""]


def reading(config: BenchmarkConfig) -> list[str]:
    """How an answer is read by the official rule."""
    extractor = config.extractor
    if extractor.rule is Rule.strict:
        return ["Answers have no official reading; the strict one counts.", ""]
    details = f" of `{extractor.letters}`" if extractor.letters else ""
    return [
        f"Official reading: `{extractor.rule.value}`{details}, from {extractor.source}. "
        "The strict reading is reported beside it.",
        "",
    ]


def settings(config: BenchmarkConfig) -> list[str]:
    """Frames, generation, metric and categories."""
    video, generation = config.budget.video, config.generation
    total = f", {video.total_pixels:,} pixels in all" if video.total_pixels else ""
    groups = ", ".join(f"`{field}`" for field in config.group_by) or "none"
    return [
        "| | |",
        "|---|---|",
        f"| frames | {video.fps:g} fps, {video.min_frames} to {video.max_frames}, "
        f"at most {video.max_pixels:,} pixels each{total} |",
        f"| generation | temperature {generation.temperature:g}, top_p {generation.top_p:g}, "
        f"top_k {generation.top_k}, presence penalty {generation.presence_penalty:g}, "
        f"{generation.max_new_tokens:,} tokens |",
        f"| metric | `{config.metric.value}` |",
        f"| broken down by | {groups} |",
        "",
    ]


def overview(benchmarks: dict[str, BenchmarkConfig]) -> str:
    """The list of all pages."""
    rows = [
        f"| [{one.about.title}]({name}.md) | `{name}` | "
        f"{'-' if one.num_samples is None else f'{one.num_samples:,}'} | `{one.metric.value}` |"
        for name, one in benchmarks.items()
    ]
    head = ["# Benchmarks", "", "| | `benchmark=` | questions | metric |", "|---|---|--:|---|"]
    return "\n".join([HEADER.format(name="*"), *head, *rows, ""])


def pages() -> dict[Path, str]:
    """Path and text of each page."""
    benchmarks = described()
    texts = {PAGES / f"{name}.md": render(name, one) for name, one in benchmarks.items()}
    return texts | {PAGES / "index.md": overview(benchmarks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    arguments = parser.parse_args()
    wanted = pages()
    stale = [path for path in PAGES.glob("*.md") if path not in wanted]
    if arguments.check:
        stale += [p for p, text in wanted.items() if not p.exists() or p.read_text() != text]
        if stale:
            sys.exit(f"docs/benchmarks/{stale[0].name} is not what its YAML says: run `make docs`")
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
