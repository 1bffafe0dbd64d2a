"""Decoding in a child process that can be killed: the wall-clock deadline of one medium.

FFmpeg can hang or crash on a damaged file, and no thread can be stopped from outside. The parent
asks, waits as long as the deadline allows, and kills. Used by `engine`'s workers.
"""

import os
import signal
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from typing import Self

import numpy as np

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media

START_TIMEOUT_S = 300.0
"""For the child to import torch and its decoder, which does not count against a deadline."""


class KillableDecoder:
    """Decodes one medium at a time in a child process, which is started on use.

    Args:
        config: decoder and deadline.
    """

    def __init__(self, config: DecodeConfig):
        self._config = config
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, media: Media, budget: FrameBudget, rules: FamilyRules) -> Clip:
        """As `decode.decode`, within the deadline.

        Raises:
            DecodeError: if the medium gives no frames, takes too long or kills the decoder.
        """
        process, connection = self._started()
        connection.send((media, budget, rules, self._config))
        try:
            if not connection.poll(self._config.deadline_s):
                self.close()
                reason = f"took longer than decode.deadline_s={self._config.deadline_s:g}"
                raise DecodeError(media_name(media), reason)
            answer = connection.recv()
            if isinstance(answer, DecodeError):
                raise answer
            shape, metadata = answer
            frames = np.empty(shape, np.uint8)
            connection.recv_bytes_into(frames.data.cast("B"))
        except (EOFError, ConnectionResetError):
            died = _exit_text(process.wait())
            self.close()
            raise DecodeError(media_name(media), f"the decoder process {died}") from None
        return Clip(kind=media.kind, frames=frames, metadata=metadata)

    def close(self) -> None:
        """Kill the child, whatever it is doing. The next `decode` starts another."""
        if self._process is not None and self._connection is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()
        self._process = self._connection = None

    def _started(self) -> tuple[subprocess.Popen, Connection]:
        if self._process is None or self._connection is None:
            self._process, self._connection = _start()
        return self._process, self._connection


def _start() -> tuple[subprocess.Popen, Connection]:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "easyvideor1.preprocess.decode_child", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        # One decoder per core; its libraries must not start a thread for each core as well.
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    theirs.close()
    connection = Connection(ours.detach())
    try:
        if connection.poll(START_TIMEOUT_S):
            connection.recv()
            return process, connection
    except EOFError:
        pass
    process.kill()
    raise RuntimeError(f"the decoder process did not start; it {_exit_text(process.wait())}")


def _exit_text(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"
