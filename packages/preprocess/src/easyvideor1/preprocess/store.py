"""How the rest of the system gets the frames of a sample: from the cache, or decoded when asked.

`cache.mode` says what a clip that is not in the cache does; either way the clip is the same,
because both go through `decode`. Its shape can be had without its pixels. Used by evaluate and
train in any process and from several threads: a store is pickled as its settings, and opens its
files and starts its decoders on use.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from easyvideor1.preprocess.announced import announced_shape
from easyvideor1.preprocess.cache import open_cache
from easyvideor1.preprocess.cache_settings import explain_missing
from easyvideor1.preprocess.clip import Clip, ClipShape
from easyvideor1.preprocess.codecs import encode
from easyvideor1.preprocess.config import CacheConfig, CacheMode, DecodeConfig
from easyvideor1.preprocess.decode import media_name, probe
from easyvideor1.preprocess.decoder_pool import DecoderPool
from easyvideor1.preprocess.decoders import decoder_for
from easyvideor1.preprocess.errors import DamagedCacheError, DecodeError, MissingClipError
from easyvideor1.preprocess.frame_cache import FrameCache, damaged_error
from easyvideor1.preprocess.keys import clip_settings, key_of
from easyvideor1.preprocess.quarantine import Quarantine
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.scan import SourceProbe
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.records import Media, Sample

LOGGED_MISSES = 100
"""Every so many clips that a store had to decode, beginning with the first, it says so."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadCounts:
    """Clips that stores have loaded."""

    hits: int = 0
    """From the cache."""
    misses: int = 0
    """Decoded when they were asked for."""

    def __add__(self, other: "LoadCounts") -> "LoadCounts":
        return LoadCounts(hits=self.hits + other.hits, misses=self.misses + other.misses)

    def __sub__(self, other: "LoadCounts") -> "LoadCounts":
        return LoadCounts(hits=self.hits - other.hits, misses=self.misses - other.misses)

    @property
    def hit_rate(self) -> float | None:
        """Share of clips that came from the cache; None where no clip was loaded."""
        total = self.hits + self.misses
        return self.hits / total if total else None


class BudgetRule(Protocol):
    """Gives a sample smaller budgets than all others.

    It must be a pure function of its arguments: every process that loads the sample asks anew.
    """

    def __call__(
        self, sample: Sample, budgets: Budgets, shapes: Callable[[Budgets], list[ClipShape]]
    ) -> Budgets | None:
        """The budgets for a sample with media; None to leave them.

        Args:
            sample: whose media are loaded.
            budgets: those of the config, for training or for validation.
            shapes: what the media's headers announce under any budgets.
        """
        ...


class ClipStore:
    """Frames of samples under one set of budgets, for one model family.

    Args:
        cache_config: where the cache is, and what a clip that it lacks does.
        budgets: frames and pixels by modality.
        rules: of the model family.
        decode_config: which decoder made, or makes, the frames.
        validation: use the budgets for validation.
        budget_rule: gives single samples smaller budgets.
    """

    def __init__(
        self,
        cache_config: CacheConfig,
        budgets: Budgets,
        rules: FamilyRules,
        decode_config: DecodeConfig,
        validation: bool = False,
        budget_rule: BudgetRule | None = None,
    ):
        self.cache_config = cache_config
        self.budgets = budgets
        self.rules = rules
        self.decode_config = decode_config
        self.validation = validation
        self._budget_rule = budget_rule
        self._smaller_budgets: dict[str, Budgets | None] = {}
        self._cache: FrameCache | None = None
        self._quarantine: Quarantine | None = None
        self._decoders: DecoderPool | None = None
        self._counts = LoadCounts()
        self._checked: set[str] = set()
        self._lock = threading.Lock()

    def __reduce__(self):
        """Travel as settings; open maps, decoders and counts stay behind."""
        settings = (self.cache_config, self.budgets, self.rules, self.decode_config)
        return type(self), (*settings, self.validation, self._budget_rule)

    @property
    def cache(self) -> FrameCache:
        """The cache behind the store; never opened in live mode."""
        if self._cache is None:
            self._cache = open_cache(self.cache_config)
        return self._cache

    @property
    def counts(self) -> LoadCounts:
        """Clips loaded by this store, in this process."""
        return self._counts

    @property
    def hits(self) -> int:
        """Clips that came from the cache."""
        return self._counts.hits

    @property
    def misses(self) -> int:
        """Clips that were decoded when they were asked for."""
        return self._counts.misses

    @property
    def hit_rate(self) -> float | None:
        """Share of loaded clips that came from the cache; None before the first."""
        return self._counts.hit_rate

    def load(self, sample: Sample) -> list[Clip]:
        """The clips of a sample, one per medium, in order.

        Raises:
            MissingClipError: if one is not in the cache and `cache.mode` is `require`.
            DamagedCacheError: if the cache holds one damaged, likewise.
            DecodeError: if one gives no frames, now or when it was cached, or has no file.
        """
        return [self._load(sample, media, budget) for media, budget in self._budgeted(sample)]

    def shapes(self, sample: Sample) -> list[ClipShape]:
        """The shapes of a sample's clips: true ones of cached clips, else what headers announce.

        Raises:
            MissingClipError: as `load`.
            DecodeError: as `load`, if that can be told without decoding.
        """
        return [self._shape(sample, media, budget) for media, budget in self._budgeted(sample)]

    def announced(self, sample: Sample) -> list[ClipShape]:
        """The shapes of a sample's clips as the headers of its media announce them.

        Raises:
            DecodeError: if a medium cannot be opened, or can give no frames.
        """
        return [self._announced(media, budget) for media, budget in self._budgeted(sample)]

    @property
    def own_budgets(self) -> Budgets:
        """The budgets of the config that apply here, for training or for validation."""
        return Budgets(
            video=self.budgets.of("video", validation=self.validation),
            image=self.budgets.of("image", validation=self.validation),
        )

    def smaller_budgets(self, sample: Sample) -> Budgets | None:
        """The budgets that the rule gives this sample; None where it has those of the config.

        Raises:
            DecodeError: if a header that the rule needs cannot be read.
        """
        if self._budget_rule is None or not sample.media:
            return None
        if sample.id not in self._smaller_budgets:
            sources = [self._probe(media) for media in sample.media]

            def shapes(budgets: Budgets) -> list[ClipShape]:
                return [
                    self._shape_by_header(media, source, budgets.of(media.kind.value))
                    for media, source in zip(sample.media, sources, strict=True)
                ]

            smaller = self._budget_rule(sample, self.own_budgets, shapes)
            self._smaller_budgets[sample.id] = smaller
        return self._smaller_budgets[sample.id]

    def under(self, budgets: Budgets) -> "ClipStore":
        """The same store with these budgets for every sample."""
        return ClipStore(self.cache_config, budgets, self.rules, self.decode_config)

    def close(self) -> None:
        """End the decoder processes. The next miss starts others."""
        with self._lock:
            decoders, self._decoders = self._decoders, None
        if decoders is not None:
            decoders.close()

    def is_cached(self, sample: Sample) -> bool:
        """Whether the cache holds every medium of the sample."""
        return all(
            self.cache.has(key_of(self._settings(media, budget)))
            for media, budget in self._budgeted(sample)
        )

    def missing(self, samples: Iterable[Sample]) -> list[Sample]:
        """Samples that are not wholly in the cache."""
        return [sample for sample in samples if not self.is_cached(sample)]

    def budget(self, media: Media) -> FrameBudget:
        """The budget that applies to a medium, unless the rule gives its sample a smaller one."""
        return self.budgets.of(media.kind.value, validation=self.validation)

    def settings(self, media: Media) -> dict:
        """Everything the frames of a medium depend on, see `keys.clip_settings`."""
        return self._settings(media, self.budget(media))

    def key(self, media: Media) -> str:
        """The cache key of a medium."""
        return key_of(self.settings(media))

    def _budgeted(self, sample: Sample) -> list[tuple[Media, FrameBudget]]:
        """The media of a sample with their budgets."""
        smaller = self.smaller_budgets(sample)
        return [
            (media, smaller.of(media.kind.value) if smaller else self.budget(media))
            for media in sample.media
        ]

    def _settings(self, media: Media, budget: FrameBudget) -> dict:
        return clip_settings(media, budget, self.rules, self.decode_config, self.cache_config)

    def _load(self, sample: Sample, media: Media, budget: FrameBudget) -> Clip:
        settings = self._settings(media, budget)
        key = key_of(settings)
        if self.cache_config.mode is not CacheMode.live:
            try:
                clip = self._read(key)
            except KeyError:
                self._refuse(sample, media, settings)
            except DamagedCacheError as error:
                self._pass_over(sample, error)
            else:
                self._count(LoadCounts(hits=1))
                return clip
        clip = self._decode(media, budget)
        self._count(LoadCounts(misses=1), media)
        return dataclasses.replace(clip, key=key)

    def _read(self, key: str) -> Clip:
        """A clip from the cache; raises as `FrameCache.read_encoded`."""
        encoded = self.cache.read_encoded(key)
        if self.cache_config.check_reads and key not in self._checked:
            if problem := encoded.frames.problem():
                raise damaged_error(encoded.place or key, ValueError(problem))
            self._checked.add(key)
        return encoded.decode().clip

    def _shape(self, sample: Sample, media: Media, budget: FrameBudget) -> ClipShape:
        if self.cache_config.mode is CacheMode.live:
            return self._announced(media, budget)
        settings = self._settings(media, budget)
        try:
            cached = self.cache.read_encoded(key_of(settings))
        except KeyError:
            self._refuse(sample, media, settings)
            return self._announced(media, budget)
        except DamagedCacheError as error:
            self._pass_over(sample, error)
            return self._announced(media, budget)
        return ClipShape(
            kind=cached.kind,
            shape=cached.frames.shape,
            timestamps_s=cached.metadata.timestamps_s,
            sample_fps=cached.metadata.sample_fps,
        )

    def _announced(self, media: Media, budget: FrameBudget) -> ClipShape:
        return self._shape_by_header(media, self._probe(media), budget)

    def _probe(self, media: Media) -> SourceProbe:
        return probe(media, decoder_for(media, self.decode_config.decoder))

    def _shape_by_header(self, media: Media, source: SourceProbe, budget: FrameBudget) -> ClipShape:
        try:
            return announced_shape(media, source, budget, self.rules)
        except ValueError as error:
            raise DecodeError(media_name(media), str(error)) from error

    def _decode(self, media: Media, budget: FrameBudget) -> Clip:
        with self._lock:
            if self._decoders is None:
                self._decoders = DecoderPool(self.decode_config)
        clip = self._decoders.decode(media, budget, self.rules)
        if self.cache_config.mode is CacheMode.prefer and self.cache_config.codec.is_lossy:
            # Whoever reads this clip from the cache sees what its codec leaves of it.
            frames = encode(clip.frames, self.cache_config).decode()
            clip = dataclasses.replace(clip, frames=frames)
        return clip

    def _count(self, counts: LoadCounts, media: Media | None = None) -> None:
        with self._lock:
            self._counts += counts
            misses = self._counts.misses
        is_news = media is not None and misses % LOGGED_MISSES == 1
        if is_news and self.cache_config.mode is CacheMode.prefer:
            _log.warning(
                "%d of %d clips were not in the cache and were decoded when asked for, the last "
                "%s; run evr-preprocess with these settings to decode them once",
                misses,
                self._counts.hits + misses,
                media_name(media),
            )

    def _pass_over(self, sample: Sample, error: DamagedCacheError) -> None:
        """Raise unless a clip that the cache holds damaged is to be decoded now."""
        if self.cache_config.mode is CacheMode.require:
            raise DamagedCacheError(f"sample {sample.id}: {error}") from error
        _log.warning("sample %s is decoded anew: %s", sample.id, error)

    def _refuse(self, sample: Sample, media: Media, settings: dict) -> None:
        """Raise unless a clip that the cache lacks is to be decoded now."""
        if self._quarantine is None:
            self._quarantine = Quarantine(self.cache_config)
        reason = self._quarantine.reason(key_of(settings))
        if reason is not None and not self.decode_config.retry_quarantined:
            raise DecodeError(media_name(media), reason)
        if self.cache_config.mode is CacheMode.require:
            folder = resolve_output(self.cache_config.dir)
            explanation = explain_missing(self.cache, folder, [settings])
            raise MissingClipError(sample.id, media_name(media), str(folder), explanation)
