"""Image files as upright 8-bit RGB, whatever their mode; also lists of them that make up a video.

Transparency is laid on white, as qwen-vl-utils does, and deeper grey is scaled to 8 bits: Pillow's
own conversion would show a transparent diagram as black on black, and clip 16 bits to white.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from easyvideor1.preprocess.frame_index import evenly_spaced

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

MAX_UINT8, MAX_UINT16 = 255, 65_535


def open_image(path: str) -> "Image":
    """The image at `path`, upright, as RGB.

    Raises:
        OSError: if it is no image or is cut off.
        PIL.Image.DecompressionBombError: if it has more than twice `PIL.Image.MAX_IMAGE_PIXELS`.
    """
    return read_image(path)[0]


def read_image(path: str) -> tuple["Image", tuple[str, ...]]:
    """As `open_image`, with a note on each thing that is unusual about the file."""
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        notes: list[str] = []
        if getattr(image, "n_frames", 1) > 1:
            notes.append(f"has {getattr(image, 'n_frames')} frames, of which the first is shown")  # noqa: B009
        upright: Any = ImageOps.exif_transpose(image)
        return _to_rgb(upright, notes), tuple(notes)


def image_size(path: str) -> tuple[int, int]:
    """Height and width of the image at `path`, upright, from its header."""
    from PIL import ExifTags, Image

    with Image.open(path) as image:
        # Orientations 5 to 8 turn by a quarter.
        is_turned = image.getexif().get(ExifTags.Base.Orientation, 1) > 4
        return (image.width, image.height) if is_turned else (image.height, image.width)


def _to_rgb(image: "Image", notes: list[str]) -> "Image":
    if image.mode.startswith("I") or image.mode == "F":
        return _deep_grey_to_rgb(image, notes)
    if image.has_transparency_data:
        return _on_white(image.convert("RGBA"), notes)
    return image.convert("RGB")


def _on_white(image: "Image", notes: list[str]) -> "Image":
    from PIL import Image

    alpha = image.getchannel("A")
    if np.asarray(alpha).min() < MAX_UINT8:
        notes.append("its transparent parts are laid on white")
    canvas = Image.new("RGB", image.size, (MAX_UINT8,) * 3)
    canvas.paste(image, mask=alpha)
    return canvas


def _deep_grey_to_rgb(image: "Image", notes: list[str]) -> "Image":
    """Of 16 or 32 bits or floating point, scaled so that the whole range remains visible."""
    from PIL import Image

    values = np.nan_to_num(np.asarray(image).astype(np.float64))
    low, high = _grey_range(values, image.mode)
    notes.append(f"its grey values from {low:g} to {high:g} are scaled to 8 bits")
    scaled = (values - low) / (high - low or 1.0) * MAX_UINT8
    return Image.fromarray(scaled.round().clip(0, MAX_UINT8).astype(np.uint8)).convert("RGB")


def _grey_range(values: np.ndarray, mode: str) -> tuple[float, float]:
    """The range that the mode means, or else the values: 0 to 1, 8 bits, 16 bits, their own."""
    if mode.startswith("I;16"):
        return 0.0, float(MAX_UINT16)
    low, high = float(values.min()), float(values.max())
    for limit in (1.0, float(MAX_UINT8), float(MAX_UINT16))[mode != "F" :]:
        if low >= 0 and high <= limit:
            return 0.0, limit
    return low, high


class ImageFiles:
    """A video given as a list of image files, all of one size.

    Args:
        paths: in the order they are shown.
        fps: at which they are shown.
    """

    def __init__(self, paths: Sequence[str], fps: float):
        self._paths = paths
        self.index = evenly_spaced(len(paths), fps)
        self.repairs: tuple[str, ...] = ()
        first = open_image(paths[0])
        self.height, self.width = first.height, first.width

    def read(self, positions: Sequence[int]) -> Iterator[tuple[int, "Tensor"]]:
        """Frames uint8 [3, height, width] RGB with their positions.

        Raises:
            ValueError: if a frame is of another size than the first.
        """
        import torch

        repairs: dict[str, None] = {}
        for position in positions:
            image, notes = read_image(self._paths[position])
            if image.size != (self.width, self.height):
                raise ValueError(
                    f"{self._paths[position]} is {image.width}x{image.height}, "
                    f"the first frame {self.width}x{self.height}"
                )
            repairs.update(dict.fromkeys(notes))
            self.repairs = tuple(repairs)
            yield position, torch.from_numpy(np.array(image)).permute(2, 0, 1)
