"""Which checkpoints of a run stay in full, which as weights alone, and which go.

`checkpointer` asks after every new one.
"""

import shutil
from collections.abc import Sequence
from typing import NamedTuple

from easyvideor1.train.interfaces import SAVED_TRAINING
from easyvideor1.train.run_folder import Checkpoint


class Retention(NamedTuple):
    """What becomes of checkpoints that do not stay in full."""

    reduced: list[Checkpoint]
    """Keep their weights, and no longer what a run needs to go on from them."""
    removed: list[Checkpoint]


def retention(checkpoints: Sequence[Checkpoint], keep_last: int, keep_best: int) -> Retention:
    """What becomes of `checkpoints`, oldest first.

    In full stay the newest, and the end of a warm start, from which runs branch off; as weights
    alone those with the best validation accuracy.
    """
    rated = [c for c in checkpoints if c.position.validation is not None]
    best = sorted(rated, key=lambda c: c.position.validation or 0.0, reverse=True)[:keep_best]
    warm = [c for c in checkpoints if c.position.step == 0]
    in_full = {c.folder for c in [*checkpoints[-keep_last:], *warm[-1:]]}
    as_weights = {c.folder for c in best}
    others = [c for c in checkpoints if c.folder not in in_full]
    return Retention(
        reduced=[c for c in others if c.folder in as_weights and c.is_full],
        removed=[c for c in others if c.folder not in as_weights],
    )


def apply(plan: Retention) -> None:
    """Do it. Out of sight first: a killed removal must not leave what looks whole."""
    for checkpoint in plan.reduced:
        training = checkpoint.learner / SAVED_TRAINING
        shutil.rmtree(training.rename(training.with_name(f".{training.name}")))
    for checkpoint in plan.removed:
        folder = checkpoint.folder
        shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}")))
