"""Estimators of the Kullback-Leibler divergence between two policies on sampled tokens."""

from torch import Tensor

# Legend: T tokens.


def k3(logprobs_T: Tensor, sampler_logprobs_T: Tensor) -> Tensor:
    """Per-token estimate of KL(sampler || policy): r - 1 - log r with r = policy / sampler.

    Unbiased for tokens drawn from the sampler, never negative, and of low variance near r = 1.
    Source: J. Schulman, "Approximating KL divergence", 2020 (estimator k3).

    Args:
        logprobs_T: [T] log-probs of the sampled tokens under the policy.
        sampler_logprobs_T: [T] log-probs under the weights that sampled them.

    Returns:
        [T] estimates, in nats.
    """
    log_ratio_T = logprobs_T - sampler_logprobs_T
    return log_ratio_T.expm1() - log_ratio_T
