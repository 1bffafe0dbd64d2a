"""What runs inside vLLM's worker processes: our weight backends, and an end with their owner.

vLLM imports this module in each worker because `worker_extension_cls` names it, before the model
is loaded. Nothing else imports it.
"""

import multiprocessing
import os
import select
import signal
import threading

from easyvideor1.evaluate import quiet, weights  # noqa: F401  weights registers the backends
from easyvideor1.evaluate.fast_start import OWNER_PID

quiet.silence_expected_warnings()


class WorkerExtension:
    """Adds no methods to vLLM's worker; naming it is what imports this module."""


def _end_with_owner() -> None:
    """End this process when the one that started the engine has ended, even by SIGKILL.

    vLLM's engine process waits for requests for ever; nothing tells it that nobody is left to send
    one. Under tensor parallelism this runs in a child of the engine process, which goes first.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    in_engine_child = parent.name.startswith("EngineCore")
    owner = int(os.environ[OWNER_PID]) if in_engine_child else parent.pid
    process = os.pidfd_open(owner)

    def wait() -> None:
        select.select([process], [], [])
        if in_engine_child:
            os.kill(parent.pid, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, name="evr-owner", daemon=True).start()


_end_with_owner()
