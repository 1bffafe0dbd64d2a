"""Run the measurements in perf/ and keep what they print: `make perf [ONLY="decode cache"]`.

A measurement is a script that prints one JSON line per claim. They run one after the other, each in
a process of its own, so that none disturbs another. Results go to perf/results.jsonl, one line per
claim, and as a table to docs/performance.md.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PERF = Path(__file__).resolve().parent
RESULTS = PERF / "results.jsonl"
PAGE = PERF.parent / "docs" / "performance.md"

HEADER = """\
# Measurements

<!-- Written by `make perf`. Edit the scripts in perf/, not this page. -->

Each row compares two ways to do the same thing, measured side by side in one run on one machine.
The ratio is what counts: seconds depend on the machine. `perf/README.md` says how they are made.

| claim | ratio | ours (s) | baseline (s) | measured by |
|---|---|---|---|---|
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of a measurement's output."""

    claim: str
    ratio: float
    ours_s: float
    baseline_s: float
    detail: dict[str, Any]
    script: str


def scripts(names: list[str]) -> list[Path]:
    """All measurements, or those named by their file's stem."""
    found = {path.stem: path for path in sorted(PERF.glob("*.py")) if path.stem != "collect"}
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SystemExit(f"no perf/{unknown[0]}.py; there are: {', '.join(found) or 'none'}")
    return [found[name] for name in names] if names else list(found.values())


def parse(output: str, script: str) -> list[Result]:
    """The claims among the lines of a script's output."""
    results: list[Result] = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        fields: dict[str, Any] = json.loads(line)
        if "claim" in fields:
            results.append(Result(**fields, script=script))
    return results


def measure(path: Path) -> list[Result]:
    """Run one script; an exit status other than 0, or no claim, is an error."""
    print(f"perf/{path.name} …", flush=True)
    done = subprocess.run(
        [sys.executable, path], cwd=PERF.parent, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"perf/{path.name} ended with status {done.returncode}")
    results = parse(done.stdout, path.name)
    if not results:
        raise RuntimeError(f"perf/{path.name} printed no claim")
    for result in results:
        print(f"  {result.claim}: {result.ratio:.2f}", flush=True)
    return results


def stored() -> list[Result]:
    if not RESULTS.exists():
        return []
    return [Result(**json.loads(line)) for line in RESULTS.read_text().splitlines()]


def store(new: list[Result]) -> None:
    """Replace the claims measured now; keep the others."""
    merged = {result.claim: result for result in [*stored(), *new]}
    kept = sorted(merged.values(), key=lambda result: result.claim)
    RESULTS.write_text("".join(json.dumps(asdict(result)) + "\n" for result in kept))
    rows = [
        f"| {r.claim} | {r.ratio:.2f} | {r.ours_s:.3g} | {r.baseline_s:.3g} | `perf/{r.script}` |\n"
        for r in kept
    ]
    PAGE.write_text(HEADER + "".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="stems of the scripts to run; all if none")
    results: list[Result] = []
    failures: list[str] = []
    for path in scripts(parser.parse_args().names):
        try:
            results += measure(path)
        except RuntimeError as error:
            failures.append(str(error))
    if results:
        store(results)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
