"""Where the media of a sample stand in its problem text.

One rule for prompts, checks and reports: `<image>` and `<video>` place the media, the n-th
`<image>` the n-th image and likewise for videos; a problem without any has its media in front.
"""

import re

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind, Sample


class PlaceholderError(UserError):
    """A sample whose `<image>` and `<video>` do not match its media."""


_PLACEHOLDER = re.compile(r"<(image|video)>")


def count_placeholders(problem: str) -> dict[MediaKind, int]:
    """How many `<image>` and `<video>` stand in `problem`."""
    found = _PLACEHOLDER.findall(problem)
    return {kind: found.count(kind.value) for kind in MediaKind}


def placeholder_mismatch(problem: str, media: tuple[Media, ...]) -> str:
    """What is wrong between the placeholders of `problem` and `media`; empty when they agree."""
    placed = count_placeholders(problem)
    if not any(placed.values()):
        return ""
    given = {kind: sum(medium.kind is kind for medium in media) for kind in MediaKind}
    wrong = [kind for kind in MediaKind if placed[kind] != given[kind]]
    return " and ".join(
        f"{placed[kind]} <{kind.value}> for {given[kind]} {kind.value}s" for kind in wrong
    )


def split_problem(sample: Sample) -> list[str | Media]:
    """Text pieces and media in the order in which the model reads them; no piece is empty.

    Raises:
        PlaceholderError: when placeholders stand in the problem but their number differs from
            that of the media of their kind.
    """
    if not any(count_placeholders(sample.problem).values()):
        return [*sample.media, sample.problem] if sample.problem else [*sample.media]
    if mismatch := placeholder_mismatch(sample.problem, sample.media):
        raise PlaceholderError(
            f"sample {sample.id}: the problem has {mismatch}; give one placeholder per medium, "
            "or none to have the media first"
        )
    waiting = {
        kind.value: iter([medium for medium in sample.media if medium.kind is kind])
        for kind in MediaKind
    }
    pieces: list[str | Media] = []
    # With one group in the pattern, split() alternates text and placeholder name.
    for position, piece in enumerate(_PLACEHOLDER.split(sample.problem)):
        if position % 2:
            pieces.append(next(waiting[piece]))
        elif piece:
            pieces.append(piece)
    return pieces
