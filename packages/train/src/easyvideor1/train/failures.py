"""Errors of the learner that say where they happened: at which samples, on which rank.

They cross process boundaries; `actors` turns them into the paragraph that ends the run.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from easyvideor1.schema.errors import UserError


class SampleFailedError(Exception):
    """Work on these samples failed, by an error of our own; the cause is chained."""

    def __init__(self, sample_ids: tuple[str, ...], reason: str):
        super().__init__(sample_ids, reason)
        self.sample_ids, self.reason = sample_ids, reason

    def __str__(self) -> str:
        return f"{self.reason} at {named(self.sample_ids)}"


class RankFailedError(Exception):
    """A rank of the learner failed, by an error of our own; the cause is chained."""

    def __init__(self, rank: int, sample_ids: tuple[str, ...], reason: str):
        super().__init__(rank, sample_ids, reason)
        self.rank, self.sample_ids, self.reason = rank, sample_ids, reason

    def __str__(self) -> str:
        place = f" at {named(self.sample_ids)}" if self.sample_ids else ""
        return f"rank {self.rank}{place}: {self.reason}"


@contextmanager
def at_samples(sample_ids: Sequence[str]) -> Generator[None]:
    """Errors of the block carry these samples. A `UserError` names its own.

    Raises:
        SampleFailedError: for any other error in the block.
    """
    try:
        yield
    except (UserError, SampleFailedError):
        raise
    except Exception as error:
        raise SampleFailedError(tuple(sample_ids), repr(error)) from error


@contextmanager
def on_rank(rank: int) -> Generator[None]:
    """Errors of the block carry the rank, and the samples where they are known.

    Raises:
        UserError: for a `UserError`, with the rank.
        RankFailedError: for any other error in the block.
    """
    try:
        yield
    except UserError as error:
        raise UserError(f"learner rank {rank}: {error}") from error
    except SampleFailedError as error:
        raise RankFailedError(rank, error.sample_ids, error.reason) from error
    except Exception as error:
        raise RankFailedError(rank, (), repr(error)) from error


def named(sample_ids: Sequence[str]) -> str:
    """Example: `sample a`, `samples a, b, c and 5 more`."""
    shown = ", ".join(sample_ids[:3])
    more = f" and {len(sample_ids) - 3} more" if len(sample_ids) > 3 else ""
    return f"sample{'s' if len(sample_ids) > 1 else ''} {shown}{more}"
