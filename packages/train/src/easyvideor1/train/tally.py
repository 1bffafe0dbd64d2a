"""Sums and maxima of an update, over micro-batches and then over ranks.

They stay on the device until the update ends. Filled by `learner.RankLearner`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from easyvideor1.train.batches import Batch
from easyvideor1.train.objectives import weighted_sum


class Tally:
    """Sums and maxima over micro-batches, then over ranks. Stays on the device until the end."""

    def __init__(self, device: torch.device):
        self.device = device
        self.sums: dict[str, Tensor] = {}
        self.maxima: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add a scalar to the sum called `name`."""
        start = self.sums.setdefault(name, torch.zeros((), dtype=torch.float64, device=self.device))
        self.sums[name] = start + value.to(self.device)

    def add_max(self, name: str, values: Tensor) -> None:
        """Raise the maximum called `name` to the largest of `values`, which are not negative."""
        start = self.maxima.setdefault(name, torch.zeros((), device=self.device))
        self.maxima[name] = torch.cat([start[None], values.to(self.device)]).max()

    def reduce(
        self, sum_over_ranks: Callable[[Tensor], Tensor], max_over_ranks: Callable[[Tensor], Tensor]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Both over all ranks. Every rank has counted under the same names."""
        reduced = []
        for values, over_ranks in ((self.sums, sum_over_ranks), (self.maxima, max_over_ranks)):
            total = over_ranks(torch.stack(list(values.values()))).tolist() if values else []
            reduced.append(dict(zip(values, total, strict=True)))
        return reduced[0], reduced[1]

    def count(self, entropy_T: Tensor, batch: Batch) -> None:
        """Add what every micro-batch is reported with; T target tokens, without gradient."""
        self.add("weight", batch.weights.sum())
        self.add("entropy", weighted_sum(entropy_T, batch.weights))
        self.add("offline", weighted_sum(batch.is_offline.float(), batch.weights))
        self.add("trained_tokens", (batch.weights > 0).sum())
        # An idle forest has no example and costs nothing worth counting.
        is_idle = bool((batch.examples < 0).all())
        self.add("tokens", torch.tensor(0 if is_idle else batch.num_tokens))
        self.add("computed_tokens", torch.tensor(0 if is_idle else batch.num_computed))


MEANS = {
    "entropy": ("weight", "learner/entropy"),
    "offline": ("weight", "learner/offline_share"),
    "divergence": ("weight", "learner/reference_kl"),
    "ratio": ("objective_weight", "learner/ratio_mean"),
    "clip_low": ("objective_weight", "learner/clip_low_fraction"),
    "clip_high": ("objective_weight", "learner/clip_high_fraction"),
    "correction_weight": ("objective_weight", "learner/correction_weight"),
    "rejected": ("objective_weight", "learner/rejected_fraction"),
    "offline_ratio": ("treated_weight", "learner/offline_ratio"),
    "offline_gradient": ("treated_weight", "learner/offline_gradient"),
}
"""Sums over tokens by that of their weights and by the name of the mean they make."""


def describe(sums: dict[str, float], maxima: dict[str, float]) -> dict[str, float]:
    """Metrics of an update from what was counted over all its micro-batches and ranks."""
    metrics = {
        name: sums[key] / sums[weight]
        for key, (weight, name) in MEANS.items()
        if key in sums and sums[weight]
    }
    metrics |= {
        "learner/trained_tokens": sums["trained_tokens"],
        "learner/tokens": sums["tokens"],
        "learner/computed_tokens": sums["computed_tokens"],
        "learner/activation_gb": maxima["activation_gb"],
    }
    if "imitation_share" in maxima:
        metrics["learner/imitation_share"] = maxima["imitation_share"]
    if sums.get("sampled_tokens"):
        metrics["learner/mismatch_kl"] = sums["mismatch_kl"] / sums["sampled_tokens"]
        metrics["learner/mismatch_max"] = maxima["mismatch_max"]
    return metrics
