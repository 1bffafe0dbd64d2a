"""A video with its frames out of order: the control of algorithms that reward looking at the order.

A pure function of clip and seed. Called by the rollouts of train.
"""

import hashlib
from dataclasses import replace

import numpy as np

from easyvideor1.preprocess.clip import Clip
from easyvideor1.schema.records import MediaKind


def shuffled(clip: Clip, seed: int) -> Clip:
    """The frames of a video in another order, at the times of the old one.

    Number, size and times of the frames stay, so that the prompt is the same token by token. The
    key tells the order, so that no cache takes one clip for the other.

    Args:
        clip: an image, and a video whose frames are all equal, come back as they are; every other
            video comes back with frames that are not those of the clip.
        seed: of the order.
    """
    if clip.kind is not MediaKind.video:
        return clip
    order = np.random.default_rng(seed).permutation(len(clip.frames))
    frames = clip.frames[order]
    if np.array_equal(frames, clip.frames):  # a draw of the old order, or of equal frames
        order = np.roll(np.arange(len(clip.frames)), 1)
        frames = clip.frames[order]
        if np.array_equal(frames, clip.frames):
            return clip
    digest = hashlib.blake2b(order.astype("<u4").tobytes(), digest_size=8).hexdigest()
    return replace(clip, frames=frames, key=f"{clip.key}-shuffled-{digest}")
