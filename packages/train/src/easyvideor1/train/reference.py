"""The reference policy: the weights that reinforcement learning begins with, kept as they were.

A copy of the model, sharded like the policy and in the dtype it computes in; with LoRA the policy's
own model with other adapters. There only where `algorithm.kl` asks for it; owned by
`learner.RankLearner`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import DTensor

from easyvideor1.train import adapters
from easyvideor1.train.algorithm_config import KlEstimator
from easyvideor1.train.batches import Batch
from easyvideor1.train.head import Distribution, TokenScores
from easyvideor1.train.kl import ESTIMATORS
from easyvideor1.train.model_forward import PolicyModel


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
        with self._model() as model:
            return model.distribution(batch)

    def divergence(self, batch: Batch, policy: TokenScores) -> Tensor:
        """[N] KL of the policy from the reference at each target, with the policy's gradient.

        Args:
            batch: the targets.
            policy: their scores; with this reference's `distribution` where there is one.
        """
        if self._estimator is KlEstimator.full:
            return policy.divergence
        with torch.no_grad(), self._model() as model:
            logprobs_N = model(batch).logprobs
        return ESTIMATORS[self._estimator](policy.logprobs, logprobs_N)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of it, by name; its tensors are the live ones."""
        return get_model_state_dict(self.model)

    def load_state(self, state: dict[str, Any]) -> None:
        """Take what `state` gave, with other values."""
        set_model_state_dict(self.model, state)

    @contextmanager
    def _model(self) -> Generator[PolicyModel]:
        """The model to compute it with."""
        yield self.model


class AdapterReference(Reference):
    """The policy's own base with the adapters that it began with: no second copy of the weights."""

    def __init__(self, policy: PolicyModel, estimator: KlEstimator):
        """Use the reference adapters of the policy.

        Args:
            policy: with both kinds of adapters, sharded or not.
            estimator: of the divergence.
        """
        self.model = policy
        self._estimator = estimator

    @torch.no_grad()
    def adopt(self, policy: nn.Module) -> None:
        """Take the policy's current adapters."""
        trained = adapters.own_state(policy, adapters.POLICY)
        for mine, theirs in zip(self.state().values(), trained.values(), strict=True):
            _local(mine).copy_(_local(theirs))

    def state(self) -> dict[str, Any]:
        """The reference adapters alone."""
        return adapters.own_state(self.model, adapters.REFERENCE)

    def load_state(self, state: dict[str, Any]) -> None:
        """The tensors of `state` are the live ones, so they are loaded already."""

    @contextmanager
    def _model(self) -> Generator[PolicyModel]:
        with adapters.active(self.model, adapters.REFERENCE):
            yield self.model


def _local(parameter: Tensor) -> Tensor:
    """This rank's part of it."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
