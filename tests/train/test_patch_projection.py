"""The patch embedding as a matrix product equals the convolution, in every family."""

import filecmp
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText

from easyvideor1.preprocess.families import _ADAPTERS
from easyvideor1.train.patch_projection import PatchProjection, replace_patch_convolutions
from tests.train.policy_cases import family_at, make_learner, plain_inputs

FAMILIES = sorted(_ADAPTERS)


def same_up_to_rounding(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """In float64: the order of the sums differs, which float32 would show as 2e-6."""
    assert ours.dtype == theirs.dtype == torch.float64
    return bool((ours - theirs).abs().max() <= 1e-12 * theirs.abs().max())


@pytest.mark.parametrize("name", ["image", "other video"])
@pytest.mark.parametrize("family", FAMILIES)
def test_features_and_gradients_are_those_of_the_convolution(sharp_models, family, name):
    path = sharp_models(family)
    inputs = plain_inputs(family_at(path), name)
    kind = "image" if name == "image" else "video"
    patches = inputs["pixel_values" if kind == "image" else "pixel_values_videos"]
    original = AutoModelForImageTextToText.from_pretrained(path).model.visual.patch_embed
    changed = make_learner(path).model.hf.model.visual.patch_embed
    assert isinstance(original.proj, nn.Conv3d)
    assert isinstance(changed.proj, PatchProjection)
    features = [embed(patches.double()) for embed in (changed.double(), original.double())]
    assert same_up_to_rounding(*features)
    weights = torch.randn_like(features[0])
    for values in features:
        (values * weights).sum().backward()
    ours, theirs = (dict(embed.named_parameters()) for embed in (changed, original))
    assert ours.keys() == theirs.keys()
    for parameter_name, parameter in ours.items():
        assert parameter.shape == theirs[parameter_name].shape
        assert same_up_to_rounding(parameter.grad, theirs[parameter_name].grad)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_learner_holds_no_convolution_over_three_axes_and_exports_the_same_weights(
    sharp_models, tmp_path: Path, family
):
    path = sharp_models(family)
    learner = make_learner(path)
    assert not [m for m in learner.model.modules() if isinstance(m, nn.Conv3d)]
    learner.export(tmp_path / "export")
    files = [file.name for file in path.glob("*.safetensors")]
    assert files
    assert filecmp.cmpfiles(path, tmp_path / "export", files, shallow=False) == (files, [], [])


def test_several_windows_per_input_are_laid_out_as_the_convolution_lays_them_out():
    convolution = nn.Conv3d(3, 5, kernel_size=(2, 4, 3), stride=(2, 4, 3))
    pixels = torch.randn(2, 3, 5, 8, 9, generator=torch.manual_seed(0))  # 5 frames: one left over
    torch.testing.assert_close(PatchProjection(convolution)(pixels), convolution(pixels))


def test_a_convolution_that_is_no_patch_embedding_stays():
    others = {
        "overlapping": nn.Conv3d(3, 4, kernel_size=2, stride=1),
        "padded": nn.Conv3d(3, 4, kernel_size=2, stride=2, padding=1),
        "dilated": nn.Conv3d(3, 4, kernel_size=2, stride=2, dilation=2),
        "grouped": nn.Conv3d(4, 4, kernel_size=2, stride=2, groups=2),
        "patches": nn.Conv3d(3, 4, kernel_size=2, stride=2, padding="valid"),
    }
    tower = nn.ModuleDict(others)
    replace_patch_convolutions(tower)
    changed = {name for name, module in tower.items() if isinstance(module, PatchProjection)}
    assert changed == {"patches"}
