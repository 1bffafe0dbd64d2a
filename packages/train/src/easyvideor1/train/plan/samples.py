"""How long the prompts of a data set are and what their clips take, by the headers of their media.

Nothing is decoded: shapes of cached clips are known, those of others are what headers announce.
Called by `command`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.schema.records import Media, Sample
from easyvideor1.train.inputs import Prompter
from easyvideor1.train.left_out import LeftOut, UnusableSampleError
from easyvideor1.train.planning import THREADS


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSize:
    """Of one prompt."""

    num_tokens: int
    """With its media expanded."""
    num_patches: int
    """Of its media."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSizes:
    """Of all samples that will be asked."""

    prompts: list[PromptSize]
    clip_bytes: int
    """Of the frames of all distinct media, as the cache keeps them without a codec."""
    missing_clip_bytes: int
    """Of those that the cache lacks."""
    largest_clips_bytes: int
    """Of the frames of the sample that has most."""


def measure(samples: Sequence[Sample], prompter: Prompter, left_out: LeftOut) -> DataSizes:
    """Look at every sample.

    Args:
        samples: of training or of validation.
        prompter: theirs.
        left_out: takes those that will not be asked.

    Raises:
        UserError: when too many are refused.
    """
    prompts: list[PromptSize] = []
    clips: dict[Media, tuple[int, bool]] = {}
    largest = 0

    def look(sample: Sample) -> tuple[PromptSize, list[int], bool] | UnusableSampleError:
        try:
            prompt = prompter(sample)
            shapes = prompter.store.shapes(sample)
            size = PromptSize(num_tokens=prompt.num_tokens, num_patches=prompt.num_patches)
            return size, [math.prod(s.shape) for s in shapes], prompter.store.is_cached(sample)
        except UnusableSampleError as error:
            return error

    looks = map_ahead(look, samples, threads=THREADS)
    for sample, seen in zip(
        samples, tqdm(looks, "measuring prompts", len(samples), delay=2), strict=True
    ):
        if isinstance(seen, UnusableSampleError):
            left_out.add(sample.id, seen.reason, seen.detail)
            continue
        size, clip_bytes, is_cached = seen
        prompts.append(size)
        clips |= {m: (b, is_cached) for m, b in zip(sample.media, clip_bytes, strict=True)}
        largest = max(largest, sum(clip_bytes))
    left_out.check(len(samples))
    return DataSizes(
        prompts=prompts,
        clip_bytes=sum(num_bytes for num_bytes, _ in clips.values()),
        missing_clip_bytes=sum(num_bytes for num_bytes, cached in clips.values() if not cached),
        largest_clips_bytes=largest,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below `share` of them, e.g. 0.95; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
