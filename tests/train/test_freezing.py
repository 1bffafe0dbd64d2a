"""Parts kept as they are: the others train as if nothing were frozen. On ranks: the rank tests."""

from itertools import combinations

import pytest
import torch

from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import FrozenPart, LearnerConfig, OptimizerConfig
from tests.train.policy_cases import (
    all_groups,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
    part_of,
    trainable_learner,
    without_memory,
)

SOME_PARTS = [list(parts) for count in (1, 2) for parts in combinations(FrozenPart, count)]


@pytest.fixture(scope="module")
def unfrozen(sharp_model_path) -> dict[str, torch.Tensor]:
    gradients, _ = gradients_of(
        make_learner(sharp_model_path), all_groups(family_at(sharp_model_path), (5, 2))
    )
    return gradients


@pytest.mark.parametrize("parts", SOME_PARTS)
def test_trained_parts_have_the_gradients_that_they_have_without_freezing(
    sharp_model_path, unfrozen, parts
):
    learner = make_learner(sharp_model_path, freeze=parts)
    gradients, _ = gradients_of(learner, all_groups(family_at(sharp_model_path), (5, 2)))
    trained = {name: value for name, value in unfrozen.items() if part_of(name) not in parts}
    assert all(value.any() for value in trained.values())
    assert largest_difference(gradients, trained) < 1e-6


@pytest.mark.parametrize("parts", SOME_PARTS)
def test_an_update_moves_the_trained_parts_alone_and_the_optimizer_holds_no_other(
    sharp_model_path, parts
):
    learner = make_learner(
        sharp_model_path, freeze=parts, optimizer=OptimizerConfig(lr=1e-2, weight_decay=0.5)
    )
    before = {name: value.clone() for name, value in learner.gather_weights()}
    learner.update(group(family_at(sharp_model_path), "image and video", (3, 4)))
    after = dict(learner.gather_weights())
    moved = {part_of(name) for name in after if not torch.equal(after[name], before[name])}
    assert moved == {part.value for part in FrozenPart if part not in parts}
    names = {id(parameter): name for name, parameter in learner.model.hf.named_parameters()}
    in_optimizer = [p for pg in learner.optimizer.param_groups for p in pg["params"]]
    assert {part_of(names[id(parameter)]) for parameter in in_optimizer} == moved


def test_text_alone_trains_no_part_of_the_vision_tower_but_reaches_it(sharp_model_path):
    """With the language model frozen, too, every trained weight has a gradient: of zero."""
    learner = make_learner(sharp_model_path, freeze=[FrozenPart.language])
    gradients, _ = gradients_of(learner, group(family_at(sharp_model_path), "text", (4,)))
    assert gradients
    assert {part_of(name) for name in gradients} == {"vision", "merger"}
    assert not any(value.any() for value in gradients.values())


def test_checkpoints_and_export_hold_the_frozen_weights_too(sharp_model_path, tmp_path):
    frozen = make_learner(sharp_model_path, freeze=[FrozenPart.vision, FrozenPart.merger])
    examples = group(family_at(sharp_model_path), "video", (4, 6))
    frozen.update(examples)
    frozen.save(tmp_path / "learner")
    again = make_learner(sharp_model_path, freeze=[FrozenPart.vision, FrozenPart.merger])
    with torch.no_grad():
        for parameter in again.model.parameters():
            parameter.zero_()
    again.load(tmp_path / "learner")
    expected = {name: value.clone() for name, value in frozen.gather_weights()}
    assert all(torch.equal(value, expected[name]) for name, value in again.gather_weights())
    assert without_memory(again.update(examples)) == without_memory(frozen.update(examples))

    frozen.export(tmp_path / "export")
    exported = dict(trainable_learner(tmp_path / "export").gather_weights())
    expected = dict(frozen.gather_weights())
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[name], expected[name]) for name in expected)


def test_freezing_everything_is_refused():
    with pytest.raises(UserError, match="leaves nothing to train"):
        LearnerConfig(freeze=list(FrozenPart))
