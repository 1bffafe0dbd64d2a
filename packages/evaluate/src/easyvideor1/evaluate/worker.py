"""What runs inside vLLM's worker processes: our weight backend, and an end with their owner.

vLLM imports this module in each worker because `worker_extension_cls` names it, before the model
is loaded. Nothing else imports it.
"""

import multiprocessing
import os
import select
import signal
import threading

from easyvideor1.evaluate import weights  # noqa: F401  registers the backend
from easyvideor1.evaluate.fast_start import OWNER_PID


class WorkerExtension:
    """Adds no methods to vLLM's worker; naming it is what imports this module."""


def _end_with_owner() -> None:
    """End this process when the one that started the engine has ended, even by SIGKILL.

    vLLM's engine process waits for requests for ever; nothing tells it that nobody is left to send
    one. Under tensor parallelism this runs in a child of the engine process, which goes first.
    """
    owner, parent = int(os.environ[OWNER_PID]), multiprocessing.parent_process()
    process = os.pidfd_open(owner)

    def wait() -> None:
        select.select([process], [], [])
        if parent is not None and parent.pid is not None and parent.pid != owner:
            os.kill(parent.pid, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, name="evr-owner", daemon=True).start()


_end_with_owner()
