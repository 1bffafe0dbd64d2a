"""What two ranks do in `test_ranks`: every pair of micro-batches, for one family.

Clips have sides of two or three times the factor of the family.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Completion, Sample, Segment
from easyvideor1.train.config import FrozenPart
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.sharding import join_process_group
from tests.clips import image, sample_about, video
from tests.train.policy_cases import (
    answer_ids,
    family_at,
    gradients_of,
    make_learner,
    prompt_about,
)

KINDS = ("text", "image", "video", "mixed")
PAIRS = tuple(product(KINDS, KINDS))
"""What rank 0 and rank 1 have; both orders of each."""
FREEZES: dict[str, list[FrozenPart]] = {
    "vision trainable": [],
    "vision frozen": [FrozenPart.vision, FrozenPart.merger],
}
"""Values of `learner.freeze`."""
ANSWER_LENGTHS = (5, 3)


def clips_of(family: FamilyAdapter, kind: str, rank: int) -> list[Clip]:
    """Other clips on the other rank, and of other sizes."""
    side, seed = 2 * family.rules.factor, 10 * rank
    still = image(height=side, width=side, seed=seed + 1)
    moving = video(4 + 2 * rank, height=side, width=side + side // 2 * rank, seed=seed + 2)
    return {"text": [], "image": [still], "video": [moving], "mixed": [still, moving]}[kind]


class Clips:
    """The clip store of these samples; an id is `kind on rank`."""

    def __init__(self, family: FamilyAdapter):
        self._family = family

    def load(self, sample: Sample) -> list[Clip]:
        kind, rank = sample.id.split(" on ")
        return clips_of(self._family, kind, int(rank))


def share(family: FamilyAdapter, kind: str, rank: int) -> list[TrainExample]:
    """One group about one sample of that kind."""
    clips = clips_of(family, kind, rank)
    sample = sample_about(clips, problem=f"What is in the {kind}?", id=f"{kind} on {rank}")
    prompt = prompt_about(family, sample, clips)
    return [
        TrainExample(
            prompt=prompt,
            completion=Completion(
                segments=(Segment(token_ids=tuple(answer_ids(family, length, seed=rank + 7 * i))),),
                text="",
                finish_reason="stop",
            ),
            advantages=[(1.0, -0.5)[i]] * length,
        )
        for i, length in enumerate(ANSWER_LENGTHS)
    ]


def learner_at(path: Path, freeze: Sequence[FrozenPart], ranks: int) -> RankLearner:
    clips = Clips(family_at(path))
    return make_learner(path, dtype="float32", clip_store=clips, freeze=list(freeze), ranks=ranks)


def run_pairs(rank: int, port: int, path: Path, folder: Path) -> None:
    """Writes the gradients that this rank saw, by state of the tower and by pair."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=2, host="127.0.0.1", port=port, timeout_s=60)
    family = family_at(path)
    gradients = {}
    for state, freeze in FREEZES.items():
        learner = learner_at(path, freeze, ranks=2)
        for pair in PAIRS:
            mine = share(family, pair[rank], rank)
            gradients[state, pair], _ = gradients_of(learner, mine)
    torch.save(gradients, folder / f"rank{rank}.pt")
    dist.destroy_process_group()
