"""Resizing of frames and images to the size that `geometry` gives, with each convention's filter.

Called by `decode`, frame by frame. torch is imported on the first call.
torchvision's functions are what the processors call. They add no arithmetic to torch's, and
importing them takes a decoder process of PyAV as long again as all the rest.
"""

from typing import TYPE_CHECKING

import numpy as np

from easyvideor1.schema.budget import Convention

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor


def resize_frame(frame: "Tensor", height: int, width: int, convention: Convention) -> "Tensor":
    """uint8 [3, H, W] to [3, height, width], bicubic with antialias.

    The Hugging Face processors (torchvision's v2 `resize`) compute in integers, on a GPU and in
    qwen-vl-utils' `fetch_video` (torchvision's first `resize`) in float32: at sharp edges their
    pixels differ.
    """
    if tuple(frame.shape[1:]) == (height, width):
        return frame
    if convention is Convention.transformers and not frame.is_cuda:
        # A batch made where the channels are last has the step of one, by which torch tells that
        # they are; else it would copy the frame.
        batch = frame.permute(1, 2, 0)[None].permute(0, 3, 1, 2)
        return _interpolate(batch, height, width)[0]
    exact = _interpolate(frame[None].float(), height, width)[0]
    return exact.clamp_(0, 255).round_().to(frame.dtype)


def _interpolate(batch: "Tensor", height: int, width: int) -> "Tensor":
    from torch.nn.functional import interpolate

    return interpolate(
        batch, size=(height, width), mode="bicubic", align_corners=False, antialias=True
    )


def resize_image(image: "Image", height: int, width: int, convention: Convention) -> np.ndarray:
    """An RGB image as uint8 [height, width, 3].

    The Hugging Face image processors resize as for videos; qwen-vl-utils' `fetch_image` uses
    Pillow's own bicubic filter, whose pixels differ by a few grey levels.
    """
    if convention is Convention.qwen_vl_utils:
        return np.asarray(image.resize((width, height)))
    import torch

    frame = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    resized = resize_frame(frame, height, width, convention)
    return resized.permute(1, 2, 0).contiguous().numpy()
