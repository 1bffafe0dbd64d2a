"""A decoded clip: the frames a model is shown, and where in the source they come from.

Made by `decode`, stored by `cache`, read by model input builders and reports. A `ClipShape` is a
clip without its pixels, for whoever only measures. No torch.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from easyvideor1.schema.records import MediaKind


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipMetadata:
    """Where the frames of a clip come from; T frames.

    Example:
        ClipMetadata(source_fps=25.0, frame_indices=(0, 44, 87, 131), sample_fps=0.76,
                     timestamps_s=(0.0, 1.76, 3.48, 5.24), total_frames=132, duration_s=5.28,
                     width=1280, height=720, decoder="torchcodec", decoder_version="0.17.0")
    """

    source_fps: float
    """Average rate of the source; of an image, 1."""
    frame_indices: tuple[int, ...]
    """[T] of the frames shown, in the whole source, also when the sample shows a span of it. They
    do not descend; a frame that is displayed for long may occur more than once."""
    timestamps_s: tuple[float, ...]
    """[T] seconds from the first frame of the source. At a constant rate frame_indices over
    source_fps."""
    sample_fps: float
    """Frames shown per second of the span."""
    total_frames: int
    """Of the whole source; those that can be decoded."""
    duration_s: float
    """Of the whole source."""
    width: int
    """Of the source, in pixels, as it is displayed."""
    height: int
    """Of the source, in pixels, as it is displayed."""
    decoder: str
    """`torchcodec`, `torchcodec:cuda`, `pyav` or `pillow`."""
    decoder_version: str
    snapped: bool = False
    """Whether key frames stand in for the frames that the sampling rule chose."""
    repairs: tuple[str, ...] = ()
    """What is unusual or wrong about the source and how it was read, a sentence each."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON-serialisable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ClipMetadata":
        """The inverse of `as_dict`, also after a trip through JSON."""
        sequences = ("frame_indices", "timestamps_s", "repairs")
        return cls(**values | {name: tuple(values.get(name, ())) for name in sequences})


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """Sampled and resized frames of one medium. An image is a clip of one frame."""

    kind: MediaKind
    frames: np.ndarray = field(repr=False)
    """uint8 [T, 3, H, W] RGB, C-contiguous; may be a view of a mapped cache file, then read-only,
    or of memory shared with a decoder process."""
    metadata: ClipMetadata
    key: str = ""
    """Cache key, also the media uuid for the engine's encoder cache."""

    def __post_init__(self) -> None:
        frames = self.frames
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[1] != 3:
            raise ValueError(
                f"frames must be uint8 [T, 3, H, W], got {frames.dtype} {frames.shape}"
            )
        if len(frames) == 0 or len(frames) != len(self.metadata.frame_indices):
            raise ValueError(
                f"{len(frames)} frames but {len(self.metadata.frame_indices)} frame indices"
            )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T, 3, H, W)."""
        num_frames, channels, height, width = self.frames.shape
        return num_frames, channels, height, width

    @property
    def timestamps_s(self) -> tuple[float, ...]:
        """[T] seconds from the first frame of the source."""
        return self.metadata.timestamps_s

    @property
    def sample_fps(self) -> float:
        """Frames shown per second of the span."""
        return self.metadata.sample_fps


class ClipLike(Protocol):
    """What tokens and positions of a prompt depend on: a `Clip` has it, and a `ClipShape`."""

    @property
    def kind(self) -> MediaKind: ...

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(T, 3, H, W)."""
        ...

    @property
    def timestamps_s(self) -> tuple[float, ...]:
        """[T] seconds from the first frame of the source."""
        ...

    @property
    def sample_fps(self) -> float:
        """Frames shown per second of the span."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ClipShape:
    """A clip without its pixels, as `ClipLike` describes its fields.

    Example:
        ClipShape(kind=MediaKind.video, shape=(4, 3, 64, 96), timestamps_s=(0.0, 0.5, 1.0, 1.5),
                  sample_fps=2.0)
    """

    kind: MediaKind
    shape: tuple[int, int, int, int]
    timestamps_s: tuple[float, ...]
    sample_fps: float
