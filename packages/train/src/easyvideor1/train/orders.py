"""Which sample is drawn when: a pure function of seed and position, so that a position is a number.

Samples lie in strata: all in one, or one per source where sources have weights. Each stratum goes
through its own epochs, shuffled or from easy to hard; together they fill the epochs of the stream.
`data.TrainingData` draws from here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from easyvideor1.preprocess.config import CurriculumConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.schema.table import values_of
from easyvideor1.train.offline import stable_hash

NUM_NAMED = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """One draw of the stream."""

    index: int
    """Of the sample."""
    is_first: bool
    """Whether the sample was not drawn before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Epoch:
    """All draws of an epoch."""

    number: int
    indices: np.ndarray
    """[draws] of samples."""
    are_first: np.ndarray
    """[draws] whether each draws its sample for the first time."""
    num_new: np.ndarray
    """[draws] how many did, up to and with each."""


class Stratum:
    """Samples that are drawn one after the other, each once per epoch of theirs.

    Args:
        indices: [n] of its samples.
        seed: of its orders, with the number of the epoch.
        pass_rates: [n] of its samples; None without a curriculum.
        curriculum: how many epochs go from easy to hard.
    """

    def __init__(
        self,
        indices: np.ndarray,
        *,
        seed: tuple[int, ...],
        pass_rates: np.ndarray | None,
        curriculum: CurriculumConfig,
    ):
        self.indices = indices
        self._seed = seed
        self._pass_rates = pass_rates
        self._curriculum = curriculum

    def epoch(self, number: int) -> np.ndarray:
        """[n] indices of its samples in the order of an epoch."""
        rng = np.random.default_rng((*self._seed, number))
        shuffled = rng.permutation(len(self.indices))
        curriculum = self._curriculum
        if self._pass_rates is None or number >= curriculum.epochs:
            return self.indices[shuffled]
        # Equally hard ones stay shuffled; chance moves the place of each as far as asked for.
        by_ease = shuffled[np.argsort(-self._pass_rates[shuffled], kind="stable")]
        places = np.linspace(0.0, 1.0, len(by_ease))
        moved = (1 - curriculum.jitter) * places + curriculum.jitter * rng.random(len(by_ease))
        return self.indices[by_ease[np.argsort(moved, kind="stable")]]


class Order:
    """The draws of a stream, epoch after epoch; each has as many draws as there are samples.

    Args:
        strata: of the samples.
        counts: draws of each stratum in an epoch.
        seed: of how they take turns.
    """

    def __init__(self, strata: Sequence[Stratum], counts: Sequence[int], *, seed: int):
        self._strata = strata
        self._counts = counts
        self._seed = seed
        self._length = sum(counts)
        self._epoch: Epoch | None = None

    def __getitem__(self, position: int) -> Draw:
        """The draw at a position, counted from the beginning over all epochs."""
        number, place = divmod(position, self._length)
        epoch = self._epoch_of(number)
        return Draw(index=int(epoch.indices[place]), is_first=bool(epoch.are_first[place]))

    def num_distinct(self, position: int) -> int:
        """How many samples have been drawn before a position, each counted once."""
        number, place = divmod(position, self._length)
        whole = sum(
            min(number * count, len(stratum.indices))
            for stratum, count in zip(self._strata, self._counts, strict=True)
        )
        return whole + int(self._epoch_of(number).num_new[place - 1]) if place else whole

    def _epoch_of(self, number: int) -> Epoch:
        if self._epoch is None or self._epoch.number != number:
            indices, are_first = self._drawn(number)
            self._epoch = Epoch(
                number=number, indices=indices, are_first=are_first, num_new=are_first.cumsum()
            )
        return self._epoch

    def _drawn(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """[draws] indices of samples in an epoch, and which are drawn for the first time."""
        if len(self._strata) == 1:
            indices = self._strata[0].epoch(number)
            return indices, np.full(len(indices), number == 0)
        turns = np.repeat(np.arange(len(self._strata)), self._counts)
        turns = np.random.default_rng((self._seed, number)).permutation(turns)
        indices = np.empty(self._length, np.int64)
        are_first = np.empty(self._length, bool)
        for which, (stratum, count) in enumerate(zip(self._strata, self._counts, strict=True)):
            own = number * count + np.arange(count)  # draws of the stratum since the beginning
            epochs, places = np.divmod(own, len(stratum.indices))
            found = np.empty(count, np.int64)
            for epoch in np.unique(epochs):
                here = epochs == epoch
                found[here] = stratum.epoch(int(epoch))[places[here]]
            indices[turns == which] = found
            are_first[turns == which] = epochs == 0
        return indices, are_first


def order_of(
    samples: Sequence[Sample],
    *,
    seed: int,
    weights: Mapping[str, float],
    curriculum: CurriculumConfig,
) -> Order:
    """The order that `data.weights` and `data.curriculum` ask for.

    Raises:
        UserError: for sources that the weights do not name, or that are not there, and for a
            curriculum over samples without a pass rate.
    """
    rates = _pass_rates(samples) if curriculum.epochs > 0 else None
    if not weights:
        everything = np.arange(len(samples))
        stratum = Stratum(everything, seed=(seed,), pass_rates=rates, curriculum=curriculum)
        return Order([stratum], [len(samples)], seed=seed)
    sources = np.array(values_of(samples, "source"), dtype=object)
    _check_sources(Counter(sources.tolist()), weights)
    counts = apportion({name: w for name, w in weights.items() if w > 0}, len(samples))
    strata = []
    for name in counts:
        indices = np.flatnonzero(sources == name)
        strata.append(
            Stratum(
                indices,
                seed=(seed, stable_hash(name)),
                pass_rates=None if rates is None else rates[indices],
                curriculum=curriculum,
            )
        )
    return Order(strata, list(counts.values()), seed=seed)


def apportion(weights: Mapping[str, float], total: int) -> dict[str, int]:
    """`total` divided by weights, in whole numbers that sum to it; at least 1 each.

    By largest remainders (Hamilton's method).
    """
    scale = total / sum(weights.values())
    counts = {name: int(weight * scale) for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: counts[name] - weights[name] * scale)
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    for name in [name for name, count in counts.items() if count == 0]:
        counts[max(counts, key=lambda each: counts[each])] -= 1
        counts[name] = 1
    return counts


def _pass_rates(samples: Sequence[Sample]) -> np.ndarray:
    """[samples] pass rates."""
    rates = values_of(samples, "pass_rate")
    if missing := sum(rate is None for rate in rates):
        raise UserError(
            f"data.curriculum orders samples by pass_rate, which {missing} of {len(samples)} lack; "
            "write it into the data (share of right answers of the model to be trained), leave "
            "those out with data.filter='pass_rate is not None', or set data.curriculum.epochs=0"
        )
    return np.array(rates, dtype=np.float64)


def _check_sources(found: Mapping[str, int], weights: Mapping[str, float]) -> None:
    shown = ", ".join(f"{name or '(none)'} ({found[name]})" for name in sorted(found)[:NUM_NAMED])
    if unnamed := sorted(found.keys() - weights.keys()):
        raise UserError(
            f"data.weights lacks the source {unnamed[0] or '(none)'!r}; the data have {shown}: "
            "give each a weight, 0 to leave it out"
        )
    if absent := sorted(weights.keys() - found.keys()):
        raise UserError(
            f"data.weights names the source {absent[0]!r}, which no sample has; the data have "
            f"{shown}"
        )
