"""Decoding in a child process that can be killed: the deadline and the memory of one medium.

FFmpeg can hang, crash or run out of memory on a damaged file, and no thread can be stopped from
outside. The parent asks, waits as long as the deadline allows, and kills. The frames come back in
memory that both map; what FFmpeg complains of on the child's standard error becomes a note.
"""

import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Self

import numpy as np

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.config import DecodeConfig
from easyvideor1.preprocess.decode import media_name
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.ffmpeg_messages import Messages, sort_messages
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media

START_TIMEOUT_S = 300.0
"""For the child to import torch and its decoder, which does not count against a deadline."""

MAX_MESSAGE_BYTES = 1024 * 1024
"""Of one medium's messages; a long damaged video has one for each of its frames."""


class KillableDecoder:
    """Decodes one medium at a time in a child process, which is started on use.

    The child ends with the thread that started it, so all calls should come from one thread.

    Args:
        config: decoder and limits.
    """

    def __init__(self, config: DecodeConfig):
        self._config = config
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def decode(self, media: Media, budget: FrameBudget, rules: FamilyRules) -> Clip:
        """As `decode.decode`, within the limits. Frames are memory shared with nobody else.

        Raises:
            DecodeError: if the medium gives no frames, exceeds a limit or kills the decoder.
            UserError: if the decoder or the device cannot be had here.
        """
        if self._child and (
            self._child.has_ended() or self._child.num_served >= self._config.recycle_after
        ):
            self.close()
        child = self._started()
        try:
            clip = child.decode(media, budget, rules, self._config)
        except TimeoutError:
            self.close()
            reason = f"took longer than decode.deadline_s={self._config.deadline_s:g}"
            raise DecodeError(media_name(media), reason) from None
        except (EOFError, ConnectionError):
            reason = f"the decoder process {child.last_words()}"
            self.close()
            raise DecodeError(media_name(media), reason) from None
        messages = child.new_messages()
        sys.stderr.write(messages.other)
        if not messages.errors:
            return clip
        repairs = (*clip.metadata.repairs, messages.note())
        return replace(clip, metadata=replace(clip.metadata, repairs=repairs))

    def close(self) -> None:
        """Kill the child, whatever it is doing. The next `decode` starts another."""
        if self._child is not None:
            self._child.kill()
        self._child = None

    def _started(self) -> "_Child":
        if self._child is None:
            self._child = _Child(self._config)
        return self._child


class _Child:
    """A running decoder process."""

    def __init__(self, config: DecodeConfig):
        self.num_served = 0
        self._stderr = os.memfd_create("evr-decoder-messages")
        # The child writes where the file ends, also after the parent has emptied it.
        fcntl.fcntl(self._stderr, fcntl.F_SETFL, os.O_APPEND)
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "easyvideor1.preprocess.decode_child"),
                    *(str(theirs.fileno()), config.decoder.value, config.device.value),
                ],
                pass_fds=[theirs.fileno()],
                stderr=self._stderr,
                # One decoder per core; its libraries must not start a thread for each core as well.
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHCODEC_FFMPEG_LOG_LEVEL": "ERROR"},
            )
        self._connection = Connection(ours.detach())
        self._await_start()

    def _await_start(self) -> None:
        try:
            if self._connection.poll(START_TIMEOUT_S):
                self._connection.recv()
                return
        except (EOFError, ConnectionError):
            pass
        self.process.kill()
        words = self.last_words()
        self.kill()
        raise RuntimeError(f"the decoder process did not start; it {words}")

    def decode(
        self, media: Media, budget: FrameBudget, rules: FamilyRules, config: DecodeConfig
    ) -> Clip:
        """Ask and wait.

        Raises:
            TimeoutError: after the deadline.
            EOFError, ConnectionError: if the child has died.
            UserError: as the child says.
        """
        self.num_served += 1
        self._connection.send((media, budget, rules, config))
        if not self._connection.poll(config.deadline_s):
            raise TimeoutError
        answer = self._connection.recv()
        if isinstance(answer, UserError):
            raise self._with_cause(answer)
        shape, metadata = answer
        frames = _map_frames(reduction.recv_handle(self._connection), shape)
        return Clip(kind=media.kind, frames=frames, metadata=metadata)

    def _with_cause(self, error: UserError) -> UserError:
        """An error with FFmpeg's own words: `Invalid data` alone does not say which."""
        messages = self.new_messages()
        if isinstance(error, DecodeError) and messages.errors:
            return DecodeError(error.path, f"{error.reason} ({messages.errors[0]})")
        return error

    def has_ended(self) -> bool:
        """Whether the child died while nobody asked anything of it."""
        return self.process.poll() is not None

    def new_messages(self) -> Messages:
        """What FFmpeg wrote since the last call; all else goes to our own standard error."""
        text = os.pread(self._stderr, MAX_MESSAGE_BYTES, 0).decode(errors="replace")
        os.ftruncate(self._stderr, 0)
        messages = sort_messages(text)
        sys.stderr.write(messages.other)
        return messages

    def last_words(self) -> str:
        """How the child ended, and what it wrote last."""
        code = self.process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        if code == -signal.SIGKILL:
            how += ", as a system out of memory does"
        if (
            lines := os.pread(self._stderr, MAX_MESSAGE_BYTES, 0)
            .decode(errors="replace")
            .split("\n")
        ):
            written = " ".join(" ".join(lines[-3:]).split())
            return f"{how}: {written[-300:]}" if written else how
        return how

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._connection.close()
        os.close(self._stderr)


def _map_frames(descriptor: int, shape: tuple[int, ...]) -> np.ndarray:
    """The child's frames; mapped for as long as the array or a view of it lives."""
    try:
        return np.ndarray(shape, np.uint8, mmap.mmap(descriptor, int(np.prod(shape))))
    finally:
        os.close(descriptor)
