"""From a batch to the log-probs of its target tokens, in one module that FSDP2 can wrap.

Exactly one call of the vision tower per forward, on every rank and for every kind of batch: ranks
whose batches differ would otherwise disagree on the collectives inside the tower. The language
model's head runs on target positions only. Called by `learner.RankLearner`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from transformers import PreTrainedModel

from easyvideor1.schema.records import MediaKind
from easyvideor1.train.batches import Batch
from easyvideor1.train.head import Distribution, SamplingLaw, TokenScores, score

# Legend: N target tokens, H hidden size.


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
        logits_mb: int,
        entropy_gradient: bool = False,
    ):
        """Wrap a model.

        Args:
            language_model: of Hugging Face.
            temperature: of the rollouts.
            forbidden_token_ids: may not be sampled.
            logits_mb: memory of the logits that are alive at once.
            entropy_gradient: whether the entropies have a gradient.
        """
        super().__init__()
        self.hf = language_model
        self.temperature = temperature
        self.logits_mb = logits_mb
        self.entropy_gradient = entropy_gradient
        num_logits = language_model.config.get_text_config().vocab_size
        forbidden = torch.tensor([i for i in forbidden_token_ids if i < num_logits])
        self.register_buffer("forbidden_token_ids", forbidden.long(), persistent=False)

    def forward(self, batch: Batch, reference: Distribution | None = None) -> TokenScores:
        """Log-probs and entropies of the batch's target tokens, and what a reference differs by."""
        policy = Distribution(self.target_states(batch), self.hf.lm_head.weight)
        return score(policy, batch.target_ids, self._law, reference)

    def distribution(self, batch: Batch) -> Distribution:
        """The distributions of the batch's target tokens, for the `forward` of another policy.

        FSDP knows it as a forward, see `sharding.shard`.
        """
        # A copy: the whole head is there only as long as this runs.
        return Distribution(self.target_states(batch), self.hf.lm_head.weight.clone())

    @property
    def _law(self) -> SamplingLaw:
        return SamplingLaw(
            temperature=self.temperature,
            forbidden_token_ids=self.forbidden_token_ids,
            logits_bytes=self.logits_mb * 10**6,
            entropy_gradient=self.entropy_gradient,
        )

    def target_states(self, batch: Batch) -> Tensor:
        """[N, H] last hidden states from which the targets are predicted."""
        if batch.media:
            hidden = self._read(batch, self._encode_media(batch))
        else:
            with self._added_to_embeddings(self._encode_nothing(batch.input_ids.device)):
                hidden = self._read(batch, {})
        return hidden[batch.target_rows, batch.target_columns]

    def _read(self, batch: Batch, encoded: dict[str, Any]) -> Tensor:
        """[B, L, H] last hidden states of the language model."""
        shape = {} if batch.tree is None else {"tree": batch.tree}
        return self.hf.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            mm_encoder_outputs=encoded,
            use_cache=False,
            **shape,
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

        Each distinct medium is encoded once and handed to all rows that show it.
        """
        device = batch.input_ids.device
        pixel_values = torch.cat([slot.pixel_values for slot in batch.media])
        grids = torch.stack([slot.grid_thw for slot in batch.media])
        output, levels = self._look(pixel_values.to(device), grids.to(device))
        sizes = (grids.prod(-1) // self.hf.config.vision_config.spatial_merge_size**2).tolist()
        pieces = [level.split(sizes) for level in levels]
        encoded = {}
        for kind in MediaKind:
            order = [i for media in batch.row_media for i in media if batch.media[i].kind is kind]
            if order:
                pooled, *deepstack = [tuple(level[i] for i in order) for level in pieces]
                encoded[kind.value] = type(output)(pooler_output=pooled)
                if deepstack:
                    encoded[kind.value].deepstack_features = deepstack
        return encoded


def _finite(saved: Tensor) -> Tensor:
    """A gradient of zero times an infinite activation would be NaN."""
    return saved.nan_to_num(0.0, 0.0, 0.0) if saved.is_floating_point() else saved
