"""Offline trajectories as completions: tokenised, checked, and refused by sample id when unusable.

An offline answer ends with the model's real end token, so that it is as complete as a sampled one;
a control token that its text spells out is text. The warm start and the mixed groups both read
trajectories through here. No torch.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

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

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import TextTokens

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class TextEncoder(Protocol):
    """The part of a `FamilyAdapter` used here."""

    def text_tokens(self, text: str) -> "TextTokens":
        """`text` in tokens, none of them a control token, whatever it reads like."""
        ...

    def has_control_text(self, text: str) -> bool:
        """Whether `text` reads like a control token somewhere."""
        ...


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

    encoder: TextEncoder
    end_token_id: int
    """Appended to every trajectory."""
    max_tokens: int
    """Longest completion, its end token included."""
    reward: RewardConfig
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by trajectory, e.g. `{"toybox/17#0": "too_long"}`; each is counted once."""
    control_text: set[str] = field(default_factory=set)
    """Trajectories that are kept although they read like a control token somewhere."""

    def read(self, sample: Sample) -> list[OfflineCompletion]:
        """The usable trajectories of `sample`, in their order; empty when there is none."""
        usable = []
        for index, trajectory in enumerate(sample.offline):
            name = f"{sample.id}#{index}"
            completion = self._read(sample, trajectory)
            if isinstance(completion, str):
                self.refused[name] = completion
                continue
            usable.append(completion)
            if self.encoder.has_control_text(trajectory.text):
                self.control_text.add(name)
        return usable

    def choose(self, sample: Sample, *, seed: int, step: int) -> OfflineCompletion | None:
        """One usable trajectory; which one depends only on seed, step and sample id."""
        usable = self.read(sample)
        return usable[stable_hash(seed, step, sample.id) % len(usable)] if usable else None

    def metrics(self) -> dict[str, float]:
        """Trajectories so far that were refused, by reason, and that hold control text."""
        reasons = Counter(self.refused.values())
        return {
            "offline/refused": float(len(self.refused)),
            **{f"offline/refused/{reason}": float(n) for reason, n in reasons.items()},
            "offline/control_text": float(len(self.control_text)),
        }

    def state(self) -> dict[str, Any]:
        """What was counted, JSON-serialisable."""
        return {"refused": dict(self.refused), "control_text": sorted(self.control_text)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        self.refused = dict(state["refused"])
        self.control_text = set(state["control_text"])

    def _read(self, sample: Sample, trajectory: Trajectory) -> OfflineCompletion | str:
        """The completion, or the reason why it cannot be one."""
        tokens = self.encoder.text_tokens(trajectory.text)
        token_ids = [*tokens.token_ids, self.end_token_id]
        if not tokens.token_ids:
            return "empty"
        if len(token_ids) > self.max_tokens:
            return "too_long"
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
        in_answer = [*_inside_answer(trajectory.text, tokens.spans), False]
        return OfflineCompletion(completion=completion, score=score, in_answer=in_answer)


def stable_hash(*parts: int | str) -> int:
    """A 31-bit number that depends on `parts` alone, equal in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _inside_answer(text: str, spans: list[tuple[int, int]]) -> list[bool]:
    answers = [match.span(1) for match in ANSWER.finditer(text)]
    return [any(start < high and end > low for low, high in answers) for start, end in spans]
