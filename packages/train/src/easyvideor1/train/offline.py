"""Offline trajectories as completions: tokenised, checked, and refused by sample id when unusable.

An offline answer ends with the model's real end token, so that it is as complete as a sampled one.
The warm start and the mixed groups both read trajectories through here. No torch.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from easyvideor1.rewards import score_many
from easyvideor1.rewards.config import RewardConfig
from easyvideor1.schema.records import (
    Completion,
    Sample,
    Score,
    ScoreStatus,
    Segment,
    Source,
    Trajectory,
)

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class Tokenizer(Protocol):
    """The part of a Hugging Face fast tokenizer used here."""

    def __call__(
        self, text: str, *, add_special_tokens: bool, return_offsets_mapping: bool
    ) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class OfflineCompletion:
    """An offline trajectory, ready to stand beside sampled completions."""

    completion: Completion
    score: Score
    in_answer: list[bool]
    """[L] True for the tokens between `<answer>` and `</answer>`."""


@dataclass(kw_only=True, slots=True)
class OfflineReader:
    """Turns the trajectories of samples into completions and counts those it refuses."""

    tokenizer: Tokenizer
    end_token_id: int
    """Appended to every trajectory."""
    special_token_ids: Collection[int]
    """Ids that may not stand inside an answer: media, control and end tokens."""
    max_tokens: int
    """Longest completion, its end token included."""
    reward: RewardConfig
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by trajectory, e.g. `{"toybox/17#0": "too_long"}`; each is counted once."""

    def read(self, sample: Sample) -> list[OfflineCompletion]:
        """The usable trajectories of `sample`, in their order; empty when there is none."""
        usable = []
        for index, trajectory in enumerate(sample.offline):
            completion = self._read(sample, trajectory)
            if isinstance(completion, str):
                self.refused[f"{sample.id}#{index}"] = completion
            else:
                usable.append(completion)
        return usable

    def choose(self, sample: Sample, *, seed: int, step: int) -> OfflineCompletion | None:
        """One usable trajectory; which one depends only on seed, step and sample id."""
        usable = self.read(sample)
        return usable[stable_hash(seed, step, sample.id) % len(usable)] if usable else None

    def metrics(self) -> dict[str, float]:
        """Refused trajectories so far, in total and by reason."""
        reasons = Counter(self.refused.values())
        counts = {f"offline/refused/{reason}": float(n) for reason, n in reasons.items()}
        return {"offline/refused": float(len(self.refused)), **counts}

    def state(self) -> dict[str, Any]:
        """What was refused, JSON-serialisable."""
        return {"refused": dict(self.refused)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        self.refused = dict(state["refused"])

    def _read(self, sample: Sample, trajectory: Trajectory) -> OfflineCompletion | str:
        """The completion, or the reason why it cannot be one."""
        tokens = self.tokenizer(
            trajectory.text, add_special_tokens=False, return_offsets_mapping=True
        )
        token_ids = [*tokens["input_ids"], self.end_token_id]
        if not tokens["input_ids"]:
            return "empty"
        if len(token_ids) > self.max_tokens:
            return "too_long"
        if any(token in self.special_token_ids for token in tokens["input_ids"]):
            return "special_tokens"
        items = [(sample, trajectory.text)]
        (score,) = score_many(items, self.reward, num_tokens=[len(token_ids)])
        if score.status is not ScoreStatus.ok:
            return f"score_{score.status.value}"
        completion = Completion(
            segments=(Segment(token_ids=tuple(token_ids)),),
            text=trajectory.text,
            finish_reason="offline",
            source=Source.offline,
        )
        in_answer = [*_inside_answer(trajectory.text, tokens["offset_mapping"]), False]
        return OfflineCompletion(completion=completion, score=score, in_answer=in_answer)


def stable_hash(*parts: int | str) -> int:
    """A 31-bit number that depends on `parts` alone, equal in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _inside_answer(text: str, offsets: list[tuple[int, int]]) -> list[bool]:
    spans = [match.span(1) for match in ANSWER.finditer(text)]
    return [any(start < high and end > low for low, high in spans) for start, end in offsets]
