"""One file per task; importing this package registers them all."""

from easyvideor1.rewards.tasks import (
    boolean,
    code,
    html_code,
    math,
    multiple_choice,
    numerical,
    ocr,
    open_ended,
    preference,
    regression,
    spatial_grounding,
    spatial_temporal_grounding,
    svg_code,
    temporal_grounding,
    tracking,
)

__all__ = [
    "boolean",
    "code",
    "html_code",
    "math",
    "multiple_choice",
    "numerical",
    "ocr",
    "open_ended",
    "preference",
    "regression",
    "spatial_grounding",
    "spatial_temporal_grounding",
    "svg_code",
    "temporal_grounding",
    "tracking",
]
