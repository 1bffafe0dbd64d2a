"""Optimizer steps that are skipped: counted, with the samples at fault, and not for ever.

A loss or gradient that is not finite would make every weight NaN. Every rank sees the same sums, so
all of them skip the same steps and end the run at the same one. Owned by `learner.RankLearner`.
"""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.train.failures import named

log = logging.getLogger(__name__)


class SkippedSteps:
    """How many steps were skipped, in all and in a row.

    Args:
        limit: steps in a row; one more ends the run.
    """

    def __init__(self, limit: int):
        self.total = 0
        self._in_row = 0
        self._limit = limit

    def done(self) -> None:
        """A step was taken."""
        self._in_row = 0

    def nothing_to_train_on(self) -> None:
        """A step had no completion left; that is no sign of illness."""
        log.warning("update skipped: none of its completions can be trained on")
        self.total += 1

    def not_finite(self, what: str, sample_ids: Sequence[str]) -> None:
        """A step was skipped over a loss or gradient that is not finite.

        Args:
            what: was not finite, with its value.
            sample_ids: of this rank's micro-batches whose loss was not finite.

        Raises:
            UserError: after too many in a row.
        """
        self.total += 1
        self._in_row += 1
        place = f", at {named(sample_ids)}" if sample_ids else ""
        log.warning("update skipped: %s%s", what, place)
        if self._in_row > self._limit:
            raise UserError(
                f"{self._in_row} updates in a row were skipped, the last because {what}{place}; "
                "more than learner.max_skipped_updates allows. The weights are those of the last "
                "update that was not skipped: go on from the newest checkpoint with a lower "
                "learner.optimizer.lr, without these samples, or in model.dtype=float32"
            )


class Losses:
    """The losses of a step's micro-batches, read once at its end: reading one waits for it."""

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._sample_ids: list[Sequence[str]] = []

    def add(self, loss: Tensor, sample_ids: Sequence[str]) -> None:
        """The loss of a micro-batch, and the samples in it."""
        self._values.append(loss.detach())
        self._sample_ids.append(sample_ids)

    def total(self) -> Tensor:
        """Their sum; 0 for none."""
        return torch.stack(self._values).sum() if self._values else torch.tensor(0.0)

    def at_fault(self) -> list[str]:
        """Samples of the micro-batches whose loss is not finite."""
        pairs = zip(self._values, self._sample_ids, strict=True)
        ids = [name for value, names in pairs if not value.isfinite() for name in names]
        return list(dict.fromkeys(ids))
