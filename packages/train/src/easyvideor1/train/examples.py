"""The completions of a step as the update takes them, without those it is not to learn from.

Called by `loop`, between advantages and update.
"""

from collections.abc import Sequence

from easyvideor1.schema.records import Completion
from easyvideor1.train.algorithm_config import OfflineConfig, OfflineNegative, OfflineTreatment
from easyvideor1.train.interfaces import Experience, TrainExample
from easyvideor1.train.offline_baseline import is_offline

# Legend: L tokens of one completion.


def to_examples(
    experiences: Sequence[Experience],
    advantages: Sequence[list[float]],
    offline: OfflineConfig,
) -> list[TrainExample]:
    """The completions of a step in order, each with the advantages [L] of its tokens.

    An offline completion that is worse than the baseline is left out with `offline.negative=drop`.
    """
    answers = [(e.prompt, completion) for e in experiences for completion in e.group.completions]
    return [
        TrainExample(prompt=prompt, completion=completion, advantages=of_tokens)
        for (prompt, completion), of_tokens in zip(answers, advantages, strict=True)
        if not is_dropped(completion, of_tokens, offline)
    ]


def count_dropped(
    experiences: Sequence[Experience], examples: Sequence[TrainExample]
) -> dict[str, float]:
    """How many offline completions of the step the update was not given."""
    num_completions = sum(len(e.group.completions) for e in experiences)
    return {"offline/dropped": float(num_completions - len(examples))}


def is_dropped(completion: Completion, advantages: Sequence[float], offline: OfflineConfig) -> bool:
    """Whether a completion is left out of the update."""
    return (
        is_offline(completion)
        and offline.negative is OfflineNegative.drop
        and offline.treatment is not OfflineTreatment.chord
        and sum(advantages) < 0
    )
