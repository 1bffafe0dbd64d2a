"""One rank of the learner: it owns a share of the weights and of the optimizer and updates them.

`update` reads as: for each micro-batch forward, loss, backward; then one optimizer step. With a
process group the weights are sharded by FSDP2, without one they are an ordinary module; nothing
else differs. Works with or without Ray; `ray_runtime` puts one `RankLearner` into each actor.
All public methods are collective: every rank calls them.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from easyvideor1.train import checkpoint, export
from easyvideor1.train.activation_memory import ActivationMeter, peak_bytes, reset_peak
from easyvideor1.train.algorithm_config import AlgorithmConfig
from easyvideor1.train.balance import CostModel
from easyvideor1.train.config import LearnerConfig, OptimizerConfig
from easyvideor1.train.failures import at_samples
from easyvideor1.train.freezing import frozen_prefixes
from easyvideor1.train.interfaces import Objective, TrainExample
from easyvideor1.train.kernels import kernels_of, refuse_slow, told
from easyvideor1.train.kl import k3
from easyvideor1.train.model_forward import PolicyModel, TokenScores
from easyvideor1.train.objectives import OBJECTIVES, imitation, weighted_sum
from easyvideor1.train.offloading import move
from easyvideor1.train.optimizer import build_optimizer, clip_gradients, learning_rate
from easyvideor1.train.screening import Screen
from easyvideor1.train.sharding import default_device, load_model, shard
from easyvideor1.train.tally import Tally
from easyvideor1.train.token_tree import (
    Batch,
    ClipLoader,
    build_trees,
    idle_forest,
    pack,
    to_batch,
)

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter

log = logging.getLogger(__name__)


class RankLearner:
    """The trainable policy as one rank sees it."""

    def __init__(
        self,
        *,
        config: LearnerConfig,
        algorithm: AlgorithmConfig,
        model_path: str,
        family: "FamilyAdapter",
        clip_store: ClipLoader,
        temperature: float = 1.0,
        dtype: str = "auto",
        trust_remote_code: bool = False,
        device: torch.device | None = None,
    ):
        """Load the model and shard it, if a process group is there.

        Args:
            config: how the update is computed.
            algorithm: what is optimised.
            model_path: folder or hub id of the initial weights.
            family: builds the model's inputs.
            clip_store: gives the clips of a sample.
            temperature: of the rollouts.
            dtype: of the computation, `float32` or `bfloat16`; `auto` is bfloat16 on a GPU and
                float32 on a CPU. Weights and optimizer are always float32.
            trust_remote_code: run code that comes with the checkpoint.
            device: None for the current GPU, or the CPU where there is none.
        """
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        self.config = config
        self.algorithm = algorithm
        self.model_path = model_path
        self.family = family
        self.clip_store = clip_store
        self._screen = Screen(family, clip_store)
        self.device = device or default_device()
        language_model = load_model(model_path, config, trust_remote_code=trust_remote_code)
        self.kernels = kernels_of(language_model)
        if self.rank == 0:
            print(told(self.kernels))
        refuse_slow(self.kernels, self.device, allowed=config.allow_slow_kernels)
        self.model = PolicyModel(
            language_model,
            temperature=temperature,
            forbidden_token_ids=family.forbidden_token_ids,
            logits_chunk_tokens=config.logits_chunk_tokens,
        )
        shard(self.model, self.device, dtype, config)
        self.model.train()
        self.begin(config.optimizer, total_updates=None)

    @property
    def rank(self) -> int:
        """Index of this process among the learner's."""
        return dist.get_rank() if dist.is_initialized() else 0

    @property
    def world_size(self) -> int:
        """Number of the learner's processes."""
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def cost_model(self) -> CostModel:
        """What an update costs per token and per patch, by the sizes of the model's two parts."""
        core = self.model.hf.model
        # Rows of the embedding are looked up, not multiplied.
        embedding = {id(parameter) for parameter in core.get_input_embeddings().parameters()}
        language = [p for p in core.language_model.parameters() if id(p) not in embedding]
        vision = list(core.visual.parameters())
        return CostModel.of_sizes(
            language_weights=sum(p.numel() for p in language),
            trained_language_weights=sum(p.numel() for p in language if p.requires_grad),
            vision_weights=sum(p.numel() for p in vision),
            trained_vision_weights=sum(p.numel() for p in vision if p.requires_grad),
        )

    def begin(self, optimizer: OptimizerConfig, total_updates: int | None) -> None:
        """Start a phase of training: a fresh optimizer, its schedule at 0. Weights stay.

        Args:
            optimizer: its settings.
            total_updates: where a cosine schedule ends; None where the rate stays constant.
        """
        learning_rate(optimizer, optimizer.warmup_updates, total_updates)
        self.optimizer_config = optimizer
        self.total_updates = total_updates
        self.optimizer = build_optimizer(self.model, optimizer)
        self.num_updates = 0
        self.num_skipped = 0

    def update(
        self, examples: Sequence[TrainExample], objective: Objective = "policy"
    ) -> dict[str, float]:
        """Train on this rank's share of the examples.

        One optimizer step; with `updates_per_rollout` above 1 as many, each on a part of the
        share. A step whose gradient is not finite, or of whose completions none can be trained on,
        is skipped and counted.

        Args:
            examples: this rank's share, see `balance.divide`; may be empty.
            objective: the algorithm's, or imitation (`sft`).

        Returns:
            Metrics over all ranks, the same on every rank.

        Raises:
            ValueError: if no rank is given an example, or all weights are 0.
        """
        if not self._sum(torch.tensor(len(examples))).item():
            raise ValueError("nothing to train on: no rank was given an example")
        reset_peak(self.device)
        screened = self._screen(examples)
        accepted = screened.examples
        tally = Tally(self.device)
        tally.add("refused_completions", torch.tensor(screened.num_refused))
        num_parts = self.config.updates_per_rollout if objective == "policy" else 1
        if num_parts > 1:
            accepted = self._with_old_logprobs(accepted, screened.clips)
        grad_norms: list[float] = []
        for part in range(num_parts):
            share = accepted[_bounds(len(accepted), part, num_parts)]
            is_first = not grad_norms
            norm = self._step(share, screened.clips, objective, tally, on_policy=is_first)
            if norm is not None:
                grad_norms.append(norm)
        tally.add_max("peak_memory_gb", torch.tensor([peak_bytes(self.device) / 1e9]))
        return self._metrics(tally, grad_norms)

    def logprobs(self, examples: Sequence[TrainExample]) -> list[list[float]]:
        """Log-probs of each completion's tokens under the current weights.

        Returns:
            Per example [L], 0 on tokens that no policy chose.
        """
        return self._logprobs(examples, self.clip_store)

    def _logprobs(self, examples: Sequence[TrainExample], clips: ClipLoader) -> list[list[float]]:
        scores: list[list[float]] = [[] for _ in examples]
        with torch.no_grad():
            for batch in self._batches(examples, clips):
                with at_samples(batch.sample_ids):
                    logprobs = self.model(batch).logprobs.tolist()
                for index, logprob in zip(batch.examples.tolist(), logprobs, strict=True):
                    if index >= 0:
                        scores[index].append(logprob)
        return [
            _spread(values, example.completion.loss_mask)
            for values, example in zip(scores, examples, strict=True)
        ]

    def gather_weights(self, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, Tensor]]:
        """Full weights by their Hugging Face name, the tied head included, on this rank's device.

        Every rank gets them, and runs the iterator to its end for the collectives in it. A tensor
        may be a view of the live weights: use it before the next update.

        Args:
            skip: name prefixes of weights that are left out, e.g. `frozen_prefixes`.
        """
        for name, value in self.model.hf.state_dict().items():
            if name.startswith(skip):
                continue
            # Offloaded shards come back one at a time.
            here = value.to(self.device)
            yield name, (here.full_tensor() if isinstance(here, DTensor) else here).detach()

    @property
    def frozen_prefixes(self) -> tuple[str, ...]:
        """Name prefixes of the parts of the model that never change."""
        return frozen_prefixes(self.model.hf)

    def offload(self) -> None:
        """Move weights and optimizer to host memory; without a GPU they are there already."""
        move(self.model, self.optimizer, torch.device("cpu"))

    def onload(self) -> None:
        """Move weights and optimizer to this rank's device; before `update` and `logprobs`."""
        move(self.model, self.optimizer, self.device)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer, schedule and random states into `folder`."""
        progress = {"num_updates": self.num_updates, "num_skipped": self.num_skipped}
        checkpoint.save_rank(folder, self.model, self.optimizer, progress)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote; the number of ranks may have changed."""
        progress = checkpoint.load_rank(folder, self.model, self.optimizer)
        self.num_updates = progress["num_updates"]
        self.num_skipped = progress["num_skipped"]

    def export(self, folder: Path) -> None:
        """Write a Hugging Face folder that transformers and vLLM load."""
        weights: dict[str, Tensor] = {}
        for name, value in self.gather_weights():
            if self.rank == 0:
                weights[name] = value.cpu()
        if self.rank == 0:
            stored_dtype = self.family.config.dtype or torch.float32
            export.write_folder(folder, self.model.hf, weights, self.family.processor, stored_dtype)
        checkpoint.wait_for_all()

    def _step(
        self,
        examples: Sequence[TrainExample],
        clips: ClipLoader,
        objective: Objective,
        tally: Tally,
        *,
        on_policy: bool,
    ) -> float | None:
        """One optimizer step; returns the norm of the gradient before clipping.

        None where no rank has an example, and nothing is done.
        """
        total_weight = self._total_weight(examples)
        if total_weight is None:
            log.warning("update skipped: none of its completions can be trained on")
            self.num_skipped += 1
            return None
        activations = ActivationMeter()
        for number, batch in enumerate(self._batches(examples, clips)):
            with at_samples(batch.sample_ids):
                with activations.measure() if number == 0 else nullcontext():
                    scores: TokenScores = self.model(batch)
                if objective == "sft":
                    loss_T = imitation(scores.logprobs)
                else:
                    loss_T = self._policy_loss(scores.logprobs, batch, tally, on_policy=on_policy)
                loss = weighted_sum(loss_T, batch.weights) / total_weight
                # FSDP averages gradients over ranks; the loss is a sum over them.
                (loss * self.world_size).backward()
                tally.count(loss_T.detach(), scores.entropy, batch)
        tally.add_max("activation_gb", torch.tensor([activations.num_bytes / 1e9]))
        grad_norm = clip_gradients(self.model.parameters(), self.optimizer_config.max_grad_norm)
        self._apply(grad_norm)
        return grad_norm

    def _policy_loss(
        self, logprobs_T: Tensor, batch: Batch, tally: Tally, *, on_policy: bool
    ) -> Tensor:
        sampler_T = batch.sampler_logprobs
        known_T = ~sampler_T.isnan()
        # Unknown log-probs are those of the current weights: a ratio of exactly 1.
        old_T = torch.where(known_T, sampler_T, logprobs_T.detach())
        loss = OBJECTIVES[self.algorithm.objective.name](
            logprobs_T,
            old_T,
            batch.advantages,
            batch.examples,
            batch.weights,
            self.algorithm.objective,
        )
        tally.add("ratio", weighted_sum(loss.ratio_T, batch.weights))
        tally.add("clip_low", weighted_sum(loss.clipped_low_T.float(), batch.weights))
        tally.add("clip_high", weighted_sum(loss.clipped_high_T.float(), batch.weights))
        if on_policy:
            sampled_T = known_T & ~batch.is_offline & (batch.weights > 0)
            ours_T, theirs_T = logprobs_T.detach()[sampled_T], sampler_T[sampled_T]
            tally.add("sampled_tokens", sampled_T.sum())
            tally.add("mismatch_kl", k3(theirs_T, ours_T).sum())
            tally.add_max("mismatch_max", (ours_T - theirs_T).abs())
        return loss.loss_T

    def _apply(self, grad_norm: float) -> None:
        if torch.tensor(grad_norm).isfinite():
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(
                    self.optimizer_config, self.num_updates, self.total_updates
                )
            self.optimizer.step()
            self.num_updates += 1
        else:
            log.warning("update skipped: the norm of its gradient is %s", grad_norm)
            self.num_skipped += 1
        self.optimizer.zero_grad()

    def _metrics(self, tally: Tally, grad_norms: list[float]) -> dict[str, float]:
        sums, maxima = tally.reduce(self._sum, self._max)
        metrics = {
            "learner/lr": self.optimizer.param_groups[0]["lr"],
            "learner/refused_completions": sums["refused_completions"],
            "learner/skipped_updates": float(self.num_skipped),
            "learner/peak_memory_gb": maxima["peak_memory_gb"],
        }
        if not grad_norms:
            return metrics
        weight = sums["weight"]
        metrics |= {
            "learner/loss": sums["loss"] / weight,
            "learner/grad_norm": sum(grad_norms) / len(grad_norms),
            "learner/entropy": sums["entropy"] / weight,
            "learner/offline_share": sums["offline"] / weight,
            "learner/trained_tokens": sums["trained_tokens"],
            "learner/tokens": sums["tokens"],
            "learner/activation_gb": maxima["activation_gb"],
        }
        if "ratio" in sums:
            metrics["learner/ratio_mean"] = sums["ratio"] / weight
            metrics["learner/clip_low_fraction"] = sums["clip_low"] / weight
            metrics["learner/clip_high_fraction"] = sums["clip_high"] / weight
        if sums.get("sampled_tokens"):
            metrics["learner/mismatch_kl"] = sums["mismatch_kl"] / sums["sampled_tokens"]
            metrics["learner/mismatch_max"] = maxima["mismatch_max"]
        return metrics

    def _with_old_logprobs(
        self, examples: list[TrainExample], clips: ClipLoader
    ) -> list[TrainExample]:
        """Completions without log-probs get those of the weights before the first step."""
        lacking = [i for i, e in enumerate(examples) if e.completion.logprobs is None]
        filled = list(examples)
        logprobs = self._logprobs([examples[i] for i in lacking], clips)
        for index, values in zip(lacking, logprobs, strict=True):
            filled[index] = _with_logprobs(examples[index], values)
        return filled

    def _batches(self, examples: Sequence[TrainExample], clips: ClipLoader) -> Iterator[Batch]:
        """Micro-batches on the device; every rank yields the same number."""
        pad = self.family.eos_token_ids[0]
        trees = build_trees(examples, self.family, clips)
        forests = pack(trees, self.config.micro_batch_tokens)
        while True:
            forest = next(forests, None)
            busy = self._max(torch.tensor(float(forest is not None)))
            if not busy.item():
                return
            yield to_batch(forest or idle_forest(pad), pad).to(self.device)

    def _total_weight(self, examples: Sequence[TrainExample]) -> float | None:
        """Sum of the token weights over all ranks: what makes the loss a mean.

        None where no rank has an example.
        """
        own = sum(
            weight
            for example in examples
            for weight, counts in zip(
                example.token_weights or [1.0] * len(example.completion.token_ids),
                example.completion.loss_mask,
                strict=True,
            )
            if counts
        )
        counts = torch.tensor([own, len(examples)], dtype=torch.float64)
        total, num_examples = self._sum(counts).tolist()
        if not num_examples:
            return None
        if total <= 0:
            raise ValueError(f"nothing to train on: the token weights of this step sum to {total}")
        return total

    def _sum(self, value: Tensor) -> Tensor:
        return self._all_reduce(value, dist.ReduceOp.SUM)

    def _max(self, value: Tensor) -> Tensor:
        return self._all_reduce(value, dist.ReduceOp.MAX)

    def _all_reduce(self, value: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if dist.is_initialized():
            value = value.to(self.device)
            dist.all_reduce(value, op=operation)
        return value


def _bounds(count: int, part: int, num_parts: int) -> slice:
    """Where part number `part` of `num_parts` nearly equal parts lies."""
    return slice(count * part // num_parts, count * (part + 1) // num_parts)


def _spread(values: list[float], mask: list[bool]) -> list[float]:
    """`values` at the places where `mask` is True, 0 elsewhere."""
    remaining = iter(values)
    return [next(remaining) if counts else 0.0 for counts in mask]


def _with_logprobs(example: TrainExample, values: list[float]) -> TrainExample:
    segments, start = [], 0
    for segment in example.completion.segments:
        stop = start + len(segment.token_ids)
        segments.append(replace(segment, logprobs=tuple(values[start:stop])))
        start = stop
    return replace(example, completion=replace(example.completion, segments=tuple(segments)))
