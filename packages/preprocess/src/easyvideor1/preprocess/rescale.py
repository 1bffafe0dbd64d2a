"""Smaller budgets for a sample whose prompt would be too long: the largest under which it fits.

Pure functions over what a prompt would measure under other budgets. The store of every process asks
them for the same sample and gets the same answer, so that cache, engine and learner agree.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from easyvideor1.preprocess.fitting import largest_good
from easyvideor1.schema.budget import Budgets, FrameBudget
from easyvideor1.schema.records import MediaKind


def largest_that_fit(
    budgets: Budgets,
    kinds: AbstractSet[MediaKind],
    num_tokens: Callable[[Budgets], int],
    *,
    limit: int,
    pixels_per_token: int,
) -> Budgets | None:
    """Budgets under which a prompt is not longer than `limit`.

    Frames and images lose pixels first, all the same share of `max_pixels`, in steps of about a
    token per frame, and none below its `min_pixels`. Where that is not enough, videos lose frames,
    none below `min_frames`.

    Args:
        budgets: those under which the prompt is too long.
        kinds: of the media in the prompt, at least one; the budget of the other stays.
        num_tokens: length of the prompt under other budgets.
        limit: in tokens.
        pixels_per_token: of a frame.

    Returns:
        None where even the smallest budgets are too large.
    """
    own = {kind.value: budgets.of(kind.value) for kind in kinds}
    num_steps = max(1, *(budget.max_pixels // pixels_per_token for budget in own.values()))

    def with_pixels(step: int) -> Budgets:
        smaller = {kind: _with_share(budget, step, num_steps) for kind, budget in own.items()}
        return dataclasses.replace(budgets, **smaller)

    step = largest_good(0, num_steps - 1, lambda step: num_tokens(with_pixels(step)) <= limit)
    if step is not None:
        return with_pixels(step)
    if MediaKind.video not in kinds:
        return None
    smallest = with_pixels(0)

    def with_frames(count: int) -> Budgets:
        return dataclasses.replace(
            smallest, video=dataclasses.replace(smallest.video, max_frames=count)
        )

    count = largest_good(
        budgets.video.min_frames,
        budgets.video.max_frames - 1,
        lambda count: num_tokens(with_frames(count)) <= limit,
    )
    return None if count is None else with_frames(count)


def differences(budgets: Budgets, smaller: Budgets) -> str:
    """What was lowered, e.g. `video.max_pixels 262144 -> 65536`."""
    return ", ".join(
        f"{kind}.{field} {getattr(before, field)} -> {getattr(after, field)}"
        for kind, before, after in (
            ("video", budgets.video, smaller.video),
            ("image", budgets.image, smaller.image),
        )
        for field in ("max_pixels", "max_frames")
        if getattr(before, field) != getattr(after, field)
    )


def _with_share(budget: FrameBudget, step: int, num_steps: int) -> FrameBudget:
    max_pixels = max(budget.min_pixels, budget.max_pixels * step // num_steps)
    return dataclasses.replace(budget, max_pixels=max_pixels)
