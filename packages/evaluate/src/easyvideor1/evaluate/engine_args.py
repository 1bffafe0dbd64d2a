"""vLLM's configuration from ours: what it is told besides the model, and why."""

import os
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.config import EngineConfig
from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from vllm import AsyncEngineArgs

    from easyvideor1.preprocess.families import FamilyAdapter

SHARED_MEMORY = "/dev/shm"
WORKER_EXTENSION = "easyvideor1.evaluate.worker.WorkerExtension"


def engine_args(
    model_path: str,
    config: EngineConfig,
    family: "FamilyAdapter",
    *,
    weight_transfer: str | None,
    sleep: bool,
    deterministic: bool = False,
) -> "AsyncEngineArgs":
    """The arguments of one engine.

    Args:
        model_path: folder or hub id.
        config: of the engine.
        family: adapter of the same model.
        weight_transfer: backend that brings new weights; None for fixed ones.
        sleep: whether its GPU memory will be given away and taken back.
        deterministic: steps are scheduled one after the other, whatever their timing.
    """
    from vllm import AsyncEngineArgs
    from vllm.config import WeightTransferConfig

    gpu = environment.has_nvidia_gpu()
    settings: dict[str, Any] = {
        "model": model_path,
        "trust_remote_code": config.trust_remote_code,
        "dtype": compute_dtype(config, family),
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "seed": config.seed,
        "enforce_eager": not gpu if config.enforce_eager is None else config.enforce_eager,
        "enable_prefix_caching": True,
        # Log-probs of the policy that sampled: after temperature and the forbidden tokens.
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": WORKER_EXTENSION,
        "disable_log_stats": True,
        **_placement(config),
    }
    if weight_transfer is not None:
        settings["weight_transfer_config"] = WeightTransferConfig(backend=weight_transfer)
    if deterministic:
        # Asynchronous, the next step is put together while this one runs, or after it.
        settings["async_scheduling"] = False
    if gpu:
        settings |= {
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "enable_sleep_mode": sleep,
        }
    else:
        settings |= {
            "distributed_executor_backend": "uni",
            "kv_cache_memory_bytes": config.kv_cache_bytes,
            # A seeded request whose prefill is cut in two crashes the CPU engine; recurrent states
            # can only be cached where prefills are cut.
            "enable_chunked_prefill": False,
            "enable_prefix_caching": not family.has_linear_attention,
            "skip_mm_profiling": True,
            "use_tqdm_on_load": False,
        }
    return AsyncEngineArgs(**settings)


def _placement(config: EngineConfig) -> dict[str, Any]:
    """What depends on the number of GPUs: how media reach them and who encodes what."""
    settings: dict[str, Any] = {
        "tensor_parallel_size": config.tensor_parallel_size,
        "mm_processor_cache_gb": config.media_cache_gb,
    }
    if config.tensor_parallel_size == 1:
        return settings
    settings["mm_encoder_tp_mode"] = config.vision_parallel.value
    if config.media_cache_gb > 0:
        _check_shared_memory(config)
        # The frames are loaded and cut into patches once, in the process that asks. vLLM's other
        # cache would then send them through a pipe to each GPU's worker with every new request;
        # this one writes them once and sends an address.
        settings |= {
            "mm_processor_cache_type": "shm",
            # Its default of 128 MiB is less than one long video, which would go by pipe again.
            "mm_shm_cache_max_object_size_mb": max(1, int(config.media_cache_gb * 1024)),
        }
    return settings


def _check_shared_memory(config: EngineConfig) -> None:
    """A write beyond the end of `/dev/shm` would kill the engine without a word."""
    stats = os.statvfs(SHARED_MEMORY)
    free_gb = stats.f_bavail * stats.f_frsize / 1024**3
    if free_gb < config.media_cache_gb:
        raise UserError(
            f"engine.media_cache_gb={config.media_cache_gb:g} needs as much in {SHARED_MEMORY} at "
            f"tensor_parallel_size={config.tensor_parallel_size}, but {free_gb:.2f} GiB are free; "
            "lower it, or give the container more shared memory (docker run --shm-size=16g)"
        )


def compute_dtype(config: EngineConfig, family: "FamilyAdapter") -> str:
    """`float32` or `bfloat16`, where `engine.dtype` does not say another."""
    if config.dtype != "auto":
        return config.dtype
    # vLLM's linear attention has a CPU kernel for bfloat16 alone.
    needs_bfloat16 = environment.has_nvidia_gpu() or family.has_linear_attention
    return "bfloat16" if needs_bfloat16 else "float32"
