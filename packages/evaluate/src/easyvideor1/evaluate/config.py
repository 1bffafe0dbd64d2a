"""Settings of the engine and of `evr-evaluate`. No heavy imports: a mistake answers at once."""

from dataclasses import dataclass

from easyvideor1.schema.errors import UserError


@dataclass(kw_only=True, slots=True)
class EngineConfig:
    """The vLLM engine that answers. Group `rollout` of training and key `engine` of evaluation."""

    dtype: str = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU."""
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
    enforce_eager: bool | None = None
    """None: CUDA graphs on a GPU, none on a CPU."""
    media_cache_gb: float = 1.0
    """Preprocessed media kept in memory, so that a video asked about again costs nothing."""
    seed: int = 0
    """Of the engine; a request with its own seed does not depend on it."""

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.tensor_parallel_size < 1:
            raise UserError(
                "engine needs max_num_seqs and tensor_parallel_size of at least 1, got "
                f"{self.max_num_seqs} and {self.tensor_parallel_size}"
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
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise UserError(
                "sampling needs temperature >= 0 and 0 < top_p <= 1, got "
                f"temperature={self.temperature} top_p={self.top_p}"
            )
        if self.max_new_tokens < 1 or self.n < 1:
            raise UserError(
                "sampling needs max_new_tokens and n of at least 1, got "
                f"max_new_tokens={self.max_new_tokens} n={self.n}"
            )
