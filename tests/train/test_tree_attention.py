"""Attention over a token tree against one masked softmax, and the forked recurrence."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForImageTextToText

from easyvideor1.schema.errors import UserError
from easyvideor1.train.attention_kernels import GpuKernel, kernel_for
from easyvideor1.train.tree_attention import TreeAttention
from easyvideor1.train.tree_delta_rule import fork_states, is_gated_delta_net
from easyvideor1.train.tree_shape import TreeShape

MAX_DENSE_TOKENS = 8_192
"""The mask of the reference grows with the square of the length."""

SHAPES = {
    "one sequence": TreeShape(roots=(37,), branches=()),
    "a group": TreeShape(roots=(70,), branches=((9, 33, 1),)),
    "two groups and two sequences": TreeShape(
        roots=(40, 3, 17, 25), branches=((9, 33), (65, 1, 2))
    ),
}


def dense_mask(shape: TreeShape) -> torch.Tensor:
    """[L, L] what each token may see: built token by token from the definition of the layout."""
    num_tokens = sum(shape.segments)
    if num_tokens > MAX_DENSE_TOKENS:
        raise ValueError(f"{num_tokens} tokens; the dense reference takes {MAX_DENSE_TOKENS}")
    parents: list[int | None] = [None] * len(shape.roots)
    for tree, branches in enumerate(shape.branches):
        parents += [tree] * len(branches)
    segment_of = [s for s, length in enumerate(shape.segments) for _ in range(length)]
    mask = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    for row in range(num_tokens):
        for column in range(num_tokens):
            own, seen = segment_of[row], segment_of[column]
            mask[row, column] = (own == seen and column <= row) or parents[own] == seen
    return mask


def random_heads(shape: TreeShape, dtype: torch.dtype) -> list[torch.Tensor]:
    """Query with 4 heads, key and value with 2, of 16 dimensions."""
    generator = torch.Generator().manual_seed(0)
    num_tokens = sum(shape.segments)
    return [
        (2 * torch.randn(heads, num_tokens, 16, generator=generator)).to(dtype).requires_grad_()
        for heads in (4, 2, 2)
    ]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 0.05)]
)
def test_output_and_gradients_are_those_of_one_masked_softmax(name, dtype, tolerance):
    shape = SHAPES[name]
    heads = random_heads(shape, dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in heads]
    query, key, value = (tensor[None] for tensor in exact)
    expected = F.scaled_dot_product_attention(
        query, key, value, attn_mask=dense_mask(shape), scale=0.25, enable_gqa=True
    )[0]
    output = TreeAttention.apply(*heads, shape, 0.25)
    torch.testing.assert_close(output.double(), expected, atol=tolerance, rtol=0)
    grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected.backward(grad.double())
    output.backward(grad)
    for ours, theirs in zip(heads, exact, strict=True):
        error = (ours.grad.double() - theirs.grad).norm() / theirs.grad.norm()
        assert error <= tolerance


def test_gradients_are_those_of_finite_differences():
    shape = TreeShape(roots=(4, 2), branches=((3, 1),))
    heads = [
        tensor[..., :8].detach().requires_grad_() for tensor in random_heads(shape, torch.double)
    ]
    assert torch.autograd.gradcheck(
        lambda *qkv: TreeAttention.apply(*qkv, shape, 0.3), heads, fast_mode=False
    )


def test_a_branch_reads_nothing_of_its_neighbours():
    shape = SHAPES["a group"]
    query, key, value = (tensor.detach() for tensor in random_heads(shape, torch.float32))
    before = TreeAttention.apply(query, key, value, shape, 0.25)
    second = slice(70 + 9, 70 + 9 + 33)
    key[:, second], value[:, second] = torch.inf, torch.nan
    after = TreeAttention.apply(query, key, value, shape, 0.25)
    kept = torch.ones(sum(shape.segments), dtype=torch.bool)
    kept[second] = False
    assert torch.equal(before[:, kept], after[:, kept])


def test_a_gpu_in_float32_is_refused_with_the_way_out():
    gpu = torch.device("cuda", 0)
    with pytest.raises(UserError, match=r"set model\.dtype=bfloat16, or learner\.layout=padded"):
        kernel_for(gpu, torch.float32)
    assert isinstance(kernel_for(gpu, torch.bfloat16), GpuKernel)


def test_a_forked_recurrence_is_the_layers_own_on_each_sequence(sharp_models):
    """Roots shorter than the convolution, longer than a chunk; every weight's gradient."""
    model = AutoModelForImageTextToText.from_pretrained(sharp_models("qwen3_5"))
    [layer, *_] = [m for m in model.modules() if is_gated_delta_net(m)]
    shape = TreeShape(roots=(130, 2, 7), branches=((64, 3), (5, 70, 1)))
    torch.manual_seed(0)
    hidden = torch.randn(1, sum(shape.segments), layer.hidden_size, requires_grad=True)
    upstream = torch.randn_like(hidden)

    pieces = hidden[0].split(shape.segments)
    grads = upstream[0].split(shape.segments)
    roots, branches = pieces[:3], iter(range(3, len(pieces)))
    loss = layer(roots[2][None])[0].mul(grads[2]).sum()
    expected = {2: layer(roots[2][None])[0]}
    for tree, lengths in enumerate(shape.branches):
        for number, _ in enumerate(lengths):
            branch = next(branches)
            whole = layer(torch.cat([roots[tree], pieces[branch]])[None])[0]
            of_root, expected[branch] = whole.split([len(roots[tree]), len(pieces[branch])])
            if number == 0:
                expected[tree] = of_root
                loss = loss + of_root.mul(grads[tree]).sum()
            loss = loss + expected[branch].mul(grads[branch]).sum()
    weights = [hidden, *layer.parameters()]
    theirs = torch.autograd.grad(loss, weights)

    fork_states(model)
    output = layer(hidden, tree=shape)
    ours = torch.autograd.grad(output.mul(upstream).sum(), weights)
    together = torch.cat([expected[i] for i in range(len(pieces))])
    torch.testing.assert_close(output[0], together, atol=1e-5, rtol=1e-5)
    noise = 1e-6 * max(other.norm() for other in theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).norm() <= 1e-5 * other.norm() + noise
