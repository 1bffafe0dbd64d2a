"""The head's scores against autograd through all logits at once, and the memory they take."""

import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from easyvideor1.train.head import Distribution, SamplingLaw, score

VOCABULARY, HIDDEN = 50, 8
FORBIDDEN = (0, 7, 49)


def law(*, logits_bytes: int, entropy_gradient: bool = True) -> SamplingLaw:
    return SamplingLaw(
        temperature=0.7,
        forbidden_token_ids=torch.tensor(FORBIDDEN),
        logits_bytes=logits_bytes,
        entropy_gradient=entropy_gradient,
    )


def case(num_tokens: int, vocabulary: int = VOCABULARY, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(num_tokens)
    hidden = torch.randn(num_tokens, HIDDEN, generator=generator)
    head = torch.randn(vocabulary, HIDDEN, generator=generator)
    targets = torch.randint(8, 49, (num_tokens,), generator=generator)
    reference = Distribution(hidden.flip(0).to(dtype), head.flip(1).to(dtype))
    leaves = (hidden.to(dtype).requires_grad_(), head.to(dtype).requires_grad_())
    return *leaves, targets, reference


def plain_scores(hidden, head, targets, reference):
    """By the definitions, with every logit there; forbidden ids are left out of the vocabulary."""
    allowed = [i for i in range(len(head)) if i not in FORBIDDEN]
    logprobs = (hidden @ head[allowed].T / 0.7).log_softmax(-1)
    theirs = (reference.hidden_NH @ reference.head_VH[allowed].T / 0.7).log_softmax(-1)
    places = torch.tensor([allowed.index(t) for t in targets.tolist()])
    probs = logprobs.exp()
    return (
        logprobs[torch.arange(len(targets)), places],
        -(probs * logprobs).sum(-1),
        (probs * (logprobs - theirs)).sum(-1),
    )


@pytest.mark.parametrize("tokens_per_chunk", [1, 4, 100])
@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1, 2, -3)])
def test_scores_and_gradients_are_those_of_autograd(tokens_per_chunk, weights):
    hidden, head, targets, reference = case(11)
    upstream = torch.randn(11, generator=torch.Generator().manual_seed(1))

    def gradients(scores):
        loss = torch.stack([w * (s * upstream).sum() for w, s in zip(weights, scores, strict=True)])
        return torch.autograd.grad(loss.sum(), (hidden, head))

    expected = plain_scores(hidden, head, targets, reference)
    one_chunk = law(logits_bytes=tokens_per_chunk * VOCABULARY * 4 * 10)
    found = score(Distribution(hidden, head), targets, one_chunk, reference)
    torch.testing.assert_close(tuple(found), expected, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_without_its_gradient_the_entropy_is_a_number():
    hidden, head, targets, _ = case(5)
    scores = score(Distribution(hidden, head), targets, law(logits_bytes=1, entropy_gradient=False))
    assert scores.logprobs.requires_grad
    assert not scores.entropy.requires_grad and not scores.divergence.requires_grad
    assert not scores.divergence.any()


def test_a_bfloat16_head_sums_its_gradient_in_float32():
    """Of many small parts: bfloat16 would stop counting after 256 of them."""
    num_tokens = 2_000
    hidden, head, targets, _ = case(num_tokens, dtype=torch.bfloat16)
    with torch.no_grad():
        hidden.copy_(hidden[:1].expand_as(hidden))
        targets[:] = targets[0]

    def head_gradient(tokens_per_chunk: int) -> torch.Tensor:
        one = law(logits_bytes=tokens_per_chunk * VOCABULARY * 4 * 4)
        logprobs = score(Distribution(hidden, head), targets, one).logprobs
        return torch.autograd.grad(logprobs.sum(), head)[0].float()

    alone, together = head_gradient(1), head_gradient(num_tokens)
    assert (alone - together).norm() <= 0.01 * together.norm()


class LiveLogits(TorchDispatchMode):
    """The most bytes that tensors with a row per token and a column per word took at once."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self._vocabulary, self._live = vocabulary, 0
        self.peak_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.shape[1:] == (self._vocabulary,):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        if getattr(storage, "is_noted", False):
            return
        storage.is_noted = True  # type: ignore[attr-defined]
        num_bytes = storage.nbytes()
        self._live += num_bytes
        self.peak_bytes = max(self.peak_bytes, self._live)
        weakref.finalize(storage, self._free, num_bytes)

    def _free(self, num_bytes: int) -> None:
        self._live -= num_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_reference", [False, True])
def test_logits_take_what_they_may_however_long_the_answers(dtype, with_reference):
    vocabulary, budget = 4_000, 1_000_000
    peaks = []
    for num_tokens in (200, 2_000):
        hidden, head, targets, reference = case(num_tokens, vocabulary, dtype)
        gc.collect()
        with LiveLogits(vocabulary) as logits:
            scores = score(
                Distribution(hidden, head),
                targets,
                law(logits_bytes=budget),
                reference if with_reference else None,
            )
            sum(part.sum() for part in scores).backward()
        peaks.append(logits.peak_bytes)
    assert peaks[0] == peaks[1]
    assert budget / 4 < peaks[0] <= budget
