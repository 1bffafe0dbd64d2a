"""Opens the frame cache in the format the config names, and checks what it holds.

Reading imports neither ray nor, for the arrow format, torch.
"""

from collections.abc import Iterator

from easyvideor1.preprocess.cache_arrow import ArrowCache
from easyvideor1.preprocess.cache_pt import PtCache
from easyvideor1.preprocess.config import CacheConfig, CacheFormat
from easyvideor1.preprocess.errors import DamagedCacheError
from easyvideor1.preprocess.frame_cache import FrameCache, frames_digest
from easyvideor1.preprocess.keys import key_of
from easyvideor1.schema.conf import resolve_output


def open_cache(config: CacheConfig) -> FrameCache:
    """The cache that `config` describes; it need not exist yet."""
    folder = resolve_output(config.dir)
    if config.format is CacheFormat.pt:
        return PtCache(folder)
    return ArrowCache(folder, codec=config.codec, shard_bytes=config.shard_bytes)


def verify(cache: FrameCache) -> Iterator[tuple[str, str]]:
    """Read every clip; yields its key and what is wrong with it, or the empty text."""
    for key in sorted(cache.keys()):
        try:
            stored = cache.read(key)
        except DamagedCacheError as error:
            yield key, str(error)
            continue
        if key_of(stored.settings) != key:
            yield key, "the key is not that of the recorded settings"
        elif frames_digest(stored.clip.frames) != stored.digest:
            yield key, "the frames differ from their checksum"
        else:
            yield key, ""
