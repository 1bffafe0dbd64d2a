"""The spaces that the coordinates of boxes count in, and gold boxes in the space of the answers.

Both spaces are declared, in `reward.grounding` or in `extra` of a sample; none is guessed from the
numbers. Sizes come from `extra` too: `width` and `height` of the original, `resized_width` and
`resized_height` of the model's input.
"""

import math
from collections.abc import Iterable

from easyvideor1.rewards.boxes import Box
from easyvideor1.rewards.config import CoordinateSpace, GroundingConfig
from easyvideor1.rewards.modality import shown
from easyvideor1.rewards.registry import GoldError
from easyvideor1.schema.records import Sample

_WORDS = {
    CoordinateSpace.original_pixels: "in pixels of the original {shown}",
    CoordinateSpace.resized_pixels: "in pixels",
    CoordinateSpace.relative_1000: "scaled to 0-1000",
    CoordinateSpace.relative_1: "scaled to 0-1",
}


def space_in_words(sample: Sample, config: GroundingConfig) -> str:
    """How an instruction names the space of the boxes it asks for.

    Raises:
        GoldError: `extra["space"]` is none.
    """
    return _WORDS[_answer_space(sample, config)].format(shown=shown(sample)).rstrip()


def in_answer_space(boxes: Iterable[Box], sample: Sample, config: GroundingConfig) -> Iterable[Box]:
    """Gold boxes in the space of the answers.

    Raises:
        GoldError: a size that this takes is not in `extra`, or is none.
    """
    space = _answer_space(sample, config)
    gold_space = _space(sample, "gold_space", config.gold_space)
    if space == gold_space:
        return boxes
    (to_width, to_height), (width, height) = _size(space, sample), _size(gold_space, sample)
    return [
        (
            x1 * to_width / width,
            y1 * to_height / height,
            x2 * to_width / width,
            y2 * to_height / height,
        )
        for x1, y1, x2, y2 in boxes
    ]


def _answer_space(sample: Sample, config: GroundingConfig) -> CoordinateSpace:
    return _space(sample, "space", config.space)


def _space(sample: Sample, field: str, default: CoordinateSpace) -> CoordinateSpace:
    name = sample.extra.get(field)
    if name is None:
        return default
    try:
        return CoordinateSpace(name)
    except ValueError:
        known = ", ".join(CoordinateSpace)
        raise GoldError(sample, f"extra.{field} to be one of {known}, not {name!r}") from None


_SIZE_FIELDS = {
    CoordinateSpace.original_pixels: ("width", "height"),
    CoordinateSpace.resized_pixels: ("resized_width", "resized_height"),
}
_SIDES = {CoordinateSpace.relative_1000: 1000.0, CoordinateSpace.relative_1: 1.0}


def _size(space: CoordinateSpace, sample: Sample) -> tuple[float, float]:
    """Width and height of the picture in the units of a space."""
    if space in _SIDES:
        return _SIDES[space], _SIDES[space]
    width, height = (_side(sample, field, space) for field in _SIZE_FIELDS[space])
    return width, height


def _side(sample: Sample, field: str, space: CoordinateSpace) -> float:
    side = sample.extra.get(field)
    is_number = isinstance(side, int | float) and not isinstance(side, bool)
    if not is_number or not 0 < side < math.inf:
        raise GoldError(
            sample,
            f"extra.{field} to be the size in pixels, which boxes in {space.value} need, "
            f"not {side!r}",
        )
    return float(side)
