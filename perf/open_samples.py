"""`open_one_million_samples`: opening a converted data file against parsing its JSON again.

One million rows in the shape of Video-R1. The baseline parses the JSONL file into dicts, which a
loader without a cache does at every start; ours opens the Arrow conversion, checks that ids are
unique and builds the first and the last sample. The conversion itself, done once, is in `detail`.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from easyvideor1.schema.readers import read_samples

NUM_ROWS = 1_000_000
NUM_RUNS = 5


def write_rows(path: Path) -> None:
    with path.open("w") as file:
        for number in range(NUM_ROWS):
            row = {
                "problem_id": number,
                "problem": f"What does the person in scene {number} do after opening the door?",
                "data_type": "video",
                "problem_type": "multiple choice",
                "options": ["A. Sits down", "B. Picks up the cup", "C. Leaves", "D. Turns around"],
                "solution": f"<answer>{'ABCD'[number % 4]}</answer>",
                "path": f"./part_{number % 100}/clip_{number:07d}.mp4",
                "data_source": "generated",
            }
            file.write(json.dumps(row) + "\n")


def parse(path: Path) -> None:
    with path.open("rb") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == NUM_ROWS


def open_converted(path: Path, cache_dir: Path) -> None:
    table = read_samples(path, cache_dir=cache_dir, progress=False)
    assert len(table) == NUM_ROWS
    assert (table[0].answer, table[-1].answer) == ("A", "D")


def seconds(job: Callable[..., None], *arguments: Path) -> float:
    start = time.perf_counter()
    job(*arguments)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, cache_dir = Path(folder) / "train.jsonl", Path(folder) / "cache"
        write_rows(path)
        conversion_s = seconds(open_converted, path, cache_dir)
        ours, baseline = [], []
        for _ in range(NUM_RUNS):
            ours.append(seconds(open_converted, path, cache_dir))
            baseline.append(seconds(parse, path))
    ours_s, baseline_s = statistics.median(ours), statistics.median(baseline)
    result = {
        "claim": "open_one_million_samples",
        "ratio": baseline_s / ours_s,
        "ours_s": ours_s,
        "baseline_s": baseline_s,
        "detail": {
            "ours": ours,
            "baseline": baseline,
            "conversion_s": conversion_s,
            "rows": NUM_ROWS,
            "threads": 1,
            "nproc": os.cpu_count(),
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
