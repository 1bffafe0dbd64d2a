"""Clips as the cache stores them. Also run as a program: a writer to be killed."""

import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.cache_settings import record_settings
from easyvideor1.preprocess.clip import Clip, ClipMetadata
from easyvideor1.preprocess.config import CacheConfig, CacheFormat
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.frame_cache import StoredClip
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.records import MediaKind, Sample
from tests.media import moving_colours


def stored_clip(
    number: int, *, num_frames: int = 4, height: int = 64, width: int = 96, smooth: bool = False
) -> StoredClip:
    """Clip `number` of an endless series of noise; the same number gives the same clip.

    Args:
        number: names the clip.
        num_frames: T.
        height: H.
        width: W.
        smooth: moving colours in place of noise, for codecs with a loss.
    """
    settings = {
        "content": f"fast:{number}",
        "span_s": [None, None],
        "frames_fps": None,
        "kind": "video",
        "budget": {"fps": 2.0, "max_frames": num_frames},
    }
    if smooth:
        # Cut out of a large image, so that small clips are no steeper than large ones.
        colours = moving_colours(num_frames, 256, 256, seed=number)[:, :height, :width]
        frames = np.ascontiguousarray(colours.transpose(0, 3, 1, 2))
    else:
        rng = np.random.default_rng(number)
        frames = rng.integers(0, 256, (num_frames, 3, height, width), dtype=np.uint8)
    metadata = ClipMetadata(
        source_fps=30000 / 1001,
        frame_indices=tuple(range(0, 15 * num_frames, 15)),
        timestamps_s=tuple(i * 15 * 1001 / 30000 for i in range(num_frames)),
        sample_fps=2.0,
        total_frames=600,
        duration_s=20.02,
        width=2 * width,
        height=2 * height,
        decoder="pyav",
        decoder_version="18.1.0",
    )
    return StoredClip(
        clip=Clip(kind=MediaKind.video, frames=frames, metadata=metadata, key=key_of(settings)),
        settings=settings,
        source=f"clips/{number}.mp4",
    )


def drafts_of(cache_dir: str) -> Path:
    """A folder for the drafts of one writer."""
    drafts = Path(cache_dir) / "runs" / uuid.uuid4().hex
    drafts.mkdir(parents=True)
    return drafts


def put_in_cache(store: ClipStore, *samples: Sample) -> None:
    """As the engine does, in this process."""
    folder = store.cache_config.dir
    all_media = dict.fromkeys(media for sample in samples for media in sample.media)
    record_settings(Path(folder), drafts_of(folder), map(store.settings, all_media))
    with open_cache(store.cache_config).writer(drafts_of(folder)) as writer:
        for media in all_media:
            clip = decode(media, store.budget(media), store.rules, store.decode_config)
            writer.add(
                StoredClip(
                    clip=replace(clip, key=store.key(media)),
                    settings=store.settings(media),
                    source=media.path,
                )
            )


def write_until_killed(folder: str, format_name: str, shard_bytes: int) -> None:
    """Add clips 0, 1, 2, … and print each number once it is added."""
    cache = open_cache(
        CacheConfig(dir=folder, format=CacheFormat(format_name), shard_bytes=shard_bytes)
    )
    writer = cache.writer(drafts_of(folder))
    for number in range(100_000):
        writer.add(stored_clip(number))
        print(number, flush=True)
        time.sleep(0.001)


if __name__ == "__main__":
    write_until_killed(sys.argv[1], sys.argv[2], int(sys.argv[3]))
