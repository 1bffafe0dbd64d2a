"""What caching will cost: arithmetic over headers, budgets and a few clips decoded for a try.

`plan` gathers what goes in. Where only a random sample of the media was looked at, an amount is an
extrapolation and carries its variance; where all were, it is exact. Starts and imports nothing
heavy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easyvideor1.preprocess.announced import announced_shape
from easyvideor1.preprocess.config import Codec
from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Budgets, Convention, FrameBudget
from easyvideor1.schema.records import Media, MediaKind

if TYPE_CHECKING:
    from easyvideor1.preprocess.decode import SourceProbe

CONFIDENCE = 1.96
"""Standard errors to either side of an amount: 95 % of samples would give a range around it."""
FRAMES_PER_JUMP = 125
"""Decoded for one frame of a long video: half a group of pictures of 250, x264's default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """A number, and how sure it is."""

    value: float
    variance: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(value=self.value + other.value, variance=self.variance + other.variance)

    def scaled(self, factor: float) -> "Amount":
        return Amount(value=self.value * factor, variance=self.variance * factor**2)

    @property
    def is_exact(self) -> bool:
        return self.variance == 0

    @property
    def low(self) -> float:
        return max(0.0, self.value - CONFIDENCE * math.sqrt(self.variance))

    @property
    def high(self) -> float:
        return self.value + CONFIDENCE * math.sqrt(self.variance)


NOTHING = Amount(value=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Probed:
    """A medium whose header was read."""

    media: Media
    source: "SourceProbe"


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Clips of one kind under one budget, of which a random sample was looked at."""

    kind: MediaKind
    validation: bool
    is_cached: bool
    """Whether they are in the cache under the present settings."""
    count: int
    probed: tuple[Probed, ...]
    num_unreadable: int
    """Looked at in vain."""

    @property
    def num_looked_at(self) -> int:
        return len(self.probed) + self.num_unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Of clips of one kind."""

    clips: Amount = NOTHING
    """Of those that give frames, as far as their headers tell."""
    frames: Amount = NOTHING
    raw_bytes: Amount = NOTHING
    work: Amount = NOTHING
    """Source pixels to be decoded."""

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            clips=self.clips + other.clips,
            frames=self.frames + other.frames,
            raw_bytes=self.raw_bytes + other.raw_bytes,
            work=self.work + other.work,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Of a set of groups under one set of budgets."""

    count: int
    """Clips, readable or not."""
    kinds: dict[MediaKind, Costs]

    @property
    def total(self) -> Costs:
        return sum(self.kinds.values(), Costs())

    @property
    def unreadable(self) -> Amount:
        clips = self.total.clips
        return Amount(value=self.count - clips.value, variance=clips.variance)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A medium that was decoded, and a part of its frames encoded, to see what that takes."""

    kind: MediaKind
    work: float
    """See `decoding_work`."""
    decoding_s: float
    part_bytes: int
    """Of the frames that were encoded."""
    encoded_bytes: dict[Codec, int]
    """Of that part, by codec."""
    encoding_s: dict[Codec, float]
    """Of all frames, by codec."""


def clip_shape(
    probed: Probed, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int, int, int]:
    """(T, 3, H, W) that the medium will have; with `snap: keyframe`, the most that T can be.

    Raises:
        ValueError: if its span holds no frame, or it is too thin to be resized.
    """
    return announced_shape(probed.media, probed.source, budget, rules).shape


def decoding_work(probed: Probed, num_frames: int) -> float:
    """Source pixels that a decoder goes through for `num_frames` frames of the medium."""
    source, media = probed.source, probed.media
    start_s = media.start_s or 0.0
    end_s = min(media.end_s or math.inf, source.total_frames / source.fps)
    available = max(1.0, (end_s - start_s) * source.fps)
    if media.kind is MediaKind.image or media.frames:
        available = num_frames
    return source.height * source.width * min(available, num_frames * FRAMES_PER_JUMP)


def estimate(groups: Sequence[Group], budgets: Budgets, rules: FamilyRules) -> Estimate:
    """What all media of the groups come to, from those of them that were looked at."""
    kinds: dict[MediaKind, Costs] = {}
    for group in groups:
        budget = budgets.of(group.kind.value, validation=group.validation)
        shapes = [_shape_or_none(probed, budget, rules) for probed in group.probed]
        good = [(p, shape) for p, shape in zip(group.probed, shapes, strict=True) if shape]
        costs = Costs(
            clips=_expanded([1 for _ in good], group),
            frames=_expanded([shape[0] for _, shape in good], group),
            raw_bytes=_expanded([math.prod(shape) for _, shape in good], group),
            work=_expanded([decoding_work(probed, shape[0]) for probed, shape in good], group),
        )
        kinds[group.kind] = kinds.get(group.kind, Costs()) + costs
    return Estimate(count=sum(group.count for group in groups), kinds=kinds)


def _shape_or_none(
    probed: Probed, budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int, int, int] | None:
    try:
        return clip_shape(probed, budget, rules)
    except ValueError:
        return None


def _expanded(values: Sequence[float], group: Group) -> Amount:
    """The sum over a group from the values of its readable sample: a simple random sample."""
    looked_at = group.num_looked_at
    if not looked_at:
        raise ValueError(f"none of {group.count} media of a group was looked at")
    mean = sum(values) / looked_at
    squares = sum((value - mean) ** 2 for value in values)
    squares += (looked_at - len(values)) * mean**2  # what is unreadable costs nothing
    spread = squares / max(1, looked_at - 1)
    unseen = 1 - looked_at / group.count
    return Amount(
        value=sum(values) * group.count / looked_at,
        variance=group.count**2 * unseen * spread / looked_at,
    )


def stored_bytes(estimated: Estimate, trials: Sequence[Trial], codec: Codec) -> Amount | None:
    """What a codec makes of the frames; None where no trial tells."""
    if codec is Codec.raw:
        return estimated.total.raw_bytes
    pairs = [
        (trial.kind, trial.part_bytes, trial.encoded_bytes[codec])
        for trial in trials
        if codec in trial.encoded_bytes
    ]
    return _scaled(estimated, pairs, lambda costs: costs.raw_bytes)


def working_seconds(estimated: Estimate, trials: Sequence[Trial], codec: Codec) -> Amount | None:
    """Seconds of one worker for decoding and encoding everything; None where no trial tells."""
    pairs = [
        (trial.kind, trial.work, trial.decoding_s + trial.encoding_s.get(codec, 0.0))
        for trial in trials
    ]
    return _scaled(estimated, pairs, lambda costs: costs.work)


def _scaled(
    estimated: Estimate,
    pairs: Sequence[tuple[MediaKind, float, float]],
    known: Callable[[Costs], Amount],
) -> Amount | None:
    """The total of y over all kinds, from trials (kind, x, y) and the known total of x by kind."""
    if not pairs:
        return None
    total = NOTHING
    for kind, costs in estimated.kinds.items():
        # Images behave otherwise than videos; better the others' trials than none.
        of_kind = [(x, y) for k, x, y in pairs if k is kind] or [(x, y) for _, x, y in pairs]
        total += _by_ratio(of_kind, known(costs), costs.clips.value)
    return total


def _by_ratio(pairs: Sequence[tuple[float, float]], total: Amount, count: float) -> Amount:
    """The total of y where that of x is known, from a sample of pairs: the ratio estimator."""
    sum_x, sum_y = sum(x for x, _ in pairs), sum(y for _, y in pairs)
    ratio, num_pairs = sum_y / sum_x, len(pairs)
    residuals = sum((y - ratio * x) ** 2 for x, y in pairs) / max(1, num_pairs - 1)
    unseen = max(0.0, 1 - num_pairs / max(count, 1.0))
    ratio_variance = unseen * residuals / num_pairs / (sum_x / num_pairs) ** 2
    return Amount(
        value=ratio * total.value,
        variance=ratio**2 * total.variance + total.value**2 * ratio_variance,
    )


def frame_cap(
    probed: Sequence[Probed], budget: FrameBudget, rules: FamilyRules
) -> tuple[int, int] | None:
    """T and the most pixels a frame can have where qwen-vl-utils allows less than `max_pixels`.

    Args:
        probed: videos under the budget; the one with the most frames counts.
        budget: of videos.
        rules: of the model family.

    Returns:
        None where `max_pixels` itself is the limit, up to rounding to the family's factor.
    """
    if budget.convention is not Convention.qwen_vl_utils:
        return None
    counts = [shape[0] for p in probed if (shape := _shape_or_none(p, budget, rules))]
    if not counts:
        return None
    num_frames = max(counts)
    # A square so large that only the limits decide; as an image, only `max_pixels` does.
    side = rules.factor * math.ceil(math.sqrt(budget.max_pixels))
    allowed = math.prod(resize_shape(side, side, num_frames=num_frames, budget=budget, rules=rules))
    asked = math.prod(resize_shape(side, side, num_frames=None, budget=budget, rules=rules))
    return (num_frames, allowed) if allowed < asked else None
