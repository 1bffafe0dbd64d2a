"""Every family trains alike: how a batch is cut changes nothing, and bfloat16 keeps fp32 weights.

That log-probs are those of plain transformers and of the engine is held in `tests/seams`.
"""

from pathlib import Path

import pytest
import torch

from easyvideor1.preprocess.families import _ADAPTERS
from tests.train.policy_cases import (
    all_groups,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
)
from tests.train.rank_cases import BFLOAT16_FAMILIES, run_in_bfloat16, run_ranks

FAMILIES = sorted(_ADAPTERS)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gradient_does_not_depend_on_the_micro_batches(sharp_models, name):
    """Sequences are padded on the right, which recurrent layers, too, must not see."""
    path = sharp_models(name)
    learner = make_learner(path)
    examples = all_groups(family_at(path), lengths=(5, 2, 3))
    whole, metrics = gradients_of(learner, examples)
    assert metrics["learner/trained_tokens"] == 10 * 6
    assert metrics["learner/loss"] == pytest.approx(-0.5 / 3), "advantages of 1, -1 and 0.5"
    learner.config.micro_batch_tokens = 1
    alone, alone_metrics = gradients_of(learner, examples)
    assert largest_difference(alone, whole) < 2e-5
    assert alone_metrics == pytest.approx(metrics, rel=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_alone_has_gradients_of_zero_in_the_whole_vision_tower(sharp_models, name):
    path = sharp_models(name)
    learner = make_learner(path)
    gradients, _ = gradients_of(learner, group(family_at(path), "text", (4,)))
    assert gradients.keys() == dict(learner.model.hf.named_parameters()).keys()
    vision = [value for name, value in gradients.items() if ".visual." in name]
    assert vision
    assert not any(value.any() for value in vision)


@pytest.fixture(scope="module")
def in_bfloat16(sharp_models, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What a process group of one rank saw, by family."""
    folder = tmp_path_factory.mktemp("bfloat16")
    paths = {name: sharp_models(name) for name in BFLOAT16_FAMILIES}
    run_ranks(run_in_bfloat16, paths, folder, num_ranks=1)
    return torch.load(folder / "results.pt", weights_only=False)


@pytest.mark.parametrize("name", BFLOAT16_FAMILIES)
def test_bfloat16_computes_and_float32_remembers(in_bfloat16, sharp_models, name):
    seen = in_bfloat16[name]
    assert seen["computed_in"] == {torch.bfloat16}
    assert seen["kept_in"] == {torch.float32}
    exact, _ = gradients_of(make_learner(sharp_models(name)), examples_of(sharp_models(name)))
    flat = torch.cat([value.flatten() for value in seen["gradients"].values()])
    expected = torch.cat([exact[name].flatten() for name in seen["gradients"]])
    assert flat.dtype == torch.float32
    assert torch.cosine_similarity(flat, expected, dim=0) > 0.95
    # A step of 1e-6 is below what bfloat16 resolves in a weight of 0.1; it must not be lost.
    assert 0 < seen["largest_step"] <= 1.1e-6


def examples_of(path: Path) -> list:
    return group(family_at(path), "image and video", (5, 9))
