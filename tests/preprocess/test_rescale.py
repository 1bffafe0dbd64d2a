"""The largest budget under which a prompt fits, beside a search through all of them."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from easyvideor1.preprocess.announced import announced_shape
from easyvideor1.preprocess.rescale import differences, largest_that_fit
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.scan import SourceProbe
from easyvideor1.schema.budget import Budgets, Convention, FrameBudget
from easyvideor1.schema.records import Media, MediaKind
from tests.media import image, video

FILM = SourceProbe(total_frames=1500, fps=25.0, height=720, width=1280)
PHOTO = SourceProbe(total_frames=1, fps=1.0, height=900, width=1600)
BUDGETS = Budgets(
    video=FrameBudget(fps=1.0, min_frames=4, max_frames=32, min_pixels=4096, max_pixels=200_000),
    image=FrameBudget(min_pixels=4096, max_pixels=1_000_000),
)
RULES = {
    "qwen2_vl": FamilyRules(name="qwen2_vl", patch_size=14, merge_size=2, temporal_patch_size=2),
    "qwen3_vl": FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2),
}
EVERY_RULE = pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
EVERY_CONVENTION = pytest.mark.parametrize("convention", list(Convention))


def measure(rules: FamilyRules, *media: tuple[Media, SourceProbe]) -> Callable[[Budgets], int]:
    """Visual tokens of media under budgets."""

    def num_tokens(budgets: Budgets) -> int:
        shapes = [
            announced_shape(one, source, budgets.of(one.kind.value), rules).shape
            for one, source in media
        ]
        times = [math.ceil(shape[0] / rules.temporal_patch_size) for shape in shapes]
        grids = [shape[2] * shape[3] // rules.factor**2 for shape in shapes]
        return sum(time * grid for time, grid in zip(times, grids, strict=True))

    return num_tokens


@EVERY_RULE
@EVERY_CONVENTION
@pytest.mark.parametrize("limit", [2500, 1500, 700, 150])
def test_no_larger_budget_fits(rules: FamilyRules, convention: Convention, limit: int) -> None:
    budgets = replace(BUDGETS, video=replace(BUDGETS.video, convention=convention))
    num_tokens = measure(rules, (video("film.mp4"), FILM))
    assert num_tokens(budgets) > limit
    found = largest_that_fit(
        budgets, {MediaKind.video}, num_tokens, limit=limit, pixels_per_token=rules.factor**2
    )
    assert found is not None and num_tokens(found) <= limit
    assert found.image == budgets.image
    assert found.video.max_frames == budgets.video.max_frames
    others = [
        num_tokens(replace(budgets, video=replace(budgets.video, max_pixels=pixels)))
        for pixels in range(4096, 200_000, 256)
    ]
    best = max(tokens for tokens in others if tokens <= limit)
    # A step is a token per frame: within one of them, of the 16 temporal patches, it is the best.
    assert best - num_tokens(found) <= 2 * 16


@EVERY_RULE
def test_frames_go_only_where_pixels_cannot(rules: FamilyRules) -> None:
    num_tokens = measure(rules, (video("film.mp4"), FILM))
    smallest = replace(BUDGETS, video=replace(BUDGETS.video, max_pixels=BUDGETS.video.min_pixels))
    limit = num_tokens(smallest) // 2
    found = largest_that_fit(
        BUDGETS, {MediaKind.video}, num_tokens, limit=limit, pixels_per_token=rules.factor**2
    )
    assert found is not None
    assert found.video.max_pixels == BUDGETS.video.min_pixels
    assert BUDGETS.video.min_frames <= found.video.max_frames < BUDGETS.video.max_frames
    more = replace(found.video, max_frames=found.video.max_frames + 1)
    assert num_tokens(found) <= limit < num_tokens(replace(found, video=more))
    for limit, is_none in ((num_tokens(smallest) // 8, False), (num_tokens(smallest) // 9, True)):
        found = largest_that_fit(
            BUDGETS, {MediaKind.video}, num_tokens, limit=limit, pixels_per_token=rules.factor**2
        )
        assert (found is None) is is_none, "4 of 32 frames are min_frames"


@EVERY_RULE
def test_images_and_frames_lose_the_same_share(rules: FamilyRules) -> None:
    num_tokens = measure(rules, (video("film.mp4"), FILM), (image("photo.png"), PHOTO))
    found = largest_that_fit(
        BUDGETS,
        {MediaKind.video, MediaKind.image},
        num_tokens,
        limit=num_tokens(BUDGETS) // 2,
        pixels_per_token=rules.factor**2,
    )
    assert found is not None
    shares = (
        found.video.max_pixels / BUDGETS.video.max_pixels,
        found.image.max_pixels / BUDGETS.image.max_pixels,
    )
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)
    assert 0.4 < shares[0] < 0.6
    assert differences(BUDGETS, found) == (
        f"video.max_pixels 200000 -> {found.video.max_pixels}, "
        f"image.max_pixels 1000000 -> {found.image.max_pixels}"
    )


def test_an_image_alone_has_no_frames_to_lose() -> None:
    num_tokens = measure(RULES["qwen3_vl"], (image("photo.png"), PHOTO))
    assert (
        largest_that_fit(BUDGETS, {MediaKind.image}, num_tokens, limit=1, pixels_per_token=32 * 32)
        is None
    )
