"""The control shows other frames: out of order, at the same times, under a key of its own."""

from dataclasses import replace

import numpy as np
import pytest

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.shuffling import shuffled
from tests.clips import image, video


def test_frames_change_places_and_times_stay() -> None:
    clip = video(8, seed=1)
    control = shuffled(clip, seed=0)
    assert control.metadata == clip.metadata
    assert control.shape == clip.shape
    places = [
        next(i for i, frame in enumerate(clip.frames) if np.array_equal(frame, moved))
        for moved in control.frames
    ]
    assert sorted(places) == list(range(8)) and places != list(range(8))


def test_a_seed_gives_one_order_and_orders_have_keys_of_their_own() -> None:
    clip = video(8, seed=1)
    again, same = shuffled(clip, seed=3), shuffled(clip, seed=3)
    assert again.key == same.key and np.array_equal(again.frames, same.frames)
    keys = {shuffled(clip, seed=seed).key for seed in range(50)}
    assert len(keys) == 50 and clip.key not in keys
    assert shuffled(replace(clip, key="other"), seed=3).key != again.key


@pytest.mark.parametrize("num_frames", [2, 3])
def test_few_frames_are_never_left_in_their_order(num_frames: int) -> None:
    """Half of the permutations of two frames are the identity, a sixth of those of three."""
    clip = video(num_frames, seed=1)
    for seed in range(40):
        control = shuffled(clip, seed=seed)
        assert not np.array_equal(control.frames, clip.frames)
        assert control.key != clip.key


def test_frames_that_are_mostly_equal_still_come_in_another_order() -> None:
    clip = video(8, seed=1)
    frames = np.repeat(clip.frames[:1], 8, axis=0)
    frames[-1] = clip.frames[1]
    still = replace(clip, frames=frames)
    for seed in range(40):
        assert not np.array_equal(shuffled(still, seed=seed).frames, still.frames)


@pytest.mark.parametrize(
    "clip",
    [
        image(seed=1),
        video(1, seed=1),
        replace(video(4), frames=np.zeros((4, 3, 64, 96), np.uint8)),
    ],
    ids=["an image", "one frame", "equal frames"],
)
def test_what_has_no_order_comes_back_as_it_is(clip: Clip) -> None:
    assert shuffled(clip, seed=0) is clip
