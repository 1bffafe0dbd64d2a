"""The child of `killable`: answers one decode request after another until its parent is gone.

Run as `python -m easyvideor1.preprocess.decode_child DESCRIPTOR DECODER DEVICE`.
"""

import ctypes
import mmap
import os
import re
import resource
import signal
import sys
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from easyvideor1.preprocess.config import DecodeConfig, Decoder, Device
from easyvideor1.preprocess.decode import decode
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""

OUT_OF_MEMORY = re.compile("allocate memory|bad_alloc|out of memory", re.IGNORECASE)
"""How torch, the C++ library and CUDA say it; Python, NumPy and PyAV raise a MemoryError."""


def serve(connection: Connection, decoder: Decoder, device: Device) -> None:
    """Say that we are ready, then answer (media, budget, rules, config) until the end of input."""
    _load_libraries(decoder, device)
    connection.send(os.getpid())
    footprint = _data_bytes()
    while True:
        try:
            request = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        _answer(connection, footprint, *request)


def _answer(
    connection: Connection,
    footprint: int,
    media: Media,
    budget: FrameBudget,
    rules: FamilyRules,
    config: DecodeConfig,
) -> None:
    _limit_memory(footprint, config)
    shared = _SharedFrames(config)
    try:
        clip = decode(media, budget, rules, config, allocate=shared.allocate)
    except DecodeError as error:
        # Without its cause, which may not be picklable.
        connection.send(DecodeError(error.path, _reason(error, config)))
    except UserError as error:
        connection.send(error)
    else:
        connection.send((clip.shape, clip.metadata))
        reduction.send_handle(connection, shared.descriptor, os.getppid())
    finally:
        shared.close()


class _SharedFrames:
    """The frames of one clip, in memory that the parent maps as well."""

    def __init__(self, config: DecodeConfig):
        self._max_bytes = _limit_bytes(config)
        self.descriptor = -1

    def allocate(self, shape: tuple[int, int, int, int]) -> np.ndarray:
        """An array of frames. Of several only the last is sent."""
        num_bytes = int(np.prod(shape))
        if num_bytes > self._max_bytes:
            raise MemoryError(f"{num_bytes} bytes of frames")
        self.close()
        self.descriptor = os.memfd_create("evr-frames")
        os.ftruncate(self.descriptor, num_bytes)
        return np.ndarray(shape, np.uint8, mmap.mmap(self.descriptor, num_bytes))

    def close(self) -> None:
        """Let go of the memory; it lives on for as long as somebody maps it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


def _load_libraries(decoder: Decoder, device: Device) -> None:
    """What a first decode would import, so that it does not count against a deadline."""
    import av
    import PIL.Image
    import torch

    from easyvideor1.preprocess.decoders import torchcodec_problem

    torch.set_num_threads(1)
    if decoder is not Decoder.pyav and not torchcodec_problem():
        import torchcodec.decoders  # noqa: F401
    if device is Device.cuda and torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # makes CUDA reserve its share of memory
    PIL.Image.init()
    # As torchcodec's FFmpeg does: errors on standard error, where the parent reads them.
    av.logging.set_libav_level(av.logging.ERROR)
    av.logging.restore_default_callback()


def _limit_memory(footprint: int, config: DecodeConfig) -> None:
    """Let allocations fail beyond the limit, so that this medium fails and not the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = footprint + _limit_bytes(config)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _limit_bytes(config: DecodeConfig) -> int:
    return int(config.memory_gb * 1024**3)


def _data_bytes() -> int:
    """What RLIMIT_DATA counts: private writable memory, touched or not."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _reason(error: DecodeError, config: DecodeConfig) -> str:
    if isinstance(error.__cause__, MemoryError) or OUT_OF_MEMORY.search(error.reason):
        return f"needs more than decode.memory_gb={config.memory_gb:g}"
    return error.reason


def _die_with_parent() -> None:
    """A child in the middle of a decode does not notice that its parent was killed."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    _die_with_parent()
    serve(Connection(int(sys.argv[1])), Decoder(sys.argv[2]), Device(sys.argv[3]))
