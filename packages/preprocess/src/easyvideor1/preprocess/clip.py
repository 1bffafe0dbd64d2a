"""A decoded clip: the frames a model is shown, and where in the source they come from.

Made by `decode`, stored by `cache`, read by model input builders and reports. No torch.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

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
    """[T] in the whole source, also when the sample shows a span of it."""
    timestamps_s: tuple[float, ...]
    """[T] frame_indices / source_fps: seconds from the first frame of the source."""
    sample_fps: float
    """Frames shown per second of the span."""
    total_frames: int
    """Of the whole source."""
    duration_s: float
    """Of the whole source."""
    width: int
    """Of the source, in pixels, as it is displayed."""
    height: int
    """Of the source, in pixels, as it is displayed."""
    decoder: str
    """`torchcodec`, `pyav` or `pillow`."""
    decoder_version: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON-serialisable values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ClipMetadata":
        """The inverse of `as_dict`, also after a trip through JSON."""
        return cls(
            **values
            | {
                "frame_indices": tuple(values["frame_indices"]),
                "timestamps_s": tuple(values["timestamps_s"]),
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """Sampled and resized frames of one medium. An image is a clip of one frame."""

    kind: MediaKind
    frames: np.ndarray = field(repr=False)
    """uint8 [T, 3, H, W] RGB, C-contiguous; may be a read-only view of a mapped cache file."""
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
