"""Opens the frame cache in the format the config names, and checks what it holds.

Reading imports neither ray nor, for the arrow format, torch.
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from easyvideor1.preprocess.cache_arrow import ArrowCache
from easyvideor1.preprocess.cache_pt import PtCache
from easyvideor1.preprocess.config import CacheConfig, CacheFormat
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.preprocess.frame_cache import ClipEntry, EncodedClip, FrameCache, total_bytes
from easyvideor1.preprocess.keys import key_of
from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.schema.conf import resolve_output

MAX_THREADS = 16
"""Files checked at once; each may hold the frames of one clip in memory."""


def open_cache(config: CacheConfig, *, notes_use: bool = True) -> FrameCache:
    """The cache that `config` describes; it need not exist yet.

    Args:
        config: folder, format, and how clips are written.
        notes_use: note in the times of the files that they are in use, which `job=gc` goes by.
    """
    folder = resolve_output(config.dir)
    kind = PtCache if config.format is CacheFormat.pt else ArrowCache
    return kind(folder, config, notes_use=notes_use)


def verify(cache: FrameCache, *, progress: bool = False) -> Iterator[tuple[str, str]]:
    """Read every clip and hold it against its checksum, its key, its shape and its index.

    Yields:
        The key of every clip with what is wrong, or the empty text; a clip that is there twice
        comes twice, the second time as wrong. The path of a file that is wrong as a whole.
    """
    places: dict[str, str] = {}
    paths = cache.paths()
    sizes = [total_bytes([path]) for path in paths]
    checked = map_ahead(functools.partial(_check_file, cache), paths, threads=_num_threads())
    with tqdm(
        total=sum(sizes), desc="verifying", unit="B", unit_scale=True, disable=not progress
    ) as bar:
        for size, findings in zip(sizes, checked, strict=True):
            for name, place, problem in findings:
                if not problem and name in places:
                    problem = f"it is in {places[name]} as well; job=gc removes one of them"
                places.setdefault(name, place)
                yield name, problem
            bar.update(size)


def _check_file(cache: FrameCache, path: Path) -> list[tuple[str, str, str]]:
    """Name, place and problem of every clip in a file, and of the file if it has one."""
    found: list[tuple[str, str, str]] = []
    entries: list[ClipEntry] = []
    try:
        for clip in cache.clips(path):
            found.append((clip.key, clip.place, _problem(clip)))
            entries.append(clip.entry())
        if cache.file(path).entries != tuple(entries):
            found.append((str(path), str(path), "its index differs from what it holds"))
    except FileNotFoundError:  # removed by another process meanwhile
        return []
    except DamagedCacheError as error:
        found.append((str(path), str(path), str(error)))
    return found


def _problem(clip: EncodedClip) -> str:
    if key_of(clip.settings) != clip.key:
        return "the key is not that of the recorded settings"
    return clip.frames.problem()


def _num_threads() -> int:
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))
