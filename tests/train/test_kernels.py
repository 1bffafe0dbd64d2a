"""The line about kernels says what really computes the model; slow ones are refused on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from easyvideor1.schema.errors import UserError
from easyvideor1.train.config import Attention, BatchLayout
from easyvideor1.train.kernels import kernels_of, refuse_slow, told
from tests.train.policy_cases import make_learner

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")

REST = "vision attention sdpa, patch embedding matrix product"
FAST = {
    BatchLayout.shared_prefix: f"language attention flash over token trees, {REST}",
    BatchLayout.padded: f"language attention sdpa, {REST}",
}


@pytest.mark.parametrize("layout", FAST)
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_fast_kernels_are_told_and_pass_on_a_gpu(sharp_models, capfd, family, layout):
    learner = make_learner(sharp_models(family), layout=layout)
    assert told(learner.kernels) == f"kernels: {FAST[layout]}"
    assert f"kernels: {FAST[layout]}" in capfd.readouterr().out.splitlines()
    refuse_slow(learner.kernels, GPU, allowed=False)


def test_eager_attention_is_refused_on_a_gpu_with_the_way_out(sharp_model_path):
    learner = make_learner(sharp_model_path, attention=Attention.eager, layout=BatchLayout.padded)
    assert told(learner.kernels).startswith(
        "kernels: language attention eager (slow), vision attention eager (slow), "
    )
    with pytest.raises(
        UserError,
        match=r"language attention runs on eager: set learner\.attention=sdpa .*"
        r"vision attention runs on eager.* learner\.allow_slow_kernels=true",
    ):
        refuse_slow(learner.kernels, GPU, allowed=False)
    refuse_slow(learner.kernels, GPU, allowed=True)
    refuse_slow(learner.kernels, CPU, allowed=False)


def test_a_convolution_that_could_not_be_replaced_is_refused(sharp_model_path):
    model = make_learner(sharp_model_path).model.hf
    model.model.visual.patch_embed.proj = nn.Conv3d(3, 8, kernel_size=2, stride=1)
    with pytest.raises(UserError, match=r"convolution in model\.visual\.patch_embed\.proj"):
        refuse_slow(kernels_of(model), GPU, allowed=False)


FLA = """
def chunk_gated_delta_rule(query, key, value, g, beta, **others):
    print("fla computes")
    return value * 0, None
"""

FORWARD = """
import os, sys
from pathlib import Path
from tests.train.policy_cases import family_at, group, make_learner

model, *folders = map(Path, sys.argv[1:])
for folder in folders:
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    os.dup2(os.open(folder / "output.txt", os.O_CREAT | os.O_WRONLY), 1)
    sys.path.insert(0, str(folder))
    make_learner(model).logprobs(group(family_at(model), "text", (3,)))
    sys.exit()
"""
INSTALLED = ("nothing", "fla", "a broken fla")


@pytest.fixture(scope="module")
def lines_with(sharp_models, tmp_path_factory) -> dict[str, list[str]]:
    """What processes print that find another `fla`, forked before anything looks for one."""
    folders = [tmp_path_factory.mktemp("packages") for _ in INSTALLED]
    for installed, folder in zip(INSTALLED, folders, strict=True):
        package = folder / "fla" / "ops" / "gated_delta_rule"
        package.mkdir(parents=True)
        if installed != "nothing":
            for parent in (package, package.parent, package.parent.parent):
                (parent / "__init__.py").touch()
            text = FLA if installed == "fla" else "import no_triton"
            (package / "__init__.py").write_text(text)
    subprocess.run(
        [sys.executable, "-c", FORWARD, sharp_models("qwen3_5"), *folders],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[2],
        check=True,
    )
    outputs = [(folder / "output.txt").read_text().splitlines() for folder in folders]
    return dict(zip(INSTALLED, outputs, strict=True))


@pytest.mark.parametrize("installed", INSTALLED)
def test_linear_attention_is_told_as_transformers_computes_it(lines_with, installed):
    """The one that is told is the one that runs."""
    lines = lines_with[installed]
    [line] = [line for line in lines if line.startswith("kernels: ")]
    if installed == "fla":
        assert "linear attention flash-linear-attention's chunk_gated_delta_rule," in line
        assert "fla computes" in lines
    else:
        assert "linear attention torch's reference (slow), its convolution torch," in line
        assert "fla computes" not in lines


def test_the_reference_of_linear_attention_is_refused_on_a_gpu(sharp_models):
    kernels = make_learner(sharp_models("qwen3_5")).kernels
    if "torch's reference" not in told(kernels):
        pytest.skip("flash-linear-attention is installed")
    with pytest.raises(UserError, match="runs on torch's reference: install flash"):
        refuse_slow(kernels, GPU, allowed=False)
