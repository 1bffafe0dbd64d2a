"""Two ranks over gloo against one process: same gradients, same log-probs, same checkpoints."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from easyvideor1.schema.files import folder_bytes
from tests.train.policy_cases import (
    gradients_of,
    largest_difference,
    make_learner,
    part_of,
    trainable_learner,
    without_memory,
)
from tests.train.rank_cases import (
    FOUR_SHARES,
    SHARES,
    VARIANTS,
    full_moments,
    full_weights,
    run_one_of_four,
    run_rank,
    run_ranks,
    share_of,
    updates,
)


@pytest.fixture(scope="module")
def folder(sharp_model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the two ranks left what they saw."""
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(run_rank, sharp_model_path, folder, num_ranks=2)
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict]:
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.mark.parametrize("name", SHARES)
def test_the_gradient_is_that_of_one_process_on_the_same_batch(sharp_model_path, ranks, name):
    """Whatever media each rank has: none waits for the other, and the mean is over all tokens."""
    together = share_of(sharp_model_path, SHARES[name][0] + SHARES[name][1])
    expected, expected_metrics = gradients_of(make_learner(sharp_model_path), together)
    for rank in ranks:
        gradients, metrics = rank["gradients"][name]
        assert largest_difference(gradients, expected) < 1e-5
        assert metrics == pytest.approx(expected_metrics, rel=1e-5)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "bfloat16"])
def test_recomputed_activations_and_frozen_parts_work_on_ranks_too(
    sharp_model_path, ranks, variant
):
    """Rank 1 has no medium: frozen layers, too, must meet in the same collectives."""
    together = share_of(sharp_model_path, sum(SHARES["image / text"], ()))
    expected, _ = gradients_of(make_learner(sharp_model_path), together)
    frozen = {part.value for part in VARIANTS[variant].get("freeze", [])}
    trained = {name: value for name, value in expected.items() if part_of(name) not in frozen}
    for rank in ranks:
        gradients, _ = rank["variants"][variant]
        assert largest_difference(gradients, trained) < 1e-5


def test_a_copy_of_the_weights_per_rank_changes_nothing_but_where_they_lie(
    sharp_model_path, folder, ranks
):
    """`learner.shard_size=1`: gradients, clipped updates, checkpoints, weights and export."""
    together = share_of(sharp_model_path, sum(SHARES["image / text"], ()))
    expected, expected_metrics = gradients_of(make_learner(sharp_model_path), together)
    whole = [tuple(p.shape) for p in make_learner(sharp_model_path).model.parameters()]
    for rank in ranks:
        gradients, metrics = rank["variants"]["a copy per rank"]
        assert largest_difference(gradients, expected) < 1e-5
        assert metrics == pytest.approx(expected_metrics, rel=1e-5)
        assert rank["copies_local_shapes"] == whole
        for ours, theirs in zip(rank["copies_metrics"], rank["metrics"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3)
        for name, value in rank["copies_final_weights"].items():
            torch.testing.assert_close(value, ranks[0]["final_weights"][name], atol=2e-5, rtol=0)
    AutoModelForImageTextToText.from_pretrained(folder / "copies_export")


@pytest.mark.slow
def test_two_copies_on_four_ranks_train_as_one_process(sharp_model_path, tmp_path):
    run_ranks(run_one_of_four, sharp_model_path, tmp_path, num_ranks=4)
    together = share_of(sharp_model_path, sum(FOUR_SHARES, ()))
    expected, expected_metrics = gradients_of(make_learner(sharp_model_path), together)
    alone = trainable_learner(sharp_model_path)
    updates_alone = [without_memory(alone.update(together)) for _ in range(2)]
    ranks = [torch.load(tmp_path / f"four{rank}.pt") for rank in range(4)]
    for rank in ranks:
        assert largest_difference(rank["gradients"], expected) < 1e-5
        assert rank["metrics"] == pytest.approx(expected_metrics, rel=1e-5)
        for ours, theirs in zip(rank["updates"], updates_alone, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-9)
    for name, value in alone.gather_weights():
        torch.testing.assert_close(ranks[0]["weights"][name], value, atol=2e-5, rtol=0)
    continued = trainable_learner(sharp_model_path)
    continued.load(tmp_path / "four")
    for name, value in continued.gather_weights():
        assert torch.equal(value, ranks[0]["weights"][name])


def test_a_bfloat16_learner_keeps_float32_gradients_close_to_the_exact_ones(
    sharp_model_path, ranks
):
    """On a CPU, in place of a GPU: the mixed-precision policy, not its speed."""
    together = share_of(sharp_model_path, sum(SHARES["image / text"], ()))
    expected, _ = gradients_of(make_learner(sharp_model_path), together)
    gradients, _ = ranks[0]["variants"]["bfloat16"]
    flat = torch.cat([value.flatten() for value in gradients.values()])
    exact = torch.cat([expected[name].flatten() for name in gradients])
    assert flat.dtype == torch.float32
    assert torch.cosine_similarity(flat, exact, dim=0) > 0.95


def test_log_probs_are_those_of_one_process(sharp_model_path, ranks):
    learner = make_learner(sharp_model_path)
    for rank, names in zip(ranks, SHARES["image / text"], strict=True):
        expected = learner.logprobs(share_of(sharp_model_path, names))
        for ours, theirs in zip(rank["logprobs"], expected, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-5)


def test_gathered_weights_are_the_checkpoint_on_every_rank(sharp_model_path, ranks):
    model = AutoModelForImageTextToText.from_pretrained(sharp_model_path, dtype=torch.float32)
    expected = model.state_dict()
    for rank in ranks:
        assert rank["weights"].keys() == expected.keys()
        assert all(torch.equal(rank["weights"][name], expected[name]) for name in expected)


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(ranks):
    for rank in ranks:
        assert rank["resumed_metrics"] == rank["metrics"][2:]
        assert rank["state_is_equal"]
        assert rank["random_is_restored"]
        assert rank["meanwhile_is_equal"], "as it was when it began to be written"
    assert ranks[0]["metrics"] == ranks[1]["metrics"]


def test_one_rank_continues_what_two_saved(sharp_model_path, folder, ranks):
    learner = trainable_learner(sharp_model_path)
    learner.load(folder / "checkpoint")
    assert learner.num_updates == 2
    for ours, theirs in (
        (full_weights(learner), ranks[0]["saved"]["weights"]),
        (full_moments(learner), ranks[0]["saved"]["moments"]),
    ):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    shares = [updates(rank, sharp_model_path) for rank in (0, 1)]
    for step in (2, 3):
        metrics = learner.update([*shares[0][step], *shares[1][step]])
        expected = ranks[0]["metrics"][step]
        assert metrics["learner/loss"] == pytest.approx(expected["learner/loss"], rel=1e-3)
        assert metrics["learner/lr"] == expected["learner/lr"]
    for name, value in learner.gather_weights():
        torch.testing.assert_close(value, ranks[0]["final_weights"][name], atol=2e-5, rtol=0)


def test_a_checkpoint_of_two_ranks_takes_what_it_was_said_to_take(folder, ranks):
    said = ranks[0]["said_bytes"]
    for part, expected in (("weights", said.weights), ("training", said.training)):
        assert folder_bytes(folder / "checkpoint" / part) == pytest.approx(expected, rel=0.05)
        assert folder_bytes(folder / "checkpoint" / part) <= expected


def test_the_exported_folder_holds_the_gathered_weights(folder, ranks):
    model = AutoModelForImageTextToText.from_pretrained(folder / "export", dtype=torch.float32)
    for name, value in model.state_dict().items():
        assert torch.equal(value, ranks[0]["final_weights"][name])
