"""How the rest of the system gets the frames of a sample: from the cache, or decoded now.

Which of the two is `cache.mode`; both give equal clips, because both go through `decode`. Used by
evaluate and train in any process: a store is pickled as its settings and opens its files on use.
"""

import dataclasses
from collections.abc import Iterable

from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import CacheConfig, CacheMode, DecodeConfig
from easyvideor1.preprocess.decode import decode, media_name
from easyvideor1.preprocess.errors import MissingClipError
from easyvideor1.preprocess.frame_cache import FrameCache
from easyvideor1.preprocess.keys import clip_settings, key_of
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.records import Media, Sample


class ClipStore:
    """Frames of samples under one set of budgets, for one model family.

    Args:
        cache_config: where the cache is, and whether it is used at all.
        budgets: frames and pixels by modality.
        rules: of the model family.
        decode_config: which decoder made, or makes, the frames.
        validation: use the budgets for validation.
    """

    def __init__(
        self,
        cache_config: CacheConfig,
        budgets: Budgets,
        rules: FamilyRules,
        decode_config: DecodeConfig,
        validation: bool = False,
    ):
        self.cache_config = cache_config
        self.budgets = budgets
        self.rules = rules
        self.decode_config = decode_config
        self.validation = validation
        self._cache: FrameCache | None = None

    def __reduce__(self):
        """Travel as settings; open maps and locks stay behind."""
        settings = (self.cache_config, self.budgets, self.rules, self.decode_config)
        return type(self), (*settings, self.validation)

    @property
    def cache(self) -> FrameCache:
        """The cache behind the store; never opened in live mode."""
        if self._cache is None:
            self._cache = open_cache(self.cache_config)
        return self._cache

    def load(self, sample: Sample) -> list[Clip]:
        """The clips of a sample, one per medium, in order.

        Raises:
            MissingClipError: if one is not in the cache and `cache.mode` is `require`.
            DecodeError: if one gives no frames (live), or its file is missing.
        """
        return [self._load(sample, media) for media in sample.media]

    def is_cached(self, sample: Sample) -> bool:
        """Whether the cache holds every medium of the sample."""
        return all(self.cache.has(self.key(media)) for media in sample.media)

    def missing(self, samples: Iterable[Sample]) -> list[Sample]:
        """Samples that `load` would refuse in cached mode."""
        return [sample for sample in samples if not self.is_cached(sample)]

    def budget(self, media: Media) -> FrameBudget:
        """The budget that applies to a medium."""
        return self.budgets.of(media.kind.value, validation=self.validation)

    def settings(self, media: Media) -> dict:
        """Everything the frames of a medium depend on, see `keys.clip_settings`."""
        return clip_settings(
            media,
            self.budget(media),
            self.rules,
            decoder=self.decode_config.decoder,
            fingerprint=self.cache_config.fingerprint,
        )

    def key(self, media: Media) -> str:
        """The cache key of a medium."""
        return key_of(self.settings(media))

    def _load(self, sample: Sample, media: Media) -> Clip:
        key = self.key(media)
        if self.cache_config.mode is CacheMode.live:
            clip = decode(media, self.budget(media), self.rules, self.decode_config)
            return dataclasses.replace(clip, key=key)
        try:
            return self.cache.get(key)
        except KeyError:
            folder = resolve_output(self.cache_config.dir)
            raise MissingClipError(sample.id, media_name(media), str(folder)) from None
