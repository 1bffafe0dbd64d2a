"""The Kullback-Leibler divergence KL(pi || pi_ref): its estimators at a token, its coefficient.

Where tokens are sampled from pi, the first argument of every estimator, the mean of k1, k3 and full
is the divergence. The gradients of the estimators are another matter, see `ESTIMATORS`. In nats.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from easyvideor1.schema.errors import UserError
from easyvideor1.train.algorithm_config import MAX_KL_ERROR, KlConfig, KlController, KlEstimator
from easyvideor1.train.ratios import bounded

# Legend: T tokens; V vocabulary.


def k1(logprobs_T: Tensor, reference_logprobs_T: Tensor) -> Tensor:
    """d = log pi - log pi_ref: unbiased, of either sign, of high variance.

    Source: J. Schulman, "Approximating KL Divergence", 2020, joschu.net/blog/kl-approx.html.

    Args:
        logprobs_T: [T] log-probs of the sampled tokens under the policy that sampled them.
        reference_logprobs_T: [T] log-probs of the same tokens under the other policy.

    Returns:
        [T] estimates, in nats.
    """
    return logprobs_T - reference_logprobs_T


def k2(logprobs_T: Tensor, reference_logprobs_T: Tensor) -> Tensor:
    """d^2 / 2: biased, never negative, of low variance. Source and arguments as of `k1`."""
    return k1(logprobs_T, reference_logprobs_T).square() / 2


def k3(logprobs_T: Tensor, reference_logprobs_T: Tensor) -> Tensor:
    """exp(-d) - 1 + d: unbiased, never negative, of low variance near d = 0.

    The KL term of GRPO, arXiv 2402.03300, equation 4. Source and arguments as of `k1`. |d| is held
    below 20, beyond which there is no gradient.
    """
    log_ratio_T = bounded(reference_logprobs_T - logprobs_T)
    return log_ratio_T.expm1() - log_ratio_T


def abs_(logprobs_T: Tensor, reference_logprobs_T: Tensor) -> Tensor:
    """|d|: biased, never negative; no divergence, but as a penalty robust. Arguments as of `k1`."""
    return k1(logprobs_T, reference_logprobs_T).abs()


def full(logprobs_TV: Tensor, reference_logprobs_TV: Tensor) -> Tensor:
    """sum_v pi(v) (log pi(v) - log pi_ref(v)): the divergence at each token, nothing sampled.

    Args:
        logprobs_TV: [T, V] log-probs of the whole vocabulary; -inf where a token is forbidden.
        reference_logprobs_TV: [T, V] of the same tokens under the other policy.

    Returns:
        [T], in nats; infinite where pi allows what pi_ref forbids.

    Raises:
        ValueError: if the log-probs are of the sampled tokens alone.
    """
    if logprobs_TV.dim() != 2 or logprobs_TV.shape != reference_logprobs_TV.shape:
        raise ValueError(
            "the full divergence needs log-probs of shape [tokens, vocabulary] of both policies, "
            f"got {list(logprobs_TV.shape)} and {list(reference_logprobs_TV.shape)}"
        )
    # 0 log 0 = 0, and neither its value nor its gradient may become NaN.
    forbidden_TV = logprobs_TV == -math.inf
    policy_TV = logprobs_TV.masked_fill(forbidden_TV, 0.0)
    reference_TV = reference_logprobs_TV.masked_fill(forbidden_TV, 0.0)
    # Where pi forbids a token, the difference is 0.
    return (policy_TV.exp() * (policy_TV - reference_TV)).sum(-1)


ESTIMATORS: dict[KlEstimator, Callable[[Tensor, Tensor], Tensor]] = {
    KlEstimator.k1: k1,
    KlEstimator.k2: k2,
    KlEstimator.k3: k3,
    KlEstimator.abs: abs_,
    KlEstimator.full: full,
}
"""By name; `full` takes [T, V], the others [T].

As a loss they pull along their own gradient, in the mean over tokens of pi: that of `full` and `k2`
is the gradient of KL(pi || pi_ref), that of `k3` the gradient of KL(pi_ref || pi), that of `k1` is
zero. In the reward only their values matter.
"""


class KlControl:
    """The coefficient of the divergence, and how it follows the divergence from step to step.

    `adaptive`: c <- c (1 + clip(kl / target - 1, -0.2, 0.2) n / horizon) after a step of n
    completions. Source: Ziegler et al., arXiv 1909.08593, section 2.2, with their code's
    K_beta = n / horizon; there kl is that of whole completions, here it is per token.
    """

    def __init__(self, config: KlConfig):
        self.config = config
        self.coefficient = config.coefficient
        """What the divergence is multiplied by in the coming step."""

    def update(self, kl: float, num_completions: int) -> None:
        """Follow the divergence of a step; one that is not finite says nothing and changes nothing.

        Args:
            kl: mean over the step's tokens, in nats.
            num_completions: of the step, over all ranks.

        Raises:
            UserError: if the horizon is so short that the coefficient could become negative.
        """
        if self.config.controller is KlController.fixed or not math.isfinite(kl):
            return
        horizon = self.config.horizon
        if MAX_KL_ERROR * num_completions >= horizon:
            raise UserError(
                f"algorithm.kl.horizon must be above {MAX_KL_ERROR:g} times the completions of a "
                f"step ({num_completions}), got {horizon}; the coefficient could fall to 0 in one"
            )
        error = min(max(kl / self.config.target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
        self.coefficient *= 1 + error * num_completions / horizon

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"coefficient": self.coefficient}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; a fixed coefficient stays the config's."""
        if self.config.controller is KlController.adaptive:
            self.coefficient = float(state["coefficient"])
