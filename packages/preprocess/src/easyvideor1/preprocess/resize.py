"""Resizing of frames and images to the size that `geometry` gives, with each convention's filter.

Called by `decode` on blocks of frames and by the image reader. torch and torchvision are imported
on the first call.
"""

from typing import TYPE_CHECKING

import numpy as np

from easyvideor1.schema.budget import Convention

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


def resize_frames(frames: "Tensor", height: int, width: int, convention: Convention) -> "Tensor":
    """uint8 [n, 3, H, W] to [n, 3, height, width], bicubic with antialias.

    The Hugging Face processors (torchvision's v2 function) compute in integers, qwen-vl-utils'
    `fetch_video` (the first function of that name) in float32: at sharp edges their pixels differ.
    """
    if convention is Convention.qwen_vl_utils:
        return _resize_in_float(frames, height, width)
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as transforms

    return transforms.resize(
        frames, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True
    )


def _resize_in_float(frames: "Tensor", height: int, width: int) -> "Tensor":
    from torchvision.transforms import InterpolationMode, functional

    resized = frames.new_empty((len(frames), 3, height, width))
    # One by one: a block in float32 would take four times its memory and twice the time.
    for index in range(len(frames)):
        resized[index] = functional.resize(
            frames[index], [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True
        )
    return resized


def resize_image(image: "Image", height: int, width: int, convention: Convention) -> np.ndarray:
    """An RGB image as uint8 [height, width, 3].

    The Hugging Face image processors resize as for videos; qwen-vl-utils' `fetch_image` uses
    Pillow's own bicubic filter, whose pixels differ by a few grey levels.
    """
    if convention is Convention.qwen_vl_utils:
        return np.asarray(image.resize((width, height)))
    from torchvision.transforms.v2 import functional as transforms

    frames = transforms.pil_to_tensor(image)[None]
    resized = resize_frames(frames, height, width, convention)[0]
    return resized.permute(1, 2, 0).contiguous().numpy()
