"""Probability ratios from differences of log-probs, kept finite.

For objectives, divergences and corrections.
"""

from torch import Tensor

MAX_LOG_RATIO = 20.0
"""exp() stays finite when two policies disagree beyond reason; so far off there is no gradient."""


def bounded(log_ratio: Tensor) -> Tensor:
    """The log-ratio held within -20 to 20."""
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
