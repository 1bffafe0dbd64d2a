"""Frames of a sample as inline images of a page, until the page is full.

They come from the store that the engine was fed from; small ones are embedded losslessly, large
ones as JPEG, and the caption says which. Used by `report` and by training, for its pages of samples
and for endpoints that are asked about frames.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample

if TYPE_CHECKING:
    import numpy as np

    from easyvideor1.preprocess.clip import Clip

LOSSLESS_PIXELS = 128 * 128
"""Frames up to this size are PNG, the exact pixels; larger ones JPEG."""
JPEG_QUALITY = 85


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownFrame:
    """One inline image."""

    uri: str
    time_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMedium:
    """The frames of one medium, and what is to be said of them."""

    frames: list[ShownFrame]
    caption: str


class ShownFrames:
    """Turns clips into inline images until the page is full.

    Args:
        max_frames: of each medium, spread evenly.
        max_bytes: of all images together; media after that have a caption alone.
        limit: how a caption names that limit.
        max_side: of large frames, in pixels; longer ones are shown smaller. None: as they are.
    """

    def __init__(self, max_frames: int, max_bytes: int, limit: str, max_side: int | None = None):
        self._max_frames = max_frames
        self._max_side = max_side
        self._room = max_bytes
        self._limit = limit

    def of(self, load: "Callable[[Sample], list[Clip]]", sample: Sample) -> list[ShownMedium]:
        """The media of a sample as the page shows them; one that cannot be loaded says why."""
        if self._room <= 0:
            return [ShownMedium(frames=[], caption=f"frames left out: {self._limit}")]
        try:
            clips = load(sample)
        except UserError as error:
            return [ShownMedium(frames=[], caption=str(error))]
        return [self._medium(clip) for clip in clips]

    def _medium(self, clip: "Clip") -> ShownMedium:
        count, _, height, width = clip.shape
        wanted = self._max_frames
        shown = range(count) if count <= wanted else _spread(count, wanted)
        frames = [
            ShownFrame(
                uri=self._shown(clip.frames[index]), time_s=clip.metadata.timestamps_s[index]
            )
            for index in shown
        ]
        self._room -= sum(len(frame.uri) for frame in frames)
        part = "" if len(frames) == count else f"{len(frames)} of "
        caption = f"{part}{count} frames of {width} x {height}{self._treatment(height, width)}"
        return ShownMedium(frames=frames, caption=caption)

    def _treatment(self, height: int, width: int) -> str:
        """What a caption says about the loss of large frames."""
        if height * width <= LOSSLESS_PIXELS:
            return ""
        if (size := self._smaller(height, width)) is None:
            return ", as JPEG"
        return f", as JPEG of {size[1]} x {size[0]}"

    def _smaller(self, height: int, width: int) -> tuple[int, int] | None:
        """Height and width to show a large frame in; None: its own."""
        longer = max(height, width)
        if self._max_side is None or longer <= self._max_side:
            return None
        scale = self._max_side / longer
        return max(1, round(height * scale)), max(1, round(width * scale))

    def _shown(self, frame: "np.ndarray") -> str:
        """A frame, uint8 [3, H, W], as the page embeds it."""
        _, height, width = frame.shape
        if height * width <= LOSSLESS_PIXELS:
            return data_uri(frame, "png", optimize=True)
        size = self._smaller(height, width)
        return data_uri(frame, "jpeg", size=size, quality=JPEG_QUALITY)


def _spread(count: int, wanted: int) -> list[int]:
    """`wanted` indices below `count`, evenly, with the first and the last."""
    if wanted == 1:
        return [0]
    return [round(index * (count - 1) / (wanted - 1)) for index in range(wanted)]


def data_uri(
    frame: "np.ndarray",
    kind: Literal["png", "jpeg"],
    *,
    size: tuple[int, int] | None = None,
    **settings: Any,
) -> str:
    """A frame, uint8 [3, H, W], as an inline image; PNG of its own size changes no pixel.

    Args:
        frame: to encode.
        kind: of the image.
        size: height and width of the image; None: those of the frame.
        settings: of the encoder, as Pillow takes them.
    """
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(frame.transpose(1, 2, 0))
    if size is not None:
        image = image.resize((size[1], size[0]))
    image.save(buffer, kind, **settings)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
