"""What an engine is asked, what it answers, and how that can fail."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easyvideor1.evaluate.config import SamplingSettings
from easyvideor1.schema.records import Completion

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip


class RequestRefusedError(Exception):
    """This request cannot be answered; others go on.

    It is too long, its media do not fit, or the engine reads it otherwise than a learner would.
    """


class RequestFailedError(Exception):
    """The engine failed on this request and lives."""


class EngineDiedError(Exception):
    """The engine process has ended; every request from now on fails. Start a new engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRequest:
    """One prompt to be answered `settings.n` times."""

    request_id: str
    """Unique among the requests in flight."""
    prompt_token_ids: list[int]
    """Unexpanded: one placeholder per medium. The engine puts in the media tokens."""
    clips: "list[Clip]"
    """One per medium, in the order of the placeholders."""
    settings: SamplingSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineResult:
    prompt_token_ids: list[int]
    """Expanded: as the model saw it."""
    completions: list[Completion]
    """[n] each one segment, stamped with the version of the weights."""
    seconds: float
    """From the call to the last token, waiting included."""
