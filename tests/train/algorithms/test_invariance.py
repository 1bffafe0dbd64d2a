"""An update does not depend on how its completions are cut, whatever is optimised.

On the fp32 tiny model: gradients and metrics of micro-batches of one, two, four and eight
completions, and of two ranks, against one batch on one rank. The pure functions behind them are
held to 1e-9 in `test_aggregation` and `test_advantages`.
"""

from pathlib import Path

import pytest
import torch

from easyvideor1.train.algorithm_config import Level
from easyvideor1.train.interfaces import TrainExample
from tests.train.algorithms.algorithm_cases import (
    ALGORITHMS,
    OFFLINE_ALGORITHMS,
    examples_of,
    learner_of,
    update_gradients,
)
from tests.train.algorithms.invariance_ranks import RANK_SHARES, run_algorithms
from tests.train.policy_cases import largest_difference
from tests.train.rank_cases import run_ranks

WHOLE = 100_000
"""Tokens of a micro-batch that holds everything."""


ALL = ALGORITHMS | OFFLINE_ALGORITHMS


@pytest.fixture(scope="module")
def examples(sharp_model_path: Path) -> dict[str, list[TrainExample]]:
    """What each algorithm is tried on."""
    return {name: examples_of(name, sharp_model_path) for name in ALL}


@pytest.fixture(scope="module")
def whole(sharp_model_path: Path, examples: dict[str, list[TrainExample]]) -> dict[str, tuple]:
    """Gradients and metrics of each algorithm in one batch on one rank."""
    return {
        name: update_gradients(
            learner_of(sharp_model_path, algorithm, micro_batch_tokens=WHOLE), examples[name]
        )
        for name, algorithm in ALL.items()
    }


@pytest.mark.parametrize("name", ALL)
def test_every_term_is_at_work(whole, name):
    gradients, metrics = whole[name]
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert metrics["learner/grad_norm"] > 0
    assert metrics["learner/ratio_mean"] != 1.0
    clipped = metrics["learner/clip_low_fraction"] + metrics["learner/clip_high_fraction"]
    if ALL[name].objective.clip_high <= 0.05:
        assert 0 < clipped < 1
    if ALL[name].correction.reject is not Level.none:
        assert 0 < metrics["learner/rejected_fraction"] < 1
    if "kl" in name:
        assert metrics["learner/reference_kl"] > 1e-4
    if name in OFFLINE_ALGORITHMS:
        assert 0 < metrics["learner/offline_ratio"] <= 1.02
        assert 0 < metrics["learner/offline_gradient"] < 1


@pytest.mark.parametrize("name", ALL)
def test_the_gradient_does_not_depend_on_the_size_of_micro_batches(
    sharp_model_path, examples, whole, name, monkeypatch
):
    learner = learner_of(sharp_model_path, ALL[name])
    for size in (1, 2, 4, 8):
        counts = cut_after(monkeypatch, size)
        gradients, metrics = update_gradients(learner, examples[name])
        assert counts == [size] * (len(examples[name]) // size)
        assert largest_difference(gradients, whole[name][0]) < 1e-5
        assert metrics == pytest.approx(whole[name][1], rel=1e-5, abs=1e-6)


def cut_after(monkeypatch: pytest.MonkeyPatch, size: int) -> list[int]:
    """Micro-batches of so many completions; returns the list that their sizes will stand in."""
    from easyvideor1.train import micro_batches, token_tree

    counts: list[int] = []

    def pack(trees, max_tokens):
        held: list[token_tree.TokenTree] = []
        for tree in trees:
            for leaf in tree.leaves():
                held.append(tree.keep([leaf]))
                if len(held) == size:
                    counts.append(size)
                    yield tuple(held)
                    held = []

    monkeypatch.setattr(micro_batches, "pack", pack)
    return counts


def test_the_gradient_does_not_depend_on_the_number_of_ranks(
    sharp_model_path, examples, whole, tmp_path
):
    torch.save(examples, tmp_path / "examples.pt")
    run_ranks(run_algorithms, sharp_model_path, tmp_path, num_ranks=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt")
        assert found.keys() == whole.keys()
        for name, (gradients, metrics) in found.items():
            assert largest_difference(gradients, whole[name][0]) < 1e-5, name
            assert metrics == pytest.approx(whole[name][1], rel=1e-5, abs=1e-6), name
        everything = sorted(i for share in RANK_SHARES for i in share)
        assert all(len(of_name) == len(everything) for of_name in examples.values())
        assert everything == list(range(len(everything)))
