"""The stream of training prompts: endless, resumable, and open about its gaps.

The order (`orders`) is a function of the position alone, so a position is one number. How a sample
becomes a prompt is handed in; what cannot become one is left out by name (`left_out`). The
loop takes prompts from here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.left_out import LeftOut, Reason, UnusableSampleError
from easyvideor1.train.orders import Order


class TrainingData:
    """An endless stream of prompts over `samples`."""

    def __init__(
        self,
        samples: Sequence[Sample],
        prompt_of: Callable[[Sample], Prompt],
        *,
        order: Order,
        left_out: LeftOut,
        usable: Callable[[Sample], bool] = lambda sample: True,
        name: str = "data",
    ):
        """Open the stream at its beginning.

        Args:
            samples: all training samples; only `len` and indexing are used.
            prompt_of: turns a sample into a prompt, or raises `UnusableSampleError`.
            order: which of them is drawn when.
            left_out: keeps the samples that cannot be asked.
            usable: samples for which this is False are passed over without being counted.
            name: prefix of the metrics and of error messages.
        """
        self._samples = samples
        self._prompt_of = prompt_of
        self._order = order
        self._left_out = left_out
        self._usable = usable
        self._name = name
        self._consumed = 0  # indices drawn since the beginning, over all epochs
        self._num_passed_over = 0  # distinct ones
        self._rescaled: set[str] = set()
        self._control_text: set[str] = set()

    @property
    def num_drawn(self) -> int:
        """Distinct samples looked at so far, without those passed over."""
        return self._order.num_distinct(self._consumed) - self._num_passed_over

    def take(self, count: int) -> list[Prompt]:
        """The next `count` prompts.

        Raises:
            UserError: when a whole epoch holds no usable sample, or too many were refused.
        """
        prompts: list[Prompt] = []
        num_in_vain = 0
        while len(prompts) < count:
            prompt = self._prompt_or_none(*self._next())
            self._left_out.check(self.num_drawn)
            if prompt is not None:
                prompts.append(prompt)
                num_in_vain = 0
                continue
            num_in_vain += 1
            if num_in_vain >= len(self._samples):
                raise UserError(self._left_out.nothing_left(len(self._samples)))
        return prompts

    def refuse(self, details: Mapping[str, str], reason: Reason) -> None:
        """Never take these again: the engine or the learner, which saw their frames, refused them.

        Args:
            details: what was wrong, by sample id.
            reason: who refused them.

        Raises:
            UserError: when too many were refused.
        """
        for sample_id, detail in details.items():
            self._left_out.add(sample_id, reason, detail)
        self._left_out.check(self.num_drawn)

    def metrics(self) -> dict[str, float]:
        """Epochs seen, and distinct samples so far: left out by reason, rescaled, control text."""
        return {
            f"{self._name}/epoch": self._consumed / max(1, len(self._samples)),
            **self._left_out.metrics(self.num_drawn),
            f"{self._name}/rescaled": float(len(self._rescaled)),
            f"{self._name}/control_text": float(len(self._control_text)),
        }

    def state(self) -> dict[str, Any]:
        """Position and counts, JSON-serialisable."""
        return {
            "consumed": self._consumed,
            "num_samples": len(self._samples),
            "num_passed_over": self._num_passed_over,
            "left_out": self._left_out.state(),
            "rescaled": sorted(self._rescaled),
            "control_text": sorted(self._control_text),
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
        self._num_passed_over = state["num_passed_over"]
        self._left_out.load_state(state["left_out"])
        self._rescaled = set(state["rescaled"])
        self._control_text = set(state["control_text"])

    def _next(self) -> tuple[Sample, bool]:
        """The next sample, and whether it is drawn for the first time."""
        if not len(self._samples):
            raise UserError(f"{self._name}: there are no samples")
        draw = self._order[self._consumed]
        self._consumed += 1
        return self._samples[draw.index], draw.is_first

    def _prompt_or_none(self, sample: Sample, is_first: bool) -> Prompt | None:
        if not self._usable(sample):
            self._num_passed_over += is_first
            return None
        known = self._left_out.reason(sample.id)
        if known is not None and known.is_final:
            return None
        try:
            prompt = self._prompt_of(sample)
        except UnusableSampleError as error:
            self._left_out.add(sample.id, error.reason, error.detail)
            return None
        self._left_out.take_back(sample.id)
        if prompt.rescaled:
            self._rescaled.add(sample.id)
            self._left_out.note_rescaled(sample.id, prompt.rescaled)
        if prompt.has_control_text:
            self._control_text.add(sample.id)
        return prompt
