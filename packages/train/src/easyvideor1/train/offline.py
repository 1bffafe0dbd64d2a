"""Offline trajectories as completions: tokenised, checked, and refused by sample id when unusable.

An offline answer ends with the model's real end token, so that it is as complete as a sampled one;
a control token that its text spells out is text. Where the data tell the log-probs of who wrote it,
one per token with or without the end, its tokens carry them. The warm start and the mixed groups
both read trajectories through here. No torch.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
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
        return next(iter(self.choose_several(sample, 1, seed, step)), None)

    def choose_several(
        self, sample: Sample, count: int, seed: int, step: int
    ) -> list[OfflineCompletion]:
        """Up to so many usable trajectories, each once, beginning with that of `choose`."""
        usable = self.read(sample)
        if not usable:
            return []
        start = stable_hash(seed, step, sample.id)
        return [usable[(start + i) % len(usable)] for i in range(min(count, len(usable)))]

    def metrics(self) -> dict[str, float]:
        """Trajectories so far that were refused, by reason."""
        reasons = Counter(self.refused.values())
        return {
            "offline/refused": float(len(self.refused)),
            **{f"offline/refused/{reason}": float(n) for reason, n in reasons.items()},
        }

    def state(self) -> dict[str, Any]:
        """What was counted, JSON-serialisable."""
        return {"refused": dict(self.refused)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`."""
        self.refused = dict(state["refused"])

    def _read(self, sample: Sample, trajectory: Trajectory) -> OfflineCompletion | str:
        """The completion, or the reason why it cannot be one."""
        if self.encoder.has_control_text(trajectory.text):
            return "control_text"
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
        if trajectory.logprobs is not None and (reason := _why_no_logprobs(trajectory, tokens)):
            return reason
        completion = Completion(
            segments=_segments(tokens.token_ids, self.end_token_id, trajectory.logprobs),
            text=trajectory.text,
            finish_reason="offline",
            source=Source.offline,
        )
        in_answer = [*_inside_answer(trajectory.text, tokens.spans), False]
        return OfflineCompletion(completion=completion, score=score, in_answer=in_answer)


def _segments(
    token_ids: Sequence[int], end_token_id: int, logprobs: Sequence[float] | None
) -> tuple[Segment, ...]:
    """The tokens of a trajectory with the end token, which may have no log-prob where others do."""
    whole = (*token_ids, end_token_id)
    if logprobs is None or len(logprobs) == len(whole):
        return (Segment(token_ids=whole, logprobs=None if logprobs is None else tuple(logprobs)),)
    return (
        Segment(token_ids=tuple(token_ids), logprobs=tuple(logprobs)),
        Segment(token_ids=(end_token_id,)),
    )


def _why_no_logprobs(trajectory: Trajectory, tokens: "TextTokens") -> str:
    """Why its behaviour log-probs cannot be those of its tokens; empty if they can."""
    logprobs = trajectory.logprobs or ()
    if len(logprobs) not in (len(tokens.token_ids), len(tokens.token_ids) + 1):
        return "logprobs_of_other_tokens"
    if not all(math.isfinite(value) and value <= 0 for value in logprobs):
        return "logprobs_invalid"
    return ""


def stable_hash(*parts: int | str) -> int:
    """A 31-bit number that depends on `parts` alone, equal in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _inside_answer(text: str, spans: list[tuple[int, int]]) -> list[bool]:
    answers = [match.span(1) for match in ANSWER.finditer(text)]
    return [any(start < high and end > low for low, high in answers) for start, end in spans]
