"""One file per task; importing this package registers them all."""

from easyvideor1.rewards.tasks import (
    boolean,
    multiple_choice,
    numerical,
    open_ended,
    temporal_grounding,
)

__all__ = ["boolean", "multiple_choice", "numerical", "open_ended", "temporal_grounding"]
