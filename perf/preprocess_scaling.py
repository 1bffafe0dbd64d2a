"""`scaling`: filling a cache from 40 generated clips with two workers against one.

The clips are 16 s of 720p H.264 each; 64 frames of each are sampled and resized. Both sides go
through the whole engine into a fresh cache folder: planning, the lease, the start of workers and
their decoders, claims, decoding, sealing. Ray itself runs before the clock does, and one run that
does not count has read all files. One worker is the fair baseline: the same code, the same threads
per worker.
"""

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import imageio_ffmpeg

from easyvideor1.preprocess.config import CacheConfig, DecodeConfig, RayConfig
from easyvideor1.preprocess.decoders import resolve_decoder
from easyvideor1.preprocess.engine import cache_samples
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample

NUM_CLIPS = 40
NUM_RUNS = 5
WORKERS = 2
BUDGETS = Budgets(video=FrameBudget(fps=4.0, max_frames=64, max_pixels=131_072))
RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)


def write_clip(path: Path, number: int) -> str:
    """A moving test picture; the hue makes every clip another one."""
    source = f"testsrc2=size=1280x720:rate=30:duration=16,hue=h={9 * number}"
    encoding = ("-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "60")
    subprocess.run(
        [
            *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"),
            *("-f", "lavfi", "-i", source, *encoding, str(path)),
        ],
        check=True,
    )
    return str(path)


def sample_of(path: str) -> Sample:
    media = Media(kind=MediaKind.video, path=path)
    return Sample(
        id=path, problem="?", answer="A", problem_type=ProblemType.open_ended, media=(media,)
    )


def seconds(samples: list[Sample], workers: int) -> float:
    """Of one run of the engine into an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        store = ClipStore(CacheConfig(dir=folder), BUDGETS, RULES, DecodeConfig(workers=workers))
        report = cache_samples(samples, store=store, progress=False)
        assert (report.decoded, report.failed) == (NUM_CLIPS, 0)
        return report.seconds


def main() -> None:
    ours: list[float] = []
    baseline: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [write_clip(Path(folder) / f"{n}.mp4", n) for n in range(NUM_CLIPS)]
        samples = [sample_of(path) for path in paths]
        with ray_session(RayConfig(), num_cpus=WORKERS):
            seconds(samples, WORKERS)
            for _ in range(NUM_RUNS):
                ours.append(seconds(samples, WORKERS))
                baseline.append(seconds(samples, 1))
    ours_s, baseline_s = statistics.median(ours), statistics.median(baseline)
    result = {
        "claim": "scaling",
        "ratio": baseline_s / ours_s,
        "ours_s": ours_s,
        "baseline_s": baseline_s,
        "detail": {
            "ours": ours,
            "baseline": baseline,
            "clips": NUM_CLIPS,
            "workers": WORKERS,
            "decoder": resolve_decoder(DecodeConfig().decoder),
            "threads": 1,
            "nproc": os.cpu_count(),
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
