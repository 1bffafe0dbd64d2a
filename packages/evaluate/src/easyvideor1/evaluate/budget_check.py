"""How long the prompts of a benchmark are, before anything is decoded, and whether they fit.

Lengths come from the shapes of cached clips and from the headers of the others. A question that
does not fit would be refused by the engine and counted as wrong, so that a score would fall without
a word; a run with such questions is refused instead, unless the config allows their share. Called
by `run`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from easyvideor1.preprocess.errors import DecodeError, MissingClipError
from easyvideor1.preprocess.map_ahead import map_ahead
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from easyvideor1.evaluate.pipeline import Question
    from easyvideor1.preprocess.families import FamilyAdapter
    from easyvideor1.preprocess.store import ClipStore

THREADS = 16
"""Headers are small reads, slow one after another on a network file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Of the prompts of one benchmark, in tokens with media expanded."""

    prompts: list[int]
    """One per question; repeats have the same prompt."""
    max_new_tokens: int
    context: int
    """Of the engine: prompt and answer together."""

    @property
    def num_overlong(self) -> int:
        """Questions whose prompt leaves no room for an answer: the engine refuses them."""
        return sum(length >= self.context for length in self.prompts)

    @property
    def num_tight(self) -> int:
        """Those besides whose answer may be cut off before `max_new_tokens`."""
        fitting = [length for length in self.prompts if length < self.context]
        return sum(length + self.max_new_tokens > self.context for length in fitting)

    def as_dict(self, kv_tokens: int | None = None) -> dict[str, Any]:
        """As a summary holds it.

        Args:
            kv_tokens: that the engine's KV cache has room for; None where it is not known.
        """
        longest = self.percentile(0.95) + self.max_new_tokens
        return {
            "p50": self.percentile(0.5),
            "p95": self.percentile(0.95),
            "max": max(self.prompts, default=0),
            "context": self.context,
            "overlong": self.num_overlong,
            "tight": self.num_tight,
            "histogram": self.histogram(),
            "concurrent": None if kv_tokens is None else kv_tokens / longest,
        }

    def percentile(self, share: float) -> int:
        """The smallest length that is not below `share` of them; 0 of none."""
        ordered = sorted(self.prompts)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0

    def histogram(self) -> list[tuple[int, int]]:
        """Upper bounds, powers of two, with the number of prompts up to each and above the last."""
        if not self.prompts:
            return []
        first = min(self.prompts).bit_length()
        last = max(self.prompts).bit_length()
        bounds = [2**power for power in range(first, last + 1)]
        return [
            (bound, sum(bound // 2 <= length < bound for length in self.prompts))
            for bound in bounds
        ]


def measure(
    questions: "Sequence[Question]",
    store: "ClipStore",
    family: "FamilyAdapter",
    *,
    context: int,
    name: str,
) -> Lengths:
    """Measure the prompts of all questions that can be asked.

    Args:
        questions: of one benchmark; those whose media cannot be read are left out, they fail later
            with a reason of their own.
        store: of their clips.
        family: of the model.
        context: of the engine.
        name: of the benchmark, for the bar.
    """
    asked = list({question.sample.id: question for question in questions}.values())

    def length(question: "Question") -> int | None:
        try:
            shapes = store.shapes(question.sample)
        except (DecodeError, MissingClipError):
            return None
        return family.num_prompt_tokens(question.prompt_token_ids, shapes)

    looks = map_ahead(length, asked, threads=THREADS)
    found = tqdm(looks, f"{name}: measuring prompts", len(asked), delay=2)
    return Lengths(
        prompts=[length for length in found if length is not None],
        max_new_tokens=max((q.settings.max_new_tokens for q in asked), default=0),
        context=context,
    )


def refuse_overlong(lengths: Lengths, name: str, *, max_share: float) -> None:
    """Raise where more than a share of the prompts does not fit.

    Raises:
        UserError: with how many, how long, and the settings that help.
    """
    count, total = lengths.num_overlong, len(lengths.prompts)
    if not total or count / total <= max_share:
        return
    raise UserError(
        f"benchmark {name}: {count} of {total} questions have up to {max(lengths.prompts)} tokens, "
        f"engine.max_model_len is {lengths.context}; they would count as wrong. Raise it as far as "
        f"the model goes, lower budget@benchmarks.{name}.budget, or let them count as wrong with "
        f"pipeline.max_overlong={count / total:.3f}"
    )
