"""When something happens: accuracy is the 1-D intersection over union with the gold interval.

Where there are several intervals, gold or answered, the seconds that both sets cover are divided by
the seconds that either covers. `intervals` says which forms are read.
"""

import json

from easyvideor1.rewards.config import RewardConfig
from easyvideor1.rewards.intervals import (
    Interval,
    checked_intervals,
    intervals_as_json,
    intervals_in_json,
    intervals_of,
    read_intervals,
    union_iou,
)
from easyvideor1.rewards.json_in_text import is_json_object
from easyvideor1.rewards.reading import AnswerText, NoAnswer
from easyvideor1.rewards.registry import GoldError, Task, register_task
from easyvideor1.schema.records import Answer, ProblemType, Sample


@register_task(ProblemType.temporal_grounding)
class TemporalGrounding(Task[list]):
    def instruction(self, sample: Sample, config: RewardConfig) -> str:
        shape = "[start, end]"
        if gold := gold_intervals(sample.answer):
            shape = "[[start, end], ...]" if len(gold) > 1 else shape
        return (
            "Reason briefly, then give start and end in seconds as "
            f'<answer>{{"time": {shape}}}</answer>.'
        )

    def extract(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> list:
        return intervals_as_json(read_intervals(answer))

    def has_asked_form(self, answer: AnswerText, sample: Sample, config: RewardConfig) -> bool:
        return is_json_object(answer.text, "time")

    def score(self, value: list, sample: Sample, config: RewardConfig) -> float:
        return union_iou(intervals_of(value), _gold(sample))

    def render_gold(self, sample: Sample, config: RewardConfig) -> str:
        return json.dumps({"time": intervals_as_json(_gold(sample))})


def gold_intervals(answer: Answer) -> list[Interval] | None:
    """The intervals of a gold answer, each longer than nothing; None where it is something else."""
    try:
        if isinstance(answer, str):
            found = read_intervals(AnswerText(answer.strip(), tagged=True))
        else:
            found = checked_intervals(intervals_in_json(answer) or [])
    except NoAnswer:
        return None
    return found if found and all(start < end for start, end in found) else None


def _gold(sample: Sample) -> list[Interval]:
    found = gold_intervals(sample.answer)
    if found is None:
        raise GoldError(
            sample, "an interval [start, end] in seconds with start before end, or a list of them"
        )
    return found
