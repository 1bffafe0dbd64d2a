"""Which settings would let frames fit on a disk: the ways out of a plan that does not.

Each is recomputed from the same headers and trials before it is named. Other settings change cache
keys, so what is in the cache already may have to be made again. Pure; `plan` prints the answer.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from easyvideor1.preprocess.config import Codec
from easyvideor1.preprocess.estimate import Amount, Group, Trial, estimate, stored_bytes
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.schema.budget import Budgets, FrameBudget

MARGIN = 1.05
"""Of the disk, so much more than the frames need must be free: metadata, other files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """Settings under which the frames fit."""

    overrides: tuple[str, ...]
    """As on the command line."""
    num_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """Everything that a plan knows; `settings_that_fit` asks what other settings would need."""

    groups: tuple[Group, ...]
    """Missing and cached ones: under other settings the cached are missing as well."""
    budgets: Budgets
    rules: FamilyRules
    codec: Codec
    trials: tuple[Trial, ...]

    def needed(self) -> Amount:
        """Bytes of what is missing; raw where no trial says what the codec makes of it."""
        missing = [group for group in self.groups if not group.is_cached]
        estimated = estimate(missing, self.budgets, self.rules)
        stored = stored_bytes(estimated, self.trials, self.codec)
        return stored if stored is not None else estimated.total.raw_bytes

    def with_codec(self, codec: Codec) -> "Case":
        """Codecs that change frames are part of the key: then nothing can be reused."""
        changes_keys = codec is not self.codec and (codec.is_lossy or self.codec.is_lossy)
        groups = tuple(
            dataclasses.replace(group, is_cached=group.is_cached and not changes_keys)
            for group in self.groups
        )
        return dataclasses.replace(self, groups=groups, codec=codec)

    def with_budget(self, name: str, budget: FrameBudget) -> "Case":
        """Another budget gives other frames to all media that it rules."""
        budgets = dataclasses.replace(self.budgets, **{name: budget})
        groups = tuple(
            dataclasses.replace(
                group,
                is_cached=group.is_cached
                and self.budgets.of(group.kind.value, validation=group.validation)
                == budgets.of(group.kind.value, validation=group.validation),
            )
            for group in self.groups
        )
        return dataclasses.replace(self, groups=groups, budgets=budgets)


def fits(needed: Amount, free_bytes: float) -> bool:
    """Whether frames fit on a disk, the high end of their range with the margin."""
    return needed.high * MARGIN <= free_bytes


def settings_that_fit(case: Case, free_bytes: float) -> list[Option]:
    """Single settings that make the frames fit, each recomputed; else pairs with a codec."""
    tried = {Codec.raw}.union(*(trial.encoded_bytes for trial in case.trials))
    codecs = [codec for codec in Codec if codec in tried and codec is not case.codec]
    options = [
        Option(overrides=(f"cache.codec={codec.value}",), num_bytes=needed.value)
        for codec in codecs
        if fits(needed := case.with_codec(codec).needed(), free_bytes)
    ]
    options += _budgets_that_fit(case, free_bytes)
    if options or not codecs:
        return options
    smallest = min(codecs, key=lambda codec: case.with_codec(codec).needed().value)
    return [
        dataclasses.replace(option, overrides=(f"cache.codec={smallest.value}", *option.overrides))
        for option in _budgets_that_fit(case.with_codec(smallest), free_bytes)
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Knob:
    """A number in one of the budgets, and the range in which it may be lowered."""

    budget: str
    field: str
    lowest: int
    highest: int
    step: int

    def turned(self, case: Case, value: int) -> Case:
        budget = dataclasses.replace(getattr(case.budgets, self.budget), **{self.field: value})
        return case.with_budget(self.budget, budget)


def _budgets_that_fit(case: Case, free_bytes: float) -> list[Option]:
    options = []
    for knob in _knobs(case):

        def is_good(value: int, knob: _Knob = knob) -> bool:
            return fits(knob.turned(case, value).needed(), free_bytes)

        value = _largest(knob, is_good)
        if value is not None:
            options.append(
                Option(
                    overrides=(f"budget.{knob.budget}.{knob.field}={value}",),
                    num_bytes=knob.turned(case, value).needed().value,
                )
            )
    return options


def _knobs(case: Case) -> list[_Knob]:
    """Pixels, and frames of videos, in each budget that rules missing clips."""
    knobs = []
    for name in _ruling_budgets(case):
        budget: FrameBudget = getattr(case.budgets, name)
        pixels = (budget.min_pixels, budget.max_pixels, case.rules.factor**2)
        limits = {"max_pixels": pixels}
        if name.endswith("video"):
            limits["max_frames"] = (budget.min_frames, budget.max_frames, 2)
        knobs += [
            _Knob(budget=name, field=field, lowest=lowest, highest=highest, step=step)
            for field, (lowest, highest, step) in limits.items()
        ]
    return knobs


def _ruling_budgets(case: Case) -> list[str]:
    """By their names in `Budgets`."""
    names = []
    for group in case.groups:
        own = f"validation_{group.kind.value}"
        has_own = group.validation and getattr(case.budgets, own) is not None
        if not group.is_cached:
            names.append(own if has_own else group.kind.value)
    return list(dict.fromkeys(names))


def _largest(knob: _Knob, is_good: Callable[[int], bool]) -> int | None:
    """The largest multiple of the step below the present value that is good."""
    low = math.ceil(knob.lowest / knob.step)
    high = math.ceil(knob.highest / knob.step) - 1
    count = largest_good(low, high, lambda count: is_good(count * knob.step))
    return None if count is None else count * knob.step


def largest_good(low: int, high: int, is_good: Callable[[int], bool]) -> int | None:
    """The largest number from `low` to `high` that is good, where all below a good one are good.

    None where none is.
    """
    if low > high or not is_good(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_good(middle) else (low, middle - 1)
    return low
