"""Which examples of an update can be trained on, decided before any weight is counted.

A sample whose media cannot be had or do not fit its prompt, and a completion that the model cannot
read, is left out by name; the rest of the batch goes on. Called by `learner.RankLearner`.
"""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, Sample
from easyvideor1.train.failures import at_samples
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.token_tree import ClipLoader, by_prompt

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families.base import FamilyAdapter

log = logging.getLogger(__name__)


class HeldClips:
    """Clips loaded once, for as long as an update lasts. A `ClipLoader` of the samples it holds.

    Clips of an uncompressed cache are views of its files and cost no memory; decoded ones do.
    """

    def __init__(self) -> None:
        self._clips: dict[tuple[str, tuple[Media, ...]], list[Clip]] = {}

    def hold(self, sample: Sample, clips: "list[Clip]") -> None:
        """Keep the clips of `sample`."""
        self._clips[sample.id, sample.media] = clips

    def load(self, sample: Sample) -> "list[Clip]":
        """The clips of `sample`, one per medium, in order."""
        return self._clips[sample.id, sample.media]


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """What is left of the examples of an update."""

    examples: list[TrainExample]
    """In the order in which they came."""
    indices: list[int]
    """[examples] where each stood among those that came."""
    clips: HeldClips
    """Of all of them."""
    num_refused: int
    unusable: dict[str, str]
    """What is wrong with the media of a sample, by id; other completions are refused alone."""

    def cut(self, cuts: Sequence[int]) -> list[list[TrainExample]]:
        """The examples in parts that begin at 0 and at `cuts`, indices of those that came."""
        bounds = [bisect_left(self.indices, cut) for cut in cuts]
        starts, stops = [0, *bounds], [*bounds, len(self.examples)]
        return [self.examples[start:stop] for start, stop in zip(starts, stops, strict=True)]


class Screen:
    """Tells what a model can be trained on from what it cannot."""

    def __init__(self, family: "FamilyAdapter", clip_store: ClipLoader):
        self._family = family
        self._clip_store = clip_store
        self._vocab_size = family.config.get_text_config().vocab_size
        self._never_sampled = frozenset(family.forbidden_token_ids)
        self._placeholders = {family.processor.image_token_id, family.processor.video_token_id}

    def __call__(self, examples: Sequence[TrainExample]) -> Screened:
        """Loads the clips of every prompt; names in the log what is left out, and why."""
        clips = HeldClips()
        kept = []
        unusable: dict[str, str] = {}
        for indices in by_prompt(examples):
            readable = [i for i in indices if self._is_readable(examples[i])]
            if not readable:
                continue
            try:
                self._hold_clips(examples[readable[0]], clips)
            except UserError as error:
                sample_id = examples[readable[0]].prompt.sample.id
                unusable[sample_id] = str(error)
                log.warning(
                    "%d completions of sample %s are left out: %s", len(readable), sample_id, error
                )
            else:
                kept += readable
        kept.sort()
        return Screened(
            examples=[examples[i] for i in kept],
            indices=kept,
            clips=clips,
            num_refused=len(examples) - len(kept),
            unusable=unusable,
        )

    def _hold_clips(self, example: TrainExample, clips: HeldClips) -> None:
        """Load the prompt's clips; a `UserError` where they cannot be had or do not fit it."""
        prompt = example.prompt
        with at_samples((prompt.sample.id,)):
            loaded = self._clip_store.load(prompt.sample)
            self._family.check_inputs(prompt.token_ids, loaded, sample_id=prompt.sample.id)
        clips.hold(prompt.sample, loaded)

    def _is_readable(self, example: TrainExample) -> bool:
        if reason := self._why_refused(example):
            log.warning(
                "a completion of sample %s is left out: %s", example.prompt.sample.id, reason
            )
        return not reason

    def _why_refused(self, example: TrainExample) -> str:
        segments = example.completion.segments
        if not any(segment.trainable and segment.token_ids for segment in segments):
            return "it has no token to train on"
        if any(segment.media for segment in segments):
            return "media inside a completion cannot be trained on"
        for segment in segments:
            forbidden = self._never_sampled if segment.trainable else self._placeholders
            for token in segment.token_ids:
                if token in forbidden or not 0 <= token < self._vocab_size:
                    return f"token id {token} may not stand in it"
        return ""
