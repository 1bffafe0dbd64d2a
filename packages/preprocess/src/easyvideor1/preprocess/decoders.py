"""Which decoder reads a medium: torchcodec, PyAV or, for pictures, Pillow; chosen in the open.

A source, once opened, knows its frames before any is decoded and decodes only those it is asked
for. torch, torchcodec, PyAV and Pillow are imported when a source is opened.
"""

import functools
import importlib.metadata
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from easyvideor1.preprocess.config import Decoder, Device
from easyvideor1.preprocess.frame_index import FrameIndex
from easyvideor1.preprocess.images import ImageFiles
from easyvideor1.preprocess.video import VideoFile
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger(__name__)
_choosing = threading.Lock()
"""Many threads ask at once, and a first import that fails must be seen whole by each."""


class FrameSource(Protocol):
    """An opened video: a file, or a list of pictures."""

    @property
    def index(self) -> FrameIndex:
        """Its frames. May become shorter or even when the file turns out to be damaged."""
        ...

    @property
    def height(self) -> int:
        """Of the frames as `read` gives them, unless the source changes its size midway."""
        ...

    @property
    def width(self) -> int: ...

    @property
    def repairs(self) -> tuple[str, ...]:
        """What is unusual about the source and how it was read so far."""
        ...

    def read(self, positions: Sequence[int]) -> "Iterator[tuple[int, Tensor]]":
        """Frames uint8 [3, H, W] RGB with their positions; `positions` do not descend."""
        ...


def open_source(media: Media, decoder: str, device: Device = Device.cpu) -> FrameSource:
    """Open a video with the decoder that `decoder_for` names."""
    if media.frames:
        assert media.frames_fps is not None
        return ImageFiles(media.frames, fps=media.frames_fps)
    return VideoFile(media.path, decoder, device)


def check_device(device: Device, decoder: str) -> None:
    """Refuse `decode.device=cuda` where it cannot be had.

    Raises:
        UserError: if there is no GPU, or only PyAV, which does not use one.
    """
    if device is Device.cpu or decoder == "pillow":
        return
    if decoder != "torchcodec":
        raise UserError("decode.device=cuda needs torchcodec, which does not load here")
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            "decode.device=cuda needs an NVIDIA GPU and a PyTorch built for CUDA, and "
            f"torch {torch.__version__} sees none here; set decode.device=cpu"
        )


def decoder_for(media: Media, wanted: Decoder) -> str:
    """`pillow` for image files, else `torchcodec` or `pyav`."""
    is_video_file = media.kind is MediaKind.video and not media.frames
    return resolve_decoder(wanted) if is_video_file else "pillow"


def decoder_version(decoder: str) -> str:
    """Version of the library behind a decoder's name, which may end in its device."""
    library = decoder.partition(":")[0]
    distribution = {"pyav": "av"}.get(library, library)
    return importlib.metadata.version(distribution)


def resolve_decoder(wanted: Decoder) -> str:
    """The video decoder to use: `wanted`, or for `auto` the first that works here.

    Raises:
        UserError: if torchcodec is asked for by name and its FFmpeg libraries do not load.
    """
    if wanted is Decoder.pyav:
        return "pyav"
    with _choosing:
        problem = torchcodec_problem()
        if not problem:
            return "torchcodec"
        if wanted is Decoder.torchcodec:
            raise UserError(
                f"decode.decoder=torchcodec does not load: {problem}; "
                "install FFmpeg 4 to 8 with its shared libraries, or set decode.decoder=pyav"
            )
        _say_pyav(problem)
        return "pyav"


@functools.cache
def torchcodec_problem() -> str:
    """Why torchcodec cannot be used here, in one line; empty if it can."""
    try:
        import torchcodec
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    # The import alone says nothing: it succeeds without FFmpeg, for the sake of its image decoders.
    return "" if torchcodec.ffmpeg_major_version is not None else "it finds no FFmpeg libraries"


@functools.cache
def _say_pyav(problem: str) -> None:
    _log.warning("decoding with PyAV, because torchcodec does not load: %s", problem)
