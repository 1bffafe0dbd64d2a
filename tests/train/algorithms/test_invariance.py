"""An update does not depend on how its completions are cut, whatever is optimised.

On the fp32 tiny model: gradients and metrics of micro-batches of one, two, four and eight
completions, and of two ranks, against one batch on one rank. The pure functions behind them are
held to 1e-9 in `test_aggregation` and `test_advantages`.
"""

from pathlib import Path

import pytest
import torch

from easyvideor1.train.algorithm_config import (
    AlgorithmConfig,
    KlConfig,
    KlEstimator,
    KlPlace,
    Level,
)
from easyvideor1.train.interfaces import TrainExample
from tests.train.algorithms.algorithm_cases import (
    ALGORITHMS,
    OFFLINE_ALGORITHMS,
    examples_of,
    learner_of,
    update_gradients,
)
from tests.train.algorithms.invariance_ranks import (
    RANK_SHARES,
    after_two_steps,
    run_algorithms,
)
from tests.train.policy_cases import largest_difference, make_learner
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
    if ALL[name].objective.ratio_range[1] <= 1.05:
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

    def cut(trees, *_):
        held: list[token_tree.TokenTree] = []
        for tree in trees:
            for leaf in tree.leaves():
                held.append(tree.keep([leaf]))
                if len(held) == size:
                    counts.append(size)
                    yield tuple(held)
                    held = []

    monkeypatch.setattr(micro_batches, "cut", cut)
    return counts


@pytest.fixture(scope="module")
def two_ranks(
    sharp_model_path: Path,
    examples: dict[str, list[TrainExample]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Where two ranks wrote what they found."""
    folder = tmp_path_factory.mktemp("two_ranks")
    torch.save(examples, folder / "examples.pt")
    run_ranks(run_algorithms, sharp_model_path, folder, num_ranks=2)
    return folder


def test_the_gradient_does_not_depend_on_the_number_of_ranks(examples, whole, two_ranks):
    for rank in range(2):
        found = torch.load(two_ranks / f"rank{rank}.pt")
        assert found.keys() == whole.keys()
        for name, (gradients, metrics) in found.items():
            assert largest_difference(gradients, whole[name][0]) < 1e-5, name
            assert metrics == pytest.approx(whole[name][1], rel=1e-5, abs=1e-6), name
    everything = sorted(i for share in RANK_SHARES for i in share)
    assert all(len(of_name) == len(everything) for of_name in examples.values())
    assert everything == list(range(len(everything)))


def test_an_update_of_two_steps_does_not_depend_on_the_number_of_ranks(
    sharp_model_path, examples, two_ranks
):
    plain = examples[next(iter(ALGORITHMS))]
    alone = after_two_steps(sharp_model_path, plain, None)
    initial = dict(make_learner(sharp_model_path).gather_weights())
    moved = max(float((alone[name] - initial[name]).abs().max()) for name in alone)
    assert moved > 1e-2
    for rank in range(2):
        together = torch.load(two_ranks / f"steps{rank}.pt")
        assert largest_difference(together, alone) < 1e-5


def test_divergences_do_not_depend_on_the_ranks_nor_on_a_restart(
    sharp_model_path, examples, two_ranks
):
    plain = examples[next(iter(ALGORITHMS))]
    ours, idle = (torch.load(two_ranks / f"divergences{rank}.pt") for rank in range(2))
    assert all(values == [] for values in idle.values())
    for estimator in (KlEstimator.k1, KlEstimator.full):
        kl = KlConfig(place=KlPlace.reward, estimator=estimator)
        alone = learner_of(sharp_model_path, AlgorithmConfig(kl=kl)).divergences(plain)
        assert max(map(abs, alone[1])) > 1e-3
        for name in (estimator.value, f"{estimator.value}, restored"):
            for values, expected in zip(ours[name], alone, strict=True):
                assert values == pytest.approx(expected, abs=1e-5), name
