"""From a batch to the log-probs of its target tokens, in one module that FSDP2 can wrap.

Exactly one call of the vision tower per forward, on every rank and for every kind of batch: ranks
whose batches differ would otherwise disagree on the collectives inside the tower. The language
model's head runs on target positions only. Called by `learner.RankLearner`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from easyvideor1.schema.records import MediaKind
from easyvideor1.train.token_tree import Batch

# Legend: N target tokens, H hidden size, V vocabulary.

MASKED_LOGIT = -1e9
"""Of an id that may not be sampled: its probability is exactly 0 in fp32, and nothing is NaN."""


class TokenScores(NamedTuple):
    """Of each target token, in fp32."""

    logprobs: Tensor
    """[N] log-prob of the token, in nats."""
    entropy: Tensor
    """[N] entropy of the distribution it was drawn from, in nats, without gradient."""


class PolicyModel(nn.Module):
    """A vision-language model as a policy: its distribution is the one that rollouts sample from.

    Logits are divided by the sampling temperature and ids that may not be sampled have
    probability 0, in the engine and here alike.
    """

    forbidden_token_ids: Tensor

    def __init__(
        self,
        language_model: PreTrainedModel,
        *,
        temperature: float,
        forbidden_token_ids: Sequence[int],
        logits_chunk_tokens: int,
    ):
        super().__init__()
        self.hf = language_model
        self.temperature = temperature
        self.logits_chunk_tokens = logits_chunk_tokens
        num_logits = language_model.config.get_text_config().vocab_size
        forbidden = torch.tensor([i for i in forbidden_token_ids if i < num_logits])
        self.register_buffer("forbidden_token_ids", forbidden.long(), persistent=False)

    def forward(self, batch: Batch) -> TokenScores:
        """Log-probs and entropies of the batch's target tokens."""
        if batch.media:
            hidden = self._read(batch, self._encode_media(batch))
        else:
            with self._added_to_embeddings(self._encode_nothing(batch.input_ids.device)):
                hidden = self._read(batch, {})
        return self._score(hidden[batch.target_rows, batch.target_columns], batch.target_ids)

    def _read(self, batch: Batch, encoded: dict[str, Any]) -> Tensor:
        """[B, L, H] last hidden states of the language model."""
        return self.hf.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            mm_encoder_outputs=encoded,
            use_cache=False,
        ).last_hidden_state

    def _look(self, pixel_values: Tensor, grids: Tensor) -> tuple[Any, list[Tensor]]:
        """The vision tower's output, and in a list its features and those of DeepStack's levels."""
        output = self.hf.model.visual(pixel_values, grid_thw=grids, return_dict=True)
        return output, [output.pooler_output, *(getattr(output, "deepstack_features", None) or [])]

    def _encode_nothing(self, device: torch.device) -> Tensor:
        """A zero that depends on every weight of the vision tower, with gradients of zero.

        The tower runs on the smallest grid there is. Nothing that it computes there is used, so
        that values which are not finite reach neither the loss nor a gradient: the backward sees
        zeros in their place, and a layer that recomputes starts from them.
        """
        config = self.hf.config.vision_config
        side = config.spatial_merge_size
        num_values = config.in_channels * config.temporal_patch_size * config.patch_size**2
        patches = torch.zeros(side * side, num_values, device=device)
        with saved_tensors_hooks(Tensor.detach, _finite):
            _, levels = self._look(patches, torch.tensor([[1, side, side]], device=device))
            return torch.stack([level[:0].sum() for level in levels]).sum()

    @contextmanager
    def _added_to_embeddings(self, zero: Tensor) -> Generator[None]:
        """Ties `zero` in where features would be: at the bottom of the language model.

        There it makes all its layers part of the backward, also where they are frozen, as they are
        on ranks with media: the ranks then agree on the collectives.
        """
        embeddings = self.hf.get_input_embeddings()
        hook = embeddings.register_forward_hook(lambda _, __, output: output + zero.to(output))
        try:
            yield
        finally:
            hook.remove()

    def _encode_media(self, batch: Batch) -> dict[str, Any]:
        """Features per kind, as the model takes them.

        Each distinct medium is encoded once and handed to all branches that show it.
        """
        device = batch.input_ids.device
        pixel_values = torch.cat([slot.pixel_values for slot in batch.media])
        grids = torch.stack([slot.grid_thw for slot in batch.media])
        output, levels = self._look(pixel_values.to(device), grids.to(device))
        sizes = (grids.prod(-1) // self.hf.config.vision_config.spatial_merge_size**2).tolist()
        pieces = [level.split(sizes) for level in levels]
        encoded = {}
        for kind in MediaKind:
            order = [
                i for media in batch.branch_media for i in media if batch.media[i].kind is kind
            ]
            if order:
                pooled, *deepstack = [tuple(level[i] for i in order) for level in pieces]
                encoded[kind.value] = type(output)(pooler_output=pooled)
                if deepstack:
                    encoded[kind.value].deepstack_features = deepstack
        return encoded

    def _score(self, hidden_NH: Tensor, target_ids_N: Tensor) -> TokenScores:
        """Runs the head chunk by chunk; with several chunks each is recomputed in the backward."""
        chunks = list(
            zip(
                hidden_NH.split(self.logits_chunk_tokens),
                target_ids_N.split(self.logits_chunk_tokens),
                strict=True,
            )
        )
        if len(chunks) == 1:
            return self._score_chunk(*chunks[0])
        scores = [checkpoint(self._score_chunk, *chunk, use_reentrant=False) for chunk in chunks]
        return TokenScores(*(torch.cat(parts) for parts in zip(*scores, strict=True)))

    def _score_chunk(self, hidden_NH: Tensor, target_ids_N: Tensor) -> TokenScores:
        logits_NV = self.hf.lm_head(hidden_NH).float() / self.temperature
        logits_NV = logits_NV.index_fill(1, self.forbidden_token_ids, MASKED_LOGIT)
        logprobs_NV = logits_NV.log_softmax(-1)
        with torch.no_grad():
            entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
        return TokenScores(logprobs_NV.gather(1, target_ids_N[:, None])[:, 0], entropy_N)


def _finite(saved: Tensor) -> Tensor:
    """A gradient of zero times an infinite activation would be NaN."""
    return saved.nan_to_num(0.0, 0.0, 0.0) if saved.is_floating_point() else saved
