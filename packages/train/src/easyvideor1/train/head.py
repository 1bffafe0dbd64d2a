"""The language model's head on target tokens: log-probs and entropies without keeping a logit.

Hidden states go through the head chunk by chunk, forward and backward, so that memory does not
depend on how many tokens there are; what the backward needs of a logit it computes anew. All
arithmetic after the head is in float32, and so is the sum of the head's gradient over the chunks.
Called by `model_forward.PolicyModel`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from easyvideor1.train import kl

# Legend: N target tokens, C of a chunk, H hidden size, V vocabulary.

MASKED_LOGIT = -1e9
"""Of an id that may not be sampled: its probability is exactly 0 in fp32, and nothing is NaN."""

COPIES, COPIES_WITH_REFERENCE = 4, 10
"""Tensors as large as a chunk's logits in float32 that are alive at once, at most."""


class TokenScores(NamedTuple):
    """Of each target token, in fp32."""

    logprobs: Tensor
    """[N] log-prob of the token, in nats."""
    entropy: Tensor
    """[N] entropy of the distribution it was drawn from, in nats."""
    divergence: Tensor
    """[N] KL from that distribution to the reference's, in nats; 0 where none was given."""


class Distribution(NamedTuple):
    """The distributions of all target tokens, before the head has made them [N, V]."""

    hidden_NH: Tensor
    head_VH: Tensor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SamplingLaw:
    """How logits become the distribution that rollouts sample from, and in what memory."""

    temperature: float
    forbidden_token_ids: Tensor
    logits_bytes: int
    """Of all logits alive at once."""
    entropy_gradient: bool
    """Whether entropies have one."""

    def chunk_tokens(self, num_logits: int, *, with_reference: bool) -> int:
        """Tokens per chunk."""
        copies = COPIES_WITH_REFERENCE if with_reference else COPIES
        return max(1, self.logits_bytes // (copies * num_logits * torch.float32.itemsize))

    def logprobs(self, hidden_CH: Tensor, head_VH: Tensor) -> Tensor:
        """[C, V] in fp32; without a gradient."""
        logits_CV = F.linear(hidden_CH, head_VH).float().div_(self.temperature)
        logits_CV.index_fill_(1, self.forbidden_token_ids, MASKED_LOGIT)
        return logits_CV.sub_(logits_CV.logsumexp(-1, keepdim=True))


def score(
    policy: Distribution,
    target_ids_N: Tensor,
    law: SamplingLaw,
    reference: Distribution | None = None,
) -> TokenScores:
    """Scores of the targets, with the gradients of the policy's hidden states and head.

    Args:
        policy: that is scored.
        target_ids_N: [N] the tokens.
        law: of the rollouts.
        reference: to tell the divergence from; it gets no gradient.
    """
    return TokenScores(*Head.apply(*policy, target_ids_N, law, reference))


class Head(torch.autograd.Function):
    """`score`, with a backward of its own."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        head_VH: Tensor,
        target_ids_N: Tensor,
        law: SamplingLaw,
        reference: Distribution | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probs, entropies and divergences, each [N]."""
        found = [
            _score_chunk(law.logprobs(hidden_CH, head_VH), target_ids_C, law, other)
            for hidden_CH, target_ids_C, other in _chunks(
                hidden_NH, head_VH, target_ids_N, law, reference
            )
        ]
        logprobs_N, entropy_N, divergence_N = map(torch.cat, zip(*found, strict=True))
        ctx.law, ctx.reference = law, reference
        ctx.save_for_backward(hidden_NH, head_VH, target_ids_N, entropy_N, divergence_N)
        constant = [] if law.entropy_gradient else [entropy_N]
        ctx.mark_non_differentiable(*constant, *([divergence_N] if reference is None else []))
        return logprobs_N, entropy_N, divergence_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """By the gradients of the scores; those of the head are summed in float32."""
        hidden_NH, head_VH, target_ids_N, entropy_N, divergence_N = ctx.saved_tensors
        law: SamplingLaw = ctx.law
        chunks = list(_chunks(hidden_NH, head_VH, target_ids_N, law, ctx.reference))
        size = len(chunks[0][0])
        per_token = (
            tensor.split(size) for tensor in (grads[0], grads[1], grads[2], entropy_N, divergence_N)
        )
        d_head_VH = torch.zeros_like(head_VH, dtype=torch.float32)
        d_hidden = []
        for (hidden_CH, target_ids_C, other), of_chunk in zip(
            chunks, zip(*per_token, strict=True), strict=True
        ):
            # In a call of its own, so that a chunk's logits are gone before the next one's come.
            d_hidden_CH, of_head_VH = _backward_chunk(
                hidden_CH, head_VH, target_ids_C, of_chunk, law, other,
                head_too=ctx.needs_input_grad[1],
            )  # fmt: skip
            d_hidden.append(d_hidden_CH)
            if of_head_VH is not None:
                d_head_VH += of_head_VH
        return torch.cat(d_hidden), d_head_VH.to(head_VH.dtype), None, None, None


def _chunks(
    hidden_NH: Tensor,
    head_VH: Tensor,
    target_ids_N: Tensor,
    law: SamplingLaw,
    reference: Distribution | None,
) -> Iterator[tuple[Tensor, Tensor, Distribution | None]]:
    """Hidden states, targets, and the reference's share of them."""
    size = law.chunk_tokens(len(head_VH), with_reference=reference is not None)
    hidden, targets = hidden_NH.split(size), target_ids_N.split(size)
    if reference is None:
        others: list[Distribution | None] = [None] * len(hidden)
    else:
        others = [Distribution(h, reference.head_VH) for h in reference.hidden_NH.split(size)]
    return zip(hidden, targets, others, strict=True)


def _score_chunk(
    logprobs_CV: Tensor, target_ids_C: Tensor, law: SamplingLaw, reference: Distribution | None
) -> tuple[Tensor, Tensor, Tensor]:
    logprobs_C = logprobs_CV.gather(1, target_ids_C[:, None])[:, 0]
    if reference is None:
        divergence_C = torch.zeros_like(logprobs_C)
    else:
        divergence_C = kl.full(logprobs_CV, law.logprobs(*reference))
    entropy_C = -logprobs_CV.exp().mul_(logprobs_CV).sum(-1)
    return logprobs_C, entropy_C, divergence_C


def _backward_chunk(
    hidden_CH: Tensor,
    head_VH: Tensor,
    target_ids_C: Tensor,
    of_chunk: tuple[Tensor, ...],
    law: SamplingLaw,
    reference: Distribution | None,
    *,
    head_too: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the hidden states and, if asked for, of the head."""
    logprobs_CV = law.logprobs(hidden_CH, head_VH)
    d_logits_CV = _d_logits(logprobs_CV, target_ids_C, of_chunk, law, reference)
    d_scaled_CV = d_logits_CV.div_(law.temperature).to(head_VH.dtype)
    return d_scaled_CV @ head_VH, d_scaled_CV.mT @ hidden_CH if head_too else None


def _d_logits(
    logprobs_CV: Tensor,
    target_ids_C: Tensor,
    of_chunk: tuple[Tensor, ...],
    law: SamplingLaw,
    reference: Distribution | None,
) -> Tensor:
    """[C, V] gradient of the scaled logits; takes `logprobs_CV` for its own use.

    With p = exp(l): of the log-prob of token t it is [v = t] − p_v, of the entropy h
    −p_v (l_v + h), of the divergence d from a reference m p_v (l_v − m_v − d).
    """
    d_logprobs_C, d_entropy_C, d_divergence_C, entropy_C, divergence_C = (
        values.float()[:, None] for values in of_chunk
    )
    probs_CV = logprobs_CV.exp()
    if reference is None:
        factor_CV = logprobs_CV.add_(entropy_C).mul_(-d_entropy_C) if law.entropy_gradient else None
    else:
        factor_CV = logprobs_CV - law.logprobs(*reference)
        factor_CV.sub_(divergence_C).mul_(d_divergence_C)
        if law.entropy_gradient:
            factor_CV.sub_(logprobs_CV.add_(entropy_C).mul_(d_entropy_C))
    factor = -d_logprobs_C if factor_CV is None else factor_CV.sub_(d_logprobs_C)
    return probs_CV.mul_(factor).scatter_add_(1, target_ids_C[:, None], d_logprobs_C)
