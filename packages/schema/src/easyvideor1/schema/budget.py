"""How many frames and pixels a medium may cost. Part of the cache key and of the protocol."""

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from easyvideor1.schema.errors import UserError


class Convention(StrEnum):
    """Whose rule turns a budget into frame indices and a size. Tests hold ours beside both."""

    transformers = "transformers"
    """The video and image processor of the model family, without `cap_pixels_per_frame`."""
    qwen_vl_utils = "qwen_vl_utils"
    """`fetch_video` and `fetch_image` of qwen-vl-utils 0.0.14: an even number of frames, each of at
    most 768 tokens and its even share of `total_pixels`."""


class Snap(StrEnum):
    """Which frame of a video is shown where the rule chose one."""

    exact = "exact"
    """The very frame."""
    keyframe = "keyframe"
    """The key frame nearest in time: far less to decode in hour-long videos."""


@dataclass(kw_only=True, slots=True)
class FrameBudget:
    """Limits on one medium; the sampling and geometry rules of the model family apply them.

    For an image only the pixel limits count. A config, hence not frozen.
    """

    fps: float = 2.0
    """Frames per second to sample."""
    min_frames: int = 4
    max_frames: int = 128
    min_pixels: int = 4_096
    """Per frame, H x W after resizing."""
    max_pixels: int = 262_144
    """Per frame, H x W after resizing."""
    total_pixels: int | None = None
    """Over all frames, T x H x W after resizing. None is no limit with `transformers`; with
    `qwen_vl_utils` the library's own, 0.9 x 128,000 tokens of two frames each."""
    convention: Convention = Convention.transformers
    snap: Snap = Snap.exact

    def __post_init__(self) -> None:
        if not 0 < self.fps < math.inf:
            raise UserError(f"budget fps must be above 0 and finite, got {self.fps}")
        if not 1 <= self.min_frames <= self.max_frames:
            raise UserError(
                "budget needs 1 <= min_frames <= max_frames, "
                f"got min_frames={self.min_frames} max_frames={self.max_frames}"
            )
        if not 1 <= self.min_pixels <= self.max_pixels:
            raise UserError(
                "budget needs 1 <= min_pixels <= max_pixels, "
                f"got min_pixels={self.min_pixels} max_pixels={self.max_pixels}"
            )
        if self.total_pixels is not None and self.total_pixels < self.min_pixels:
            raise UserError(
                f"budget total_pixels={self.total_pixels} is below min_pixels={self.min_pixels}"
            )

    def as_dict(self) -> dict[str, float | int | str | None]:
        """The limits as plain values, for keys and fingerprints."""
        # `torch.load(weights_only=True)`, which reads .pt caches, refuses members of an enum.
        return asdict(self) | {"convention": self.convention.value, "snap": self.snap.value}


@dataclass(kw_only=True, slots=True)
class Budgets:
    """Budgets by modality, and apart for validation. The `budget` config group."""

    video: FrameBudget = field(default_factory=FrameBudget)
    image: FrameBudget = field(default_factory=lambda: FrameBudget(max_pixels=1_048_576))
    validation_video: FrameBudget | None = None
    """None: as `video`."""
    validation_image: FrameBudget | None = None
    """None: as `image`."""

    def of(self, kind: str, *, validation: bool = False) -> FrameBudget:
        """The budget for `image` or `video`."""
        if kind == "image":
            return (self.validation_image if validation else None) or self.image
        return (self.validation_video if validation else None) or self.video
