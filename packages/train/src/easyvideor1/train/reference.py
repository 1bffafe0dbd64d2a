"""The reference policy: a frozen copy of the weights that reinforcement learning begins with.

Sharded like the policy and in the dtype it computes in. There only where `algorithm.kl` asks for
it; owned by `learner.RankLearner`.
"""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from easyvideor1.train.algorithm_config import KlEstimator
from easyvideor1.train.kl import ESTIMATORS
from easyvideor1.train.model_forward import Distribution, PolicyModel, TokenScores
from easyvideor1.train.token_tree import Batch


class Reference:
    """What the policy is kept close to, and how far it is from it."""

    def __init__(self, model: PolicyModel, estimator: KlEstimator):
        """Take over a model of the policy's structure, sharded without a backward.

        Args:
            model: any weights; `adopt` replaces them.
            estimator: of the divergence.
        """
        self.model = model.eval().requires_grad_(False)
        self._estimator = estimator

    @torch.no_grad()
    def adopt(self, policy: nn.Module) -> None:
        """Take the policy's current weights."""
        for mine, theirs in zip(self.model.parameters(), policy.parameters(), strict=True):
            _local(mine).copy_(_local(theirs))

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Distribution | None:
        """What the policy's forward needs of the reference; None where log-probs are enough."""
        if self._estimator is not KlEstimator.full:
            return None
        return self.model.distribution(batch)

    def divergence(self, batch: Batch, policy: TokenScores) -> Tensor:
        """[N] KL of the policy from the reference at each target, with the policy's gradient.

        Args:
            batch: the targets.
            policy: their scores; with this reference's `distribution` where there is one.
        """
        if self._estimator is KlEstimator.full:
            return policy.divergence
        with torch.no_grad():
            logprobs_N = self.model(batch).logprobs
        return ESTIMATORS[self._estimator](policy.logprobs, logprobs_N)


def _local(parameter: nn.Parameter) -> Tensor:
    """This rank's part of it."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
