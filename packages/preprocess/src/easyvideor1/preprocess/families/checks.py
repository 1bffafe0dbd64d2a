"""Whether a prompt and its clips belong together, told from ids, shapes and metadata alone.

Every check names the sample and the two numbers that disagree. Called by `base.FamilyAdapter`,
before pixels are read or anything is computed.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import MediaKind

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip, ClipMetadata

TIME_TOLERANCE_S = 0.05
"""A time told with one decimal is off by as much."""

_ROUNDING_S = 1e-6


class ModelInputError(UserError):
    """A sample whose prompt and media do not belong together; it is refused by name, never cut."""


def check_placeholders(
    prompt_token_ids: Sequence[int],
    clips: Sequence["Clip"],
    placeholders: Mapping[int, MediaKind],
    sample_id: str,
) -> None:
    """One placeholder per clip of each kind: `placeholders` says which token stands for which."""
    for placeholder, kind in placeholders.items():
        placed = prompt_token_ids.count(placeholder)
        given = sum(clip.kind is kind for clip in clips)
        if placed != given:
            raise ModelInputError(
                f"sample {sample_id!r}: its prompt has {placed} {kind.value} placeholders but "
                f"{given} {kind.value}s were given; was the prompt expanded or cut?"
            )


def check_sizes(clips: Sequence["Clip"], rules: FamilyRules, sample_id: str) -> None:
    """Images of one frame; frames in whole multiples of the family's factor."""
    for number, clip in enumerate(clips, start=1):
        num_frames, _, height, width = clip.shape
        if height % rules.factor or width % rules.factor:
            raise ModelInputError(
                f"sample {sample_id!r}: medium {number} is {height}x{width} pixels, "
                f"{rules.name} needs multiples of {rules.factor}; cache it again for this model"
            )
        if clip.kind is MediaKind.image and num_frames != 1:
            raise ModelInputError(
                f"sample {sample_id!r}: medium {number} is an image but has {num_frames} "
                "frames, not 1; give it as a video"
            )


def check_features(kind: MediaKind, num_tokens: int, num_features: int, sample_id: str) -> None:
    """As many tokens of a kind in the expanded prompt as the vision tower gives features."""
    if num_tokens != num_features:
        raise ModelInputError(
            f"sample {sample_id!r}: {num_tokens} {kind.value} tokens "
            f"in the prompt but {num_features} features from its media"
        )


def check_frame_times(clips: Sequence["Clip"], sample_id: str) -> None:
    """A time for every frame: its index over the rate of the source, within `TIME_TOLERANCE_S`;
    any time where a clip `has_own_times`.
    """
    for number, clip in enumerate(clips, start=1):
        metadata = clip.metadata
        num_frames = clip.shape[0]
        if len(metadata.timestamps_s) != num_frames:
            raise ModelInputError(
                f"sample {sample_id!r}: medium {number} has {num_frames} frames but "
                f"{len(metadata.timestamps_s)} times; cache it again"
            )
        if has_own_times(metadata):
            continue
        for index, seconds in zip(metadata.frame_indices, metadata.timestamps_s, strict=True):
            if _apart(seconds, index / metadata.source_fps):
                raise ModelInputError(
                    f"sample {sample_id!r}: frame {index} of medium {number} is said to be at "
                    f"{seconds:.3f} s, at {metadata.source_fps:g} frames a second it is at "
                    f"{index / metadata.source_fps:.3f} s; cache it again"
                )


def has_own_times(metadata: "ClipMetadata") -> bool:
    """Whether frames are not where their numbers say: key frames stand in for the chosen ones, or
    the source was repaired, as one of a variable rate is.
    """
    return metadata.snapped or bool(metadata.repairs)


def check_told_times(
    told_s: Sequence[float], true_s: Sequence[float], number: int, sample_id: str
) -> None:
    """The times that a prompt tells of medium `number` are those of its temporal patches."""
    if len(told_s) != len(true_s):
        raise ModelInputError(
            f"sample {sample_id!r}: the prompt tells {len(told_s)} times of medium {number}, "
            f"which has {len(true_s)} temporal patches"
        )
    for patch, (told, true) in enumerate(zip(told_s, true_s, strict=True), start=1):
        if _apart(told, true):
            raise ModelInputError(
                f"sample {sample_id!r}: the prompt tells {told:g} s of patch {patch} of medium "
                f"{number}, which is at {true:.3f} s"
            )


def _apart(one_s: float, other_s: float) -> bool:
    # NaN is apart from everything.
    return not abs(one_s - other_s) <= TIME_TOLERANCE_S + _ROUNDING_S
