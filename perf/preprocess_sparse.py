"""`exact`, `full_decode` and `keyframe`: 64 frames of a 20-minute 720p video, one thread each.

The video is a clip of 60 s at 30 frames a second, encoded by x264 with a key frame every 250
frames, and repeated 20 times by stream copy. All sides decode and resize with one thread.

`exact`: the baseline is qwen-vl-utils' `fetch_video` with torchcodec; ours is `decode` with the
same rule. Both give the same 64 frames to the last bit, which is checked.
`full_decode`: the baseline decodes the file in order with PyAV and keeps the 64 frames, as loaders
do that cannot jump. It converts only those and resizes none. Ours as in `exact`.
`keyframe`: the baseline is our own exact sampling by the rule of transformers, ours the same with
`snap: keyframe`. (qwen-vl-utils' rule resizes in float32, which takes longer than a key frame.)
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["TORCHCODEC_NUM_THREADS"] = "1"
os.environ["FORCE_QWENVL_VIDEO_READER"] = "torchcodec"

import av
import imageio_ffmpeg
import numpy as np
import torch
from qwen_vl_utils import fetch_video

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Convention, FrameBudget, Snap
from easyvideor1.schema.records import Media, MediaKind

NUM_RUNS = 5
REPEATS = 20
NUM_FRAMES = 64
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
EXACT = FrameBudget(
    fps=2.0, max_frames=NUM_FRAMES, min_pixels=128 * 32 * 32, max_pixels=256 * 32 * 32
)
LIKE_QWEN = replace(EXACT, convention=Convention.qwen_vl_utils)
KEYFRAME = replace(EXACT, snap=Snap.keyframe)
CONFIG = DecodeConfig(decoder=Decoder.torchcodec)


def write_video(folder: Path) -> str:
    clip, parts, path = folder / "clip.mp4", folder / "parts.txt", folder / "video.mp4"
    source = ("-f", "lavfi", "-i", "testsrc2=s=1280x720:r=30:d=60", "-vf", "noise=alls=2:allf=t")
    x264 = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "26", "-g", "250")
    fixed = ("-keyint_min", "250", "-sc_threshold", "0", "-pix_fmt", "yuv420p")
    run_ffmpeg(*source, *x264, *fixed, str(clip))
    parts.write_text("file clip.mp4\n" * REPEATS)
    run_ffmpeg("-f", "concat", "-i", str(parts), "-c", "copy", str(path))
    return str(path)


def run_ffmpeg(*arguments: str) -> None:
    subprocess.run([FFMPEG, "-v", "error", "-y", *arguments], check=True)


def ours(path: str, budget: FrameBudget) -> Clip:
    return decode(Media(kind=MediaKind.video, path=path), budget, RULES, CONFIG)


def qwen_vl_utils(path: str) -> Any:
    request: dict = {
        "video": path,
        "fps": EXACT.fps,
        "max_frames": EXACT.max_frames,
        "min_pixels": EXACT.min_pixels,
        "max_pixels": EXACT.max_pixels,
    }
    return fetch_video(request, image_patch_size=RULES.patch_size, return_video_metadata=True)


def full_decode(path: str, wanted: set[int]) -> list[np.ndarray]:
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE"
        return [
            frame.to_ndarray(format="rgb24", threads=1)
            for number, frame in enumerate(container.decode(stream))
            if number in wanted
        ]


def check(path: str) -> tuple[set[int], int]:
    """Equal frames on both sides; returns their numbers, and how many key frames stand for them."""
    clip, (theirs, metadata) = ours(path, LIKE_QWEN), qwen_vl_utils(path)
    assert list(clip.metadata.frame_indices) == list(metadata["frames_indices"])
    assert clip.metadata.total_frames == 60 * 30 * REPEATS
    assert np.array_equal(clip.frames, theirs.numpy())
    exact, snapped = ours(path, EXACT), ours(path, KEYFRAME)
    assert exact.metadata.frame_indices == clip.metadata.frame_indices
    assert snapped.metadata.snapped and not exact.metadata.snapped
    return set(clip.metadata.frame_indices), len(snapped.frames)


def seconds(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def report(claim: str, times: list[float], baseline: list[float], detail: dict) -> None:
    ours_s, baseline_s = statistics.median(times), statistics.median(baseline)
    result = {
        "claim": claim,
        "ratio": baseline_s / ours_s,
        "ours_s": ours_s,
        "baseline_s": baseline_s,
        "detail": {"ours": times, "baseline": baseline} | detail,
    }
    print(json.dumps(result))


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = write_video(Path(folder))
        wanted, num_key_frames = check(path)
        jobs: dict[str, Callable[[], object]] = {
            "like_qwen": lambda: ours(path, LIKE_QWEN),
            "qwen_vl_utils": lambda: qwen_vl_utils(path),
            "exact": lambda: ours(path, EXACT),
            "keyframe": lambda: ours(path, KEYFRAME),
            "full_decode": lambda: full_decode(path, wanted),
        }
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for number in range(NUM_RUNS):
            for name, job in jobs.items():
                times[name].append(seconds(job))
                print(f"run {number + 1} of {NUM_RUNS}: {name}", file=sys.stderr)
        detail = {
            "file_bytes": os.path.getsize(path),
            "frames": NUM_FRAMES,
            "key_frames_shown": num_key_frames,
            "threads": 1,
            "nproc": os.cpu_count(),
        }
    report("exact", times["like_qwen"], times["qwen_vl_utils"], detail)
    report("full_decode", times["like_qwen"], times["full_decode"], detail)
    report("keyframe", times["keyframe"], times["exact"], detail)


if __name__ == "__main__":
    main()
