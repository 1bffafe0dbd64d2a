"""The divergence from the reference over a run: where it enters, and with which coefficient.

In the loss the learner adds it; in the reward it is a penalty of each token, computed between
rewards and advantages. Called by the loop; its coefficient goes into checkpoints.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from easyvideor1.train.algorithm_config import KlConfig, KlPlace
from easyvideor1.train.interfaces import Experience, Learner, TrainExample
from easyvideor1.train.kl import KlControl


class KlPenalty:
    """`algorithm.kl` as the loop sees it."""

    def __init__(self, config: KlConfig):
        self._config = config
        self._control = KlControl(config)
        self._metrics: dict[str, float] = {}

    @property
    def in_reward(self) -> bool:
        """Whether `of_tokens` is to be asked before the advantages."""
        return self._config.place is KlPlace.reward

    @property
    def loss_coefficient(self) -> float:
        """What the divergence is multiplied by in the loss; 0 where it is not part of it."""
        return self._control.coefficient if self._config.place is KlPlace.loss else 0.0

    def of_tokens(self, experiences: Sequence[Experience], learner: Learner) -> list[list[float]]:
        """What the reward of each token, of offline completions too, is changed by: -c KL.

        Returns:
            Per completion of all experiences in order [L], 0 on tokens that no policy chose, and
            on completions that the learner refuses, which count neither in the mean.
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
        coefficient = self._control.coefficient
        known = [(e, d) for e, d in zip(examples, divergences, strict=True) if d is not None]
        if known:
            num_tokens = sum(sum(example.completion.loss_mask) for example, _ in known)
            self._follow(sum(sum(values) for _, values in known) / num_tokens, len(known))
        return [
            [-coefficient * value for value in values or [0.0] * len(example.advantages)]
            for example, values in zip(examples, divergences, strict=True)
        ]

    def after_update(self, learned: Mapping[str, float], num_completions: int) -> None:
        """Let the coefficient follow the divergence that an update found in its loss."""
        if self._config.place is KlPlace.loss and "learner/reference_kl" in learned:
            self._follow(learned["learner/reference_kl"], num_completions)

    def metrics(self) -> dict[str, float]:
        """The mean divergence per token in nats, and its coefficient, since the last call.

        Nothing where none was computed.
        """
        told, self._metrics = self._metrics, {}
        return told

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return self._control.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state()`."""
        self._control.load_state(state)

    def _follow(self, divergence: float, num_completions: int) -> None:
        self._metrics = {"kl/mean": divergence, "kl/coefficient": self._control.coefficient}
        self._control.update(divergence, num_completions)
