"""vLLM's engine process, started from a server that has imported vLLM already.

Without a GPU the engine process would import everything again after this process did: 17 s on two
cores, against 4 s when a `multiprocessing` fork server imports it at the same time. With a GPU the
engine is spawned as vLLM does it. Called by `engine`, and early by commands that will need one.
"""

import multiprocessing
import os
from multiprocessing import forkserver

from easyvideor1.schema import environment

OWNER_PID = "EVR_ENGINE_OWNER_PID"
"""Variable in the engine's processes: the process whose end is theirs (see `worker`)."""

_PRELOAD = [
    "easyvideor1.evaluate.quiet",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.qwen3_vl",
    "easyvideor1.evaluate.weights",
]


def begin() -> None:
    """Start importing vLLM in the background. Returns at once; harmless if no engine follows."""
    environment.prepare()
    os.environ[OWNER_PID] = str(os.getpid())
    if not environment.has_nvidia_gpu():
        multiprocessing.set_forkserver_preload(_PRELOAD)
        forkserver.ensure_running()


def use_fork_server() -> None:
    """Make vLLM start its engine process from the fork server, where there is no GPU."""
    begin()
    if environment.has_nvidia_gpu():
        return
    from vllm.v1.engine import utils

    # vLLM 0.32 knows fork and spawn only, and forces spawn on a CPU. Forking this process is not an
    # option: its threads would not survive.
    utils.get_mp_context = lambda: multiprocessing.get_context("forkserver")
