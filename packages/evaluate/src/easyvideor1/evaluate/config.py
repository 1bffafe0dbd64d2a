"""Settings of the engine and of `evr-evaluate`. No heavy imports: a mistake answers at once."""

from dataclasses import dataclass, field
from enum import StrEnum

from easyvideor1.evaluate.benchmark_config import (
    AboutConfig,
    ExtractorConfig,
    LayoutConfig,
    Loader,
    Metric,
    PromptConfig,
    PublishedScore,
    SubtitleConfig,
)
from easyvideor1.preprocess.config import (
    CacheConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    RayConfig,
)
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.errors import UserError


class VisionParallel(StrEnum):
    """What the GPUs of one engine share in the vision tower; of no effect on one GPU."""

    data = "data"
    """Each holds the whole tower and encodes whole media: no communication per layer."""
    weights = "weights"
    """Each holds a part of every layer: for a tower that does not fit beside the language model."""


@dataclass(kw_only=True, slots=True)
class EngineConfig:
    """The vLLM engine that answers. Group `rollout` of training and key `engine` of evaluation."""

    dtype: str = "auto"
    """auto: that of `model.dtype`, or bfloat16 on a GPU and float32 on a CPU."""
    trust_remote_code: bool = False
    max_model_len: int | None = None
    """Prompt and answer together, in tokens; None: what the checkpoint allows."""
    max_num_seqs: int = 64
    """Answers generated at the same time."""
    max_num_batched_tokens: int | None = None
    """Tokens of one engine step; None: vLLM's default on a GPU, `max_model_len` on a CPU."""
    gpu_memory_utilization: float = 0.85
    """Share of the GPU for weights and KV cache. Without a GPU `kv_cache_bytes` counts instead."""
    kv_cache_bytes: int = 256 * 1024**2
    """KV cache without a GPU. Must hold at least one request of `max_model_len`."""
    tensor_parallel_size: int = 1
    """GPUs of one engine. A model that fits on one GPU answers faster on several engines."""
    vision_parallel: VisionParallel = VisionParallel.data
    enforce_eager: bool | None = None
    """None: CUDA graphs on a GPU, none on a CPU."""
    media_cache_gb: float = 1.0
    """Preprocessed media kept in memory, so that a video asked about again costs nothing. On
    several GPUs it lies in `/dev/shm`, where every one of them reads the same copy."""
    encoder_cache_tokens: int | None = None
    """Vision tokens of encoded media kept on the GPU, so that the answers about one video share its
    encoding, also where they start at different times; give room for several videos. None: vLLM's
    choice, which may be a single one. A token takes hidden size x 2 bytes, four times that in
    Qwen3-VL."""
    seed: int = 0
    """Of the engine; a request with its own seed does not depend on it."""

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.tensor_parallel_size < 1:
            raise UserError(
                "engine needs max_num_seqs and tensor_parallel_size of at least 1, got "
                f"{self.max_num_seqs} and {self.tensor_parallel_size}"
            )
        if self.encoder_cache_tokens is not None and self.encoder_cache_tokens < 1:
            raise UserError(
                "engine.encoder_cache_tokens must be at least 1 or null, "
                f"got {self.encoder_cache_tokens}"
            )
        if not 0 < self.gpu_memory_utilization <= 1:
            raise UserError(
                "engine.gpu_memory_utilization is a share above 0 and up to 1, "
                f"got {self.gpu_memory_utilization}"
            )


@dataclass(kw_only=True, slots=True)
class SamplingSettings:
    """How answers are drawn. `temperature=0` is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """-1: off."""
    min_p: float = 0.0
    """Leaves out tokens below so many times the probability of the likeliest; 0: off."""
    max_new_tokens: int = 1024
    n: int = 1
    """Answers per request; they share the prompt's prefix and its encoded media."""
    seed: int | None = None
    """None: the engine's own stream, which depends on what else it is asked."""
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: bool = False
    """Return log-probs of the sampled tokens under the sampling policy."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise UserError(f"sampling needs temperature >= 0, got {self.temperature}")
        check_reshaping(
            "sampling",
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
        )
        if self.max_new_tokens < 1 or self.n < 1:
            raise UserError(
                "sampling needs max_new_tokens and n of at least 1, got "
                f"max_new_tokens={self.max_new_tokens} n={self.n}"
            )


def check_reshaping(
    where: str,
    *,
    top_p: float,
    top_k: int,
    min_p: float,
    presence_penalty: float,
    repetition_penalty: float,
) -> None:
    """Refuse settings that vLLM would, under the name of their group.

    Raises:
        UserError: naming the settings, their ranges and what was given.
    """
    if not 0 < top_p <= 1 or (top_k < 1 and top_k != -1) or not 0 <= min_p <= 1:
        raise UserError(
            f"{where} needs 0 < top_p <= 1, top_k of at least 1 or -1 (off) and 0 <= min_p <= 1, "
            f"got top_p={top_p} top_k={top_k} min_p={min_p}"
        )
    if not -2 <= presence_penalty <= 2 or repetition_penalty <= 0:
        raise UserError(
            f"{where} needs presence_penalty from -2 to 2 and repetition_penalty above 0, got "
            f"presence_penalty={presence_penalty} repetition_penalty={repetition_penalty}"
        )


def _greedy() -> SamplingSettings:
    return SamplingSettings(temperature=0.0)


@dataclass(kw_only=True, slots=True)
class BenchmarkConfig:
    """One benchmark: its files, what the model sees and is asked, and how the answers count."""

    loader: Loader = Loader.samples
    data: DataConfig = field(default_factory=DataConfig)
    """Its `validation` files are the benchmark, its `media_root` holds the videos."""
    num_samples: int | None = None
    """Questions in the official release; another number is reported as incomplete."""
    max_samples: int | None = None
    """Evaluate so many, spread evenly over the benchmark; None: all."""
    budget: Budgets = field(default_factory=Budgets)
    about: AboutConfig = field(default_factory=AboutConfig)
    layout: LayoutConfig = field(default_factory=LayoutConfig)
    subtitles: SubtitleConfig = field(default_factory=SubtitleConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    generation: SamplingSettings = field(default_factory=_greedy)
    repeats: int = 1
    """Answers per question; each counts as one."""
    extractor: ExtractorConfig = field(default_factory=ExtractorConfig)
    metric: Metric = Metric.accuracy
    group_by: list[str] = field(default_factory=list)
    """Fields of the samples to break the score down by: `category`, `source` or one in `extra`."""
    published: list[PublishedScore] = field(default_factory=list)
    notes: str = ""
    """Where this differs from the official protocol, and what is not known about it."""

    def __post_init__(self) -> None:
        if self.generation.n != 1 or self.generation.seed is not None:
            raise UserError(
                "a benchmark's generation has n=1 and no seed; set repeats for several answers and "
                "the top-level seed for other ones"
            )
        if self.repeats < 1:
            raise UserError(f"a benchmark's repeats must be at least 1, got {self.repeats}")


@dataclass(kw_only=True, slots=True)
class PipelineConfig:
    """How much work is under way at once. It changes speed and memory, not results."""

    prefetch_bytes: int = 2 * 1024**3
    """Decoded frames that are loaded and not answered yet; loading pauses above."""
    load_workers: int = 4
    """Threads that load frames."""
    max_requests: int = 256
    """Requests handed to the engine at once; it orders them itself."""
    max_overlong: float = 0.0
    """Share of a benchmark's questions that may be too long for the engine and count as wrong; a
    run with more of them is refused before anything is decoded."""
    max_engine_restarts: int = 3
    """An engine that dies is started anew so many times in all, and what it was asked is asked
    again; one more death ends the run, which the same command continues."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_overlong <= 1:
            raise UserError(f"pipeline.max_overlong is a share, 0 to 1, got {self.max_overlong}")
        if self.max_engine_restarts < 0:
            raise UserError(
                f"pipeline.max_engine_restarts must be at least 0, got {self.max_engine_restarts}"
            )
        for name in ("prefetch_bytes", "load_workers", "max_requests"):
            if getattr(self, name) < 1:
                raise UserError(f"pipeline.{name} must be at least 1, got {getattr(self, name)}")


@dataclass(kw_only=True, slots=True)
class ReportConfig:
    """What `report.html` shows: all questions, and frames of some.

    Its size is at most `max_megabytes` and, for each question, about twice `max_characters`.
    """

    max_samples: int = 200
    """Questions shown with their frames, spread evenly over the benchmark; so are others about the
    same videos."""
    max_frames: int = 8
    """Frames shown per medium, spread evenly; the page says how many there were."""
    max_frame_side: int = 320
    """Longer side of large frames on the page, in pixels; up to 128 x 128 they stay exact."""
    max_megabytes: int = 32
    """Of frames on the page; questions after that are shown without them."""
    max_characters: int = 8_000
    """Of a prompt and of an answer; of longer ones the middle is left out. A page of several
    benchmarks divides this, as it does the frames."""

    def __post_init__(self) -> None:
        for name in ("max_samples", "max_frames", "max_frame_side", "max_characters"):
            if getattr(self, name) < 1:
                raise UserError(f"report.{name} must be at least 1, got {getattr(self, name)}")
        if self.max_megabytes < 0:
            raise UserError(f"report.max_megabytes must not be negative, got {self.max_megabytes}")


@dataclass(kw_only=True, slots=True)
class AlarmConfig:
    """Above which share of answers something is said to be wrong, see `alarms`.

    The limits are for whole benchmarks; they change no score.
    """

    min_answers: int = 50
    """Fewer say nothing."""
    truncated: float = 0.05
    """Ended by the token limit."""
    repetitive: float = 0.02
    """More than half of their runs of four words stood there before."""
    same_answer: float = 0.5
    """Have one text in common; where most questions are no choices."""
    no_answer: float = 0.05
    """Nothing could be read from them."""
    not_answered: float = 0.01
    """Of all questions: no answer came."""
    letter_skew: float = 0.15
    """Chosen letters against right ones, 0 (alike) to 1. Chance alone stays below it: among 4
    letters and 200 answers 0.05 is usual."""

    def __post_init__(self) -> None:
        if self.min_answers < 1:
            raise UserError(f"alarms.min_answers must be at least 1, got {self.min_answers}")
        for name in (
            "truncated", "repetitive", "same_answer", "no_answer", "not_answered", "letter_skew",
        ):  # fmt: skip
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"alarms.{name} is a share, 0 to 1, got {getattr(self, name)}")


@dataclass(kw_only=True, slots=True)
class PassRateConfig:
    """How often training samples are answered rightly, of `job=passrate`."""

    generation: SamplingSettings = field(default_factory=SamplingSettings)
    """By default as rollouts are sampled: temperature 1, nothing cut off."""
    right_from: float = 0.5
    """Accuracy from which an answer is right, for types with values between 0 and 1 (IoU, ...)."""
    file: str | None = None
    """Where the samples go with their rates, `.jsonl`, `.arrow` or `.parquet`; None:
    `samples.jsonl` in the folder of the results."""

    def __post_init__(self) -> None:
        if self.generation.n != 1 or self.generation.seed is not None:
            raise UserError(
                "pass_rate.generation has n=1 and no seed; set k for the number of answers and the "
                "top-level seed for other ones"
            )
        if not 0 < self.right_from <= 1:
            raise UserError(f"pass_rate.right_from lies above 0 and up to 1, got {self.right_from}")
        if self.file is not None and not self.file.endswith((".jsonl", ".arrow", ".parquet")):
            raise UserError(
                f"pass_rate.file ends with .jsonl, .arrow or .parquet, got {self.file!r}"
            )


@dataclass(kw_only=True, slots=True)
class RescoreConfig:
    """Answers that lmms-eval logged, for `job=rescore`."""

    logs: list[str] = field(default_factory=list)
    """Its `*_samples_*.jsonl` of one benchmark: files, folders or globs."""
    metric: str | None = None
    """Which of its metrics is the score; None: the only one in a row."""


class Job(StrEnum):
    run = "run"
    """Answer what is not answered yet, then score and report."""
    score = "score"
    """Score stored answers again; no engine."""
    report = "report"
    """As `score`, and write report.html again."""
    check = "check"
    """List the media files that are missing."""
    passrate = "passrate"
    """Answer the training samples of `data` `k` times each and write them with their pass rate."""
    rescore = "rescore"
    """Read and score answers that lmms-eval logged, beside its own scores; no engine."""
    compare = "compare"
    """Line up the runs `a` and `b`: where their protocols differ, and by how much their scores."""


@dataclass(kw_only=True, slots=True)
class EvaluateConfig:
    """Everything `evr-evaluate` reads."""

    job: Job = Job.run
    a: str | None = None
    """For `compare`: a run's folder, or `<benchmark>/<beginning of its fingerprint>`."""
    b: str | None = None
    """The run that is compared with `a`; what it scores more counts as positive."""
    seed: int = 0
    """Together with the sample id it seeds every answer that is not greedy."""
    blank_frames: bool = False
    """A blind run: every frame is mid-grey, all else stays. It shows what is answered unseen."""
    fixtures: bool = False
    """Ask the made-up records of `conf/benchmark_fixtures/` on generated clips: a run to try."""
    retry_failed: bool = False
    """Ask again where loading or generation failed before."""
    output_dir: str = "outputs/evaluate"
    """Results go to <output_dir>/<benchmark>/<fingerprint>/."""
    k: int = 8
    """Of `job=passrate`: answers to each sample."""
    data: DataConfig | None = None
    """Of `job=passrate`: its `train` files are asked; a benchmark brings its own."""
    budget: Budgets | None = None
    """Of `job=passrate`: as the samples are trained with; a benchmark brings its own."""
    pass_rate: PassRateConfig = field(default_factory=PassRateConfig)
    rescore: RescoreConfig = field(default_factory=RescoreConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    benchmarks: dict[str, BenchmarkConfig] = field(default_factory=dict)
    cache: CacheConfig = field(default_factory=CacheConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    pipeline: PipelineConfig = field(default_factory=PipelineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if self.job is not Job.compare and (self.a or self.b):
            raise UserError(f"a and b name the runs of job=compare; this is job={self.job.value}")
        if self.job is Job.compare:
            self._check_compare()
        if self.job is Job.passrate:
            self._check_pass_rate()
        elif self.data is not None or self.budget is not None:
            raise UserError(
                f"data and budget at the top are of job=passrate, not of job={self.job.value}; a "
                "benchmark's are benchmarks.<name>.data.… and budget@benchmarks.<name>.budget=…"
            )
        elif not self.benchmarks:
            raise UserError("no benchmark chosen; say benchmark=toybox or benchmark=[a,b]")
        if self.job is Job.rescore and (not self.rescore.logs or len(self.benchmarks) != 1):
            raise UserError(
                "job=rescore needs the logs of one benchmark, for example benchmark=video_mme "
                "rescore.logs=[logs/20260923_samples_videomme.jsonl]"
            )
        if self.engine.dtype == "auto":
            self.engine.dtype = self.model.dtype
        self.engine.trust_remote_code |= self.model.trust_remote_code

    def _check_compare(self) -> None:
        if not (self.a and self.b):
            raise UserError(
                "job=compare needs two runs, for example "
                "a=outputs/evaluate/video_mme/0123456789abcdef b=video_mme/fedcba"
            )

    def _check_pass_rate(self) -> None:
        if self.data is None or not self.data.train:
            raise UserError(
                "job=passrate needs training files: say data=toybox, or data=files "
                "data.train=[a.jsonl] data.media_root=/videos"
            )
        if self.budget is None:
            raise UserError(
                "job=passrate needs the budget that the samples are trained with: say "
                "budget=video_128f, or budget=toy for data=toybox"
            )
        if self.k < 1:
            raise UserError(f"k must be at least 1, got {self.k}")


def register() -> None:
    """Make the schema known to Hydra as `evaluate_schema`."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="evaluate_schema", node=EvaluateConfig)
