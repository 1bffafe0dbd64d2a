"""Samples that a run leaves out: by name and reason, told once, and an end where they are many.

A sample is *refused* when something is wrong with it, and *dropped* when its prompt is too long.
Users fear data that shrink without a word: the share of refused samples has a limit. Used by the
streams of training, by validation and before decoding.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from tqdm import tqdm

from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import UserError

MIN_DRAWN = 50
"""Samples that must have been drawn before a share of them says anything."""
NUM_SHOWN = 5
"""Samples that the console names per reason, and that the error does."""


class Reason(StrEnum):
    """Why a sample is left out."""

    prompt_too_long = "prompt_too_long"
    """Longer than `rollout.max_prompt_tokens`; known without decoding anything."""
    longer_than_announced = "longer_than_announced"
    """The same, but the headers of its media promised that it would fit."""
    placeholders = "placeholders"
    """`<image>` and `<video>` in its problem do not match its media."""
    not_decodable = "not_decodable"
    """A medium has no file, or gives no frames."""
    not_cached = "not_cached"
    """`cache.mode=require`, and the cache lacks its frames under these settings."""
    hidden_answer = "hidden_answer"
    """Its gold answer is hidden, so that no answer can be scored."""
    refused_by_engine = "refused_by_engine"
    """The engine could not load its frames or would not take its prompt."""
    refused_by_learner = "refused_by_learner"
    """The learner could not load its frames, or they do not fit its prompt."""

    @property
    def is_final(self) -> bool:
        """Whether the sample is not tried again: only a rollout or an update would tell."""
        return self in (Reason.refused_by_engine, Reason.refused_by_learner)

    @property
    def is_length(self) -> bool:
        """Whether the sample is dropped for its length and nothing is wrong with it."""
        return self in (Reason.prompt_too_long, Reason.longer_than_announced)


class UnusableSampleError(Exception):
    """A sample that cannot be asked."""

    def __init__(self, reason: Reason, detail: str):
        super().__init__(f"{reason.value}: {detail}")
        self.reason, self.detail = reason, detail


class Journal:
    """`data_report.jsonl` of a run, and the console: each sample of a set once per reason.

    Args:
        path: of the file; samples that it names already are not told again. None for no file.
        set_name: `training` or `validation`.
    """

    def __init__(self, path: Path | None, set_name: str):
        self._path, self._set_name = path, set_name
        rows = jsonl.read(path) if path is not None and path.is_file() else []
        self._told = {(row["id"], row["reason"]) for row in rows if row["set"] == set_name}
        self._num_shown = Counter[str]()
        self._waiting: list[dict[str, str]] = []

    def tell(self, sample_id: str, reason: str, detail: str) -> None:
        """Note a sample, unless it is noted."""
        if (sample_id, reason) in self._told:
            return
        self._told.add((sample_id, reason))
        self._waiting.append(
            {"set": self._set_name, "id": sample_id, "reason": reason, "detail": detail}
        )
        self._num_shown[reason] += 1
        if self._num_shown[reason] <= NUM_SHOWN:
            tqdm.write(f"{self._set_name} sample {sample_id!r}: {reason}: {detail}")
        elif self._num_shown[reason] == NUM_SHOWN + 1 and self._path is not None:
            tqdm.write(f"further {self._set_name} samples, {reason}: listed in {self._path}")

    def flush(self) -> None:
        """Write what was noted to the file."""
        if self._path is not None:
            jsonl.append(self._path, self._waiting)
        self._waiting.clear()


class LeftOut:
    """The samples that one set leaves out.

    Args:
        name: for messages and as prefix of the metrics, e.g. `data`.
        max_share: of refused samples among those drawn; more end the run.
        journal: where each is told.
    """

    def __init__(self, name: str, *, max_share: float, journal: Journal):
        self._name, self._max_share, self._journal = name, max_share, journal
        self._reasons: dict[str, Reason] = {}
        self._details: dict[str, str] = {}
        self._num_refused = 0

    @property
    def count(self) -> int:
        """How many."""
        return len(self._reasons)

    def __str__(self) -> str:
        """E.g. `3 not_decodable, 1 prompt_too_long`."""
        counts = Counter(self._reasons.values()).most_common()
        return ", ".join(f"{count} {reason.value}" for reason, count in counts)

    def reason(self, sample_id: str) -> Reason | None:
        """Why a sample is left out; None where it is not."""
        return self._reasons.get(sample_id)

    def add(self, sample_id: str, reason: Reason, detail: str) -> None:
        """Leave a sample out and tell so."""
        self.take_back(sample_id)
        self._reasons[sample_id] = reason
        self._num_refused += not reason.is_length
        self._details.setdefault(reason, detail)
        self._journal.tell(sample_id, reason.value, detail)

    def note_rescaled(self, sample_id: str, detail: str) -> None:
        """Tell that a sample was not left out, but given a smaller budget."""
        self._journal.tell(sample_id, "rescaled", detail)

    def take_back(self, sample_id: str) -> None:
        """A sample can be asked after all: its file or the cache was put right meanwhile."""
        reason = self._reasons.pop(sample_id, None)
        self._num_refused -= reason is not None and not reason.is_length

    def check(self, num_drawn: int) -> None:
        """End the run where too large a share was refused.

        Args:
            num_drawn: distinct samples looked at so far.

        Raises:
            UserError: with a table of the reasons and the first ids of each.
        """
        self._journal.flush()
        if num_drawn < MIN_DRAWN or self._num_refused <= self._max_share * num_drawn:
            return
        share = self._num_refused / num_drawn
        refused = [reason for reason in Reason if not reason.is_length]
        raise UserError(
            f"{self._name}: {self._num_refused} of {num_drawn} samples ({share:.1%}) were refused, "
            f"more than data.max_refused_share={self._max_share:g}:\n{self._table(refused)}\n"
            "Repair or remove them, or raise data.max_refused_share"
        )

    def nothing_left(self, num_samples: int) -> str:
        """What to say where no sample is usable."""
        table = self._table(Reason) or "  none has what is asked for"
        return f"{self._name}: no usable sample among {num_samples}:\n{table}"

    def metrics(self, num_drawn: int) -> dict[str, float]:
        """Counts and shares of refused and of dropped samples, in total and by reason."""
        numbers: dict[str, float] = {}
        by_reason = Counter(self._reasons.values())
        for kind, is_length in (("refused", False), ("dropped", True)):
            counts = {r: n for r, n in by_reason.items() if r.is_length is is_length}
            total = sum(counts.values())
            numbers |= {
                f"{self._name}/{kind}": float(total),
                f"{self._name}/{kind}_share": total / max(1, num_drawn),
                **{f"{self._name}/{kind}/{r.value}": float(n) for r, n in sorted(counts.items())},
            }
        return numbers

    def state(self) -> dict[str, str]:
        """Reasons by sample id, JSON-serialisable."""
        return {sample_id: reason.value for sample_id, reason in self._reasons.items()}

    def load_state(self, state: dict[str, str]) -> None:
        """Continue from a `state()`."""
        self._reasons = {sample_id: Reason(reason) for sample_id, reason in state.items()}
        self._num_refused = sum(not reason.is_length for reason in self._reasons.values())

    def _table(self, reasons: Iterable[Reason]) -> str:
        lines = []
        for reason in reasons:
            ids = [name for name, of in self._reasons.items() if of is reason]
            if ids:
                shown = ", ".join(ids[:NUM_SHOWN]) + (", …" * (len(ids) > NUM_SHOWN))
                lines.append(f"  {reason.value:21} {len(ids):6}  {shown}")
                if detail := self._details.get(reason):
                    lines.append(f"  {'':21} {'':6}  the first: {detail}")
        return "\n".join(lines)
