"""Reading clips: the arrow cache, .pt, plain `mmap`, and the float32 pickles of EasyVideoR1.

Four real clips of 128 frames and about 512 x 512 pixels, in the page cache. Every reader opens its
files anew; all run on one thread, in turn, and the turn rotates.

`mmap`: the baseline maps files that hold nothing but the same bytes and copies them into tensors;
no reader can do with less. Ours opens the arrow cache with `codec=raw` and copies its frames into
tensors. The bound of 1.3 times the baseline's time is a ratio of at least 0.77.

`pickle`: the baseline is the reference's layout, `torch.save` of float32 frames and their metadata,
read as the reference does by `torch.load(weights_only=False)`. Ours takes the frames from the arrow
cache, a view of the mapped file. Both then look at every value once (numpy's `max`), so that the
view is read as well. `detail.pickle_over_copy` compares the pickle alone with the copies of `mmap`:
four times the bytes into fresh memory.

`size`: here `ratio` is ours over baseline and less is better: bytes of the arrow files, indices
included, over those of the pickles. The seconds are those of `pickle`.

`detail` has the times and sizes of all codecs and both formats, and what zstd makes of each real
clip and of generated ones.
"""

import dataclasses
import json
import mmap
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from easyvideor1.preprocess import real_clips, toybox
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.codecs import encode
from easyvideor1.preprocess.config import (
    CacheConfig,
    CacheFormat,
    Codec,
    DecodeConfig,
    Decoder,
    RealClipsConfig,
    ToyboxConfig,
)
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind

NUM_RUNS = 7
RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)
REAL = FrameBudget(fps=30.0, max_frames=128, min_pixels=512 * 512, max_pixels=520 * 520)
GENERATED = FrameBudget(fps=8.0, max_frames=128, min_pixels=32 * 32, max_pixels=512 * 512)


def decoded(path: str, budget: FrameBudget) -> StoredClip:
    media = Media(kind=MediaKind.video, path=path)
    clip = decode(media, budget, RULES, DecodeConfig(decoder=Decoder.pyav))
    settings = {"content": path, "span_s": None, "frames_fps": None}
    return StoredClip(
        clip=dataclasses.replace(clip, key=key_of(settings)), settings=settings, source=path
    )


def footage(folder: Path) -> list[StoredClip]:
    real_clips.build(RealClipsConfig(), folder)
    clips = [decoded(str(folder / "clips" / name), REAL) for name in real_clips.CLIPS]
    return [repeated(clip, REAL.max_frames) for clip in clips]


def repeated(stored: StoredClip, num_frames: int) -> StoredClip:
    """The clip, from its beginning again until it is long enough."""
    positions = [i % len(stored.clip.frames) for i in range(num_frames)]
    metadata = stored.clip.metadata
    looped = dataclasses.replace(
        metadata,
        frame_indices=tuple(metadata.frame_indices[i] for i in positions),
        timestamps_s=tuple(metadata.timestamps_s[i] for i in positions),
    )
    frames = np.ascontiguousarray(stored.clip.frames[positions])
    return dataclasses.replace(
        stored, clip=dataclasses.replace(stored.clip, frames=frames, metadata=looped)
    )


def fill(config: CacheConfig, clips: Sequence[StoredClip]) -> None:
    drafts = Path(config.dir) / "runs" / uuid.uuid4().hex
    drafts.mkdir(parents=True)
    with open_cache(config).writer(drafts) as writer:
        for clip in clips:
            writer.add(clip)


def read_cache(config: CacheConfig, keys: Sequence[str]) -> list[torch.Tensor]:
    cache = open_cache(config)
    return [own(cache.get(key).frames) for key in keys]


def own(frames: np.ndarray) -> torch.Tensor:
    """Frames in memory of their own, every byte read."""
    tensor = torch.empty(frames.shape, dtype=torch.uint8)
    np.copyto(tensor.numpy(), frames)
    return tensor


def read_mapped(paths: Sequence[Path], shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    tensors = []
    for path, shape in zip(paths, shapes, strict=True):
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tensors.append(own(np.frombuffer(mapped, np.uint8).reshape(shape)))
    return tensors


def write_pickle(path: Path, clip: Clip) -> None:
    """As the reference's `preprocess_videos.py`: frames as float32 [T, C, H, W]."""
    metadata = {
        "fps": clip.metadata.source_fps,
        "frames_indices": list(clip.metadata.frame_indices),
        "total_num_frames": clip.metadata.total_frames,
        "video_backend": "torchvision",
    }
    frames = torch.from_numpy(clip.frames.astype(np.float32))
    record = {"frames": frames, "metadata": metadata, "sample_fps": clip.metadata.sample_fps}
    torch.save({**record, "preprocess_version": 1}, path)


def read_pickles(paths: Sequence[Path]) -> list[torch.Tensor]:
    return [torch.load(path, weights_only=False)["frames"] for path in paths]


def look_at_cache(config: CacheConfig, keys: Sequence[str]) -> list[float]:
    cache = open_cache(config)
    return [float(cache.get(key).frames.max()) for key in keys]


def look_at_pickles(paths: Sequence[Path]) -> list[float]:
    return [float(frames.numpy().max()) for frames in read_pickles(paths)]


def measured(readers: dict[str, Callable[[], list[Any]]]) -> dict[str, list[float]]:
    """Seconds of each reader, run in turn; the first round only warms up."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(NUM_RUNS + 1):
        turn = list(readers.items())
        for name, read in turn[number % len(turn) :] + turn[: number % len(turn)]:
            start = time.perf_counter()
            result = read()
            seconds = time.perf_counter() - start
            del result
            if number:
                times[name].append(seconds)
    return times


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def zstd_sizes(clips: Sequence[StoredClip], folder: Path) -> dict[str, float]:
    """Bytes of zstd payloads over those of the pixels: of each real clip, and of generated ones."""
    sizes = {Path(clip.source).stem: zstd_ratio([clip]) for clip in clips}
    toybox.build(ToyboxConfig(train_clips=16, train_events=4), folder)
    generated = [decoded(str(path), GENERATED) for path in sorted(folder.rglob("*.mp4"))[:40]]
    return {**sizes, "generated": zstd_ratio(generated)}


def zstd_ratio(clips: Sequence[StoredClip]) -> float:
    config = CacheConfig(codec=Codec.zstd)
    packed = sum(encode(clip.clip.frames, config).payload.size for clip in clips)
    return packed / sum(clip.clip.frames.nbytes for clip in clips)


def line(claim: str, ratio: float, ours: list[float], baseline: list[float], detail: Any) -> None:
    result = {
        "claim": claim,
        "ratio": ratio,
        "ours_s": statistics.median(ours),
        "baseline_s": statistics.median(baseline),
        "detail": {"ours": ours, "baseline": baseline, **detail},
    }
    print(json.dumps(result))


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clips = footage(folder / "real")
        keys = [clip.clip.key for clip in clips]
        shapes = [clip.clip.frames.shape for clip in clips]
        plain, pickles = [], []
        for number, clip in enumerate(clips):
            plain.append(folder / f"{number}.bin")
            plain[-1].write_bytes(clip.clip.frames.tobytes())
            pickles.append(folder / f"{number}.pkl")
            write_pickle(pickles[-1], clip.clip)

        configs = {
            f"{format_name}_{codec}": CacheConfig(
                dir=str(folder / f"{format_name}_{codec}"), format=format_name, codec=codec
            )
            for format_name in CacheFormat
            for codec in Codec
        }
        raw = configs["arrow_raw"]
        readers: dict[str, Callable[[], list[Any]]] = {
            "mmap": lambda: read_mapped(plain, shapes),
            "pickle": lambda: read_pickles(pickles),
            "look_at_pickle": lambda: look_at_pickles(pickles),
            "look_at_arrow_raw": lambda: look_at_cache(raw, keys),
        }
        for label, config in configs.items():
            fill(config, clips)
            readers[label] = lambda config=config: read_cache(config, keys)
        times = measured(readers)

        speed = {label: statistics.median(values) for label, values in times.items()}
        sizes = {label: size_of(Path(config.dir)) for label, config in configs.items()}
        sizes["pickle"] = sum(path.stat().st_size for path in pickles)
        sizes["pixels"] = sum(clip.clip.frames.nbytes for clip in clips)
        detail = {
            "clips": [[Path(clip.source).name, *clip.clip.shape] for clip in clips],
            "medians_s": speed,
            "pickle_over_copy": speed["pickle"] / speed["arrow_raw"],
            "bytes": sizes,
            "zstd_of_pixels": zstd_sizes(clips, folder / "toybox"),
            "threads": 1,
            "nproc": os.cpu_count(),
        }
        line("mmap", speed["mmap"] / speed["arrow_raw"], times["arrow_raw"], times["mmap"], detail)
        ours, baseline = times["look_at_arrow_raw"], times["look_at_pickle"]
        ratio = speed["look_at_pickle"] / speed["look_at_arrow_raw"]
        line("pickle", ratio, ours, baseline, detail)
        line("size", sizes["arrow_raw"] / sizes["pickle"], ours, baseline, detail)


if __name__ == "__main__":
    main()
