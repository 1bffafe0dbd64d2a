"""The stream of training prompts: shuffled per epoch, endless, resumable, over-long ones dropped.

The order depends on the seed and the number of samples alone, so a position is one number. How a
sample becomes a prompt is handed in; the loop takes prompts from here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.train.interfaces import Prompt


class UnusableSampleError(Exception):
    """A sample that cannot be asked; the text is the short reason under which it is counted."""


class TrainingData:
    """An endless stream of prompts over `samples`, each epoch in its own order."""

    def __init__(
        self,
        samples: Sequence[Sample],
        prompt_of: Callable[[Sample], Prompt],
        *,
        seed: int,
        max_prompt_tokens: int,
        usable: Callable[[Sample], bool] = lambda sample: True,
        name: str = "data",
    ):
        """Open the stream at its beginning.

        Args:
            samples: all training samples; only `len` and indexing are used.
            prompt_of: turns a sample into a prompt, or raises `UnusableSampleError`.
            seed: of the order.
            max_prompt_tokens: longer prompts are dropped and counted, never cut.
            usable: samples for which this is False are passed over without being counted.
            name: prefix of the metrics and of error messages.
        """
        self._samples = samples
        self._prompt_of = prompt_of
        self._seed = seed
        self._max_prompt_tokens = max_prompt_tokens
        self._usable = usable
        self._name = name
        self._consumed = 0  # indices drawn since the beginning, over all epochs
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))
        self._dropped: dict[str, str] = {}  # sample id -> reason

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts.

        Raises:
            UserError: when a whole epoch holds no usable sample.
        """
        prompts: list[Prompt] = []
        passed_over = 0
        while len(prompts) < count:
            prompt = self._prompt_or_drop(self._next())
            if prompt is not None:
                prompts.append(prompt)
                passed_over = 0
                continue
            passed_over += 1
            if passed_over >= len(self._samples):
                raise UserError(self._nothing_left())
        return prompts

    def metrics(self) -> dict[str, float]:
        """Epochs seen, and distinct samples dropped so far, in total and by reason."""
        reasons = Counter(self._dropped.values())
        return {
            f"{self._name}/epoch": self._consumed / max(1, len(self._samples)),
            f"{self._name}/dropped": float(len(self._dropped)),
            **{f"{self._name}/dropped/{reason}": float(n) for reason, n in reasons.items()},
        }

    def state(self) -> dict[str, Any]:
        """Position and drop counts, JSON-serialisable."""
        return {
            "consumed": self._consumed,
            "num_samples": len(self._samples),
            "dropped": dict(self._dropped),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`.

        Raises:
            UserError: when the data files hold another number of samples than they did then.
        """
        if state["num_samples"] != len(self._samples):
            raise UserError(
                f"{self._name}: the checkpoint was taken with {state['num_samples']} samples, the "
                f"files now hold {len(self._samples)}; restore the files or start another run_name"
            )
        self._consumed = state["consumed"]
        self._dropped = dict(state["dropped"])

    def _next(self) -> Sample:
        if not len(self._samples):
            raise UserError(f"{self._name}: there are no samples")
        epoch, index = divmod(self._consumed, len(self._samples))
        if self._order[0] != epoch:
            shuffled = np.random.default_rng((self._seed, epoch)).permutation(len(self._samples))
            self._order = (epoch, shuffled)
        self._consumed += 1
        return self._samples[int(self._order[1][index])]

    def _prompt_or_drop(self, sample: Sample) -> Prompt | None:
        if not self._usable(sample):
            return None
        try:
            prompt = self._prompt_of(sample)
        except UnusableSampleError as error:
            self._dropped[sample.id] = str(error)
            return None
        if prompt.num_tokens > self._max_prompt_tokens:
            self._dropped[sample.id] = "prompt_too_long"
            return None
        return prompt

    def _nothing_left(self) -> str:
        reasons = Counter(self._dropped.values())
        text = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common()) or "none usable"
        return (
            f"{self._name}: no usable sample among {len(self._samples)} ({text}; "
            f"rollout.max_prompt_tokens={self._max_prompt_tokens})"
        )
