"""The shape a clip will have, by the header of its medium and the rules; nothing is decoded.

Sampling and geometry are those of `decode`. What a header says may differ from what the file holds:
whoever decodes sees the truth. Used by plans and by the prompt-length check of training.
"""

from typing import TYPE_CHECKING

from easyvideor1.preprocess.clip import ClipShape
from easyvideor1.preprocess.geometry import resize_shape
from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import select_frames
from easyvideor1.schema.budget import FrameBudget
from easyvideor1.schema.records import Media, MediaKind

if TYPE_CHECKING:
    from easyvideor1.preprocess.scan import SourceProbe


def announced_shape(
    media: Media, source: "SourceProbe", budget: FrameBudget, rules: FamilyRules
) -> ClipShape:
    """What frames of the medium there will be; with `snap: keyframe`, the most there can be.

    Args:
        media: an image, a video, a span of one, or a list of frame files.
        source: its header, as `decode.probe` reads it.
        budget: how many frames and pixels it may cost.
        rules: of the model family.

    Raises:
        ValueError: if its span holds no frame, or it is too thin to be resized.
    """
    if media.kind is MediaKind.image:
        timestamps_s, sample_fps, num_frames = (0.0,), 1.0, None
    else:
        selection = select_frames(
            total_frames=source.total_frames,
            source_fps=source.fps,
            budget=budget,
            rules=rules,
            start_s=media.start_s,
            end_s=media.end_s,
        )
        timestamps_s, sample_fps = selection.timestamps_s, selection.sample_fps
        num_frames = len(timestamps_s)
    height, width = resize_shape(
        source.height, source.width, num_frames=num_frames, budget=budget, rules=rules
    )
    return ClipShape(
        kind=media.kind,
        shape=(len(timestamps_s), 3, height, width),
        timestamps_s=timestamps_s,
        sample_fps=sample_fps,
    )
