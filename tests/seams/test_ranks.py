"""Two ranks with any two kinds of micro-batch end in time, with the gradient of one process."""

import pytest
import torch

from tests.seams.rank_pairs import FREEZES, PAIRS, learner_at, run_pairs, share
from tests.train.policy_cases import build_sharp_model, family_at, gradients_of, largest_difference
from tests.train.rank_cases import run_ranks

FAMILIES = (
    "qwen2_5_vl",
    "qwen3_vl",
    pytest.param("qwen2_vl", marks=pytest.mark.slow),
    pytest.param("qwen3_5", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_micro_batches_gives_the_gradient_of_one_process(family, tmp_path):
    path = tmp_path / family
    build_sharp_model(path, family)
    run_ranks(run_pairs, path, tmp_path, num_ranks=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    alone = learner_at(path, FREEZES["vision trainable"], ranks=1)
    for pair in PAIRS:
        together = [e for rank in (0, 1) for e in share(family_at(path), pair[rank], rank)]
        expected, _ = gradients_of(alone, together)
        language = {name: value for name, value in expected.items() if ".visual." not in name}
        vision = [value for name, value in expected.items() if name not in language]
        assert any(value.any() for value in vision) == (pair != ("text", "text"))
        for gradients in ranks:
            assert largest_difference(gradients["vision trainable", pair], expected) < 1e-5, pair
            # Freezing takes the tower out and leaves the others' gradients as they are.
            assert largest_difference(gradients["vision frozen", pair], language) < 1e-5, pair
