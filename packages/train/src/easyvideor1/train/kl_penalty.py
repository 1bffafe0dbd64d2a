"""The divergence from the reference as a part of the reward: `algorithm.kl.place=reward`.

Called by the loop between rewards and advantages, which need it.
"""

from collections.abc import Sequence

from easyvideor1.train.interfaces import Experience, Learner, TrainExample
from easyvideor1.train.kl import KlControl


def kl_penalties(
    experiences: Sequence[Experience], learner: Learner, control: KlControl
) -> tuple[list[list[float]], dict[str, float]]:
    """What the reward of each token is changed by: -c KL, with c before it follows this step's KL.

    Offline completions are penalised like sampled ones.

    Returns:
        Per completion of all experiences in order [L] penalties, 0 on tokens that no policy chose;
        and metrics: the mean KL per token, and c.
    """
    examples = [
        TrainExample(
            prompt=experience.prompt,
            completion=completion,
            advantages=[0.0] * len(completion.token_ids),
        )
        for experience in experiences
        for completion in experience.group.completions
    ]
    divergences = learner.divergences(examples)
    coefficient = control.coefficient
    num_tokens = sum(sum(example.completion.loss_mask) for example in examples)
    mean = sum(map(sum, divergences)) / max(1, num_tokens)
    control.update(mean, len(examples))
    penalties = [[-coefficient * value for value in values] for values in divergences]
    return penalties, {"reward/kl": mean, "learner/kl_coefficient": coefficient}
