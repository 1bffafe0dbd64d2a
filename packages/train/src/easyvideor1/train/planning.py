"""Before anything is decoded: which samples will be asked, and under which budgets.

Lengths come from the headers of media that the cache lacks, so that a sample which is going to be
left out costs no decoding. What is left out then is left out here and told; the streams of `data`
find it again by themselves. Called by `cli`.
"""

import functools
from collections.abc import Sequence
from contextlib import suppress

from tqdm import tqdm

from easyvideor1.preprocess.engine import CacheReport
from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.preprocess.store import ClipStore
from easyvideor1.schema.budget import Budgets
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.schema.table import SampleTable
from easyvideor1.train.inputs import REASONS, Prompter
from easyvideor1.train.left_out import LeftOut, Reason, UnusableSampleError

THREADS = 16
"""Headers are small reads, slow one after another on a network file system."""

Part = tuple[Sequence[Sample], ClipStore]
"""Samples with the store that reads their clips."""


def samples_to_decode(
    samples: Sequence[Sample], prompter: Prompter, left_out: LeftOut
) -> list[Part]:
    """The samples that will be asked, by budgets.

    Args:
        samples: of training or of validation.
        prompter: theirs; used here alone, because it remembers lengths by headers.
        left_out: keeps those that will not be asked.

    Raises:
        UserError: when too many are refused, or nothing is left.
    """
    usual: list[int] = []
    rescaled: dict[str, tuple[Budgets, list[int]]] = {}
    looks = map_ahead(functools.partial(_look, prompter), samples, threads=THREADS)
    bar = tqdm(looks, "measuring prompts", len(samples), delay=2)
    for index, look in enumerate(bar):
        if isinstance(look, Budgets):
            rescaled.setdefault(repr(look), (look, []))[1].append(index)
        elif look is None or look.reason is Reason.not_decodable:
            usual.append(index)  # `leave_out_failures` hears what the decoder says of it
        else:
            left_out.add(samples[index].id, look.reason, look.detail)
    _check(left_out, len(samples))
    own = prompter.store
    smaller = [(_subset(samples, of), own.under(budgets)) for budgets, of in rescaled.values()]
    return [(_subset(samples, usual), own), *smaller]


def leave_out_failures(report: CacheReport, samples: Sequence[Sample], left_out: LeftOut) -> None:
    """Leave out the samples of media that gave no frames.

    Raises:
        UserError: when too many are refused, or nothing is left.
    """
    reasons = {
        sample_id: f"cannot decode {failure.path}: {failure.reason}"
        for failure in report.failures
        for sample_id in failure.sample_ids
    }
    for sample in samples if reasons else ():
        if sample.id in reasons and left_out.reason(sample.id) is None:
            left_out.add(sample.id, Reason.not_decodable, reasons[sample.id])
    _check(left_out, len(samples))


def _look(prompter: Prompter, sample: Sample) -> UnusableSampleError | Budgets | None:
    """Why a sample will not be asked, or the smaller budgets that it gets; None for the usual."""
    if not sample.media:
        return None
    try:
        # What is in the cache costs nothing more; the stream measures it, or refuses it.
        with suppress(*REASONS):
            if prompter.store.is_cached(sample):
                return prompter.store.smaller_budgets(sample)
        prompter(sample)
        return prompter.store.smaller_budgets(sample)
    except UnusableSampleError as error:
        return error


def _subset(samples: Sequence[Sample], indices: Sequence[int]) -> Sequence[Sample]:
    """The samples at `indices`; of a table, without building the records."""
    if isinstance(samples, SampleTable):
        return samples.select(indices)
    return [samples[index] for index in indices]


def _check(left_out: LeftOut, num_samples: int) -> None:
    left_out.check(num_samples)
    if num_samples and left_out.count == num_samples:
        raise UserError(left_out.nothing_left(num_samples))
