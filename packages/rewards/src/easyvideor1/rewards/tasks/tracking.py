"""Where something is at each second: accuracy is the mean IoU of the boxes of the same second.

The mean goes over the seconds that the answer or the gold track has, so that leaving out and
padding both cost; `reward.grounding.mean` has other choices. `boxes` says which forms are read.
"""

import json

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.coordinates import in_answer_space, space_in_words
from easyvideor1.rewards.json_in_text import find_json, is_json_object
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.rewards.tracks import Track, track_as_json, track_in_json, track_iou, track_of
from easyvideor1.schema.records import Answer, ProblemType, Sample

TrackJson = dict[str, list[float]]


@register_task(ProblemType.tracking)
class Tracking(Task[TrackJson]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        words = space_in_words(sample, config.grounding)
        return (
            f"Reason briefly, then give a box {words} for each second as "
            '<answer>{"boxes": {"0": [x1, y1, x2, y2], ...}}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> TrackJson:
        found = [
            track
            for value in find_json(answer.searched)
            if (track := track_in_json(value.value)) is not None
        ]
        if not found or not found[0]:
            raise NoAnswer("no boxes by second")
        if any(track != found[0] for track in found):
            raise NoAnswer("several answers")
        return track_as_json(found[0])

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_json_object(answer.text, "boxes")

    def score(self, value: TrackJson, sample: Sample, config: RewardConfig) -> float:
        return track_iou(track_of(value), _gold(sample, config), config.grounding.mean)

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return json.dumps({"boxes": track_as_json(_gold(sample, config))})


def _track_of(answer: Answer) -> Track | None:
    """The track of a gold answer, of boxes with an area; None where it is something else."""
    if isinstance(answer, str):
        values = [found.value for found in find_json(answer)]
        answer = values[0] if len(values) == 1 else None
    try:
        track = track_in_json(answer)
    except NoAnswer:
        return None
    if not track:
        return None
    return track if all(x1 < x2 and y1 < y2 for x1, y1, x2, y2 in track.values()) else None


def _gold(sample: Sample, config: RewardConfig) -> Track:
    """The gold track in the space of the answers."""
    track = _track_of(sample.answer)
    if track is None:
        raise GoldError(sample, 'boxes by second, {"boxes": {"0": [x1, y1, x2, y2], …}}')
    boxes = in_answer_space(track.values(), sample, config.grounding)
    return dict(zip(track, boxes, strict=True))
