"""The child of `killable`: answers one decode request after another until its parent is gone.

Run as `python -m easyvideor1.preprocess.decode_child DESCRIPTOR`.
"""

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


def serve(connection: Connection) -> None:
    """Say that we are ready, then answer (media, budget, rules, config) until the end of input."""
    import torch

    torch.set_num_threads(1)
    connection.send(os.getpid())
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            clip = decode(*request)
        except DecodeError as error:
            # Without its cause, which may not be picklable.
            connection.send(DecodeError(error.path, error.reason))
            continue
        connection.send((clip.shape, clip.metadata))
        connection.send_bytes(clip.frames.data.cast("B"))


def _die_with_parent() -> None:
    """A child in the middle of a decode does not notice that its parent was killed."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    _die_with_parent()
    serve(Connection(int(sys.argv[1])))
