"""What two ranks do in `test_invariance`, each in a process of its own."""

from pathlib import Path

import torch

from easyvideor1.train.sharding import join_process_group
from tests.train.algorithms.algorithm_cases import (
    ALGORITHMS,
    OFFLINE_ALGORITHMS,
    learner_of,
    update_gradients,
)

RANK_SHARES = ((0, 3, 4), (1, 2, 5, 6, 7))
"""Of the examples: unequal numbers, and the answers to a prompt on both ranks."""

SMALL_BATCHES = 200
"""Tokens: several micro-batches, not equally many on both ranks."""


def run_algorithms(rank: int, port: int, model_path: Path, folder: Path) -> None:
    """Writes gradients and metrics of every algorithm to `folder/rank<rank>.pt`."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=2, host="127.0.0.1", port=port, timeout_s=120)
    examples = torch.load(folder / "examples.pt", weights_only=False)
    results = {
        name: update_gradients(
            learner_of(model_path, algorithm, ranks=2, micro_batch_tokens=SMALL_BATCHES),
            [examples[name][index] for index in RANK_SHARES[rank]],
        )
        for name, algorithm in (ALGORITHMS | OFFLINE_ALGORITHMS).items()
    }
    torch.save(results, folder / f"rank{rank}.pt")
