"""Silences warnings that only say what `engine` chose on purpose, in vLLM's processes and ours."""

import logging
import warnings

from easyvideor1.schema import environment

LOGGERS = (
    # The media normaliser and rotary caches are computed, not loaded; `weights` checks the rest.
    "vllm.model_executor.model_loader.reload.layerwise",
    # About resizing frames, which are of their final size by then.
    "transformers.models.qwen3_vl.video_processing_qwen3_vl",
)
CPU_LOGGERS = (
    # Eager execution, whole prefills, one process, no Triton.
    "vllm.config.vllm",
    "vllm.engine.arg_utils",
    "vllm.platforms.cpu",
    "vllm.v1.worker.cpu_worker",
)


def silence_expected_warnings() -> None:
    """Call it after vLLM has set up its logging, which resets the levels of its loggers."""
    names = LOGGERS if environment.has_nvidia_gpu() else (*LOGGERS, *CPU_LOGGERS)
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)


# vLLM's walk over torch.distributed touches a name that torch is about to remove. On import, since
# that is what the fork server does with this module before it imports vLLM.
warnings.filterwarnings("ignore", ".*reduce_op.*", FutureWarning)
