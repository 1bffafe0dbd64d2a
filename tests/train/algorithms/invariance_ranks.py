"""What two ranks do in `test_invariance`, each in a process of its own."""

from dataclasses import replace
from pathlib import Path

import torch

from easyvideor1.train.algorithm_config import AlgorithmConfig, KlConfig, KlEstimator, KlPlace
from easyvideor1.train.config import OptimizerConfig
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.sharding import join_process_group
from tests.train.algorithms.algorithm_cases import (
    ALGORITHMS,
    OFFLINE_ALGORITHMS,
    learner_of,
    update_gradients,
)
from tests.train.policy_cases import make_learner

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
    plain = examples[next(iter(ALGORITHMS))]
    torch.save(after_two_steps(model_path, plain, rank), folder / f"steps{rank}.pt")
    torch.save(divergences(model_path, plain, rank, folder), folder / f"divergences{rank}.pt")


STEPS = ((0, 1, 2, 3), (4, 5, 6, 7))
"""Of the examples: those of the first and of the second optimizer step."""


def after_two_steps(
    model_path: Path, examples: list[TrainExample], rank: int | None
) -> dict[str, torch.Tensor]:
    """Weights after an update of two steps, of which rank 0 has most; None for a single rank."""
    own = [[i for i in step if rank is None or (i % 4 == 3) == (rank == 1)] for step in STEPS]
    learner = learner_of(
        model_path,
        AlgorithmConfig(),
        ranks=1 if rank is None else 2,
        # With so large an eps a gradient's rounding does not decide the sign of a step.
        optimizer=OptimizerConfig(lr=1.0, eps=1.0),
    )
    fresh = [replace(example, old_logprobs=None) for example in examples]
    learner.update([fresh[i] for step in own for i in step], cuts=[len(own[0])])
    return {name: value.clone() for name, value in learner.gather_weights()}


def divergences(
    model_path: Path, examples: list[TrainExample], rank: int, folder: Path
) -> dict[str, list]:
    """Of rank 0 alone, while rank 1 has nothing; before and after the reference was restored."""
    share = examples if rank == 0 else []
    found = {}
    for estimator in (KlEstimator.k1, KlEstimator.full):
        algorithm = AlgorithmConfig(kl=KlConfig(place=KlPlace.reward, estimator=estimator))
        learner = learner_of(model_path, algorithm, ranks=2, micro_batch_tokens=SMALL_BATCHES)
        found[estimator.value] = learner.divergences(share)
        learner._is_reference_initial = False
        learner.save(folder / estimator.value)
        restored = make_learner(model_path, dtype="float32", algorithm=algorithm, ranks=2)
        restored.load(folder / estimator.value)
        found[f"{estimator.value}, restored"] = restored.divergences(share)
    return found
