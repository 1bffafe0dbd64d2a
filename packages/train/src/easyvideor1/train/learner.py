"""One rank of the learner: it owns a share of the weights and of the optimizer and updates them.

`update` reads as: for each micro-batch forward, loss, backward; then one optimizer step. With a
process group the weights are sharded by FSDP2, without one they are an ordinary module; nothing
else differs. Works with or without Ray; `ray_runtime` puts one `RankLearner` into each actor.
All public methods are collective: every rank calls them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Size, Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from easyvideor1.train import adapters, checkpoint, export
from easyvideor1.train.activation_memory import ActivationMeter, peak_bytes, reset_peak
from easyvideor1.train.algorithm_config import AlgorithmConfig, KlPlace
from easyvideor1.train.balance import CostModel
from easyvideor1.train.batches import Batch
from easyvideor1.train.collectives import max_over_ranks, sum_over_ranks
from easyvideor1.train.config import LearnerConfig, OptimizerConfig, RolloutConfig
from easyvideor1.train.costs import cost_model_of
from easyvideor1.train.failures import at_samples
from easyvideor1.train.flops import FlopModel, peak_tflops
from easyvideor1.train.freezing import frozen_prefixes
from easyvideor1.train.head import TokenScores
from easyvideor1.train.interfaces import CheckpointBytes, Objective, TrainExample
from easyvideor1.train.kernels import kernels_of, refuse_slow, told
from easyvideor1.train.loss_scale import parts_of, scale_of
from easyvideor1.train.metrics import Stopwatch
from easyvideor1.train.micro_batches import micro_batches, per_token
from easyvideor1.train.model_forward import PolicyModel
from easyvideor1.train.objectives import imitation, weighted_sum
from easyvideor1.train.offloading import move
from easyvideor1.train.optimizer import build_optimizer, clip_gradients, learning_rate
from easyvideor1.train.policy_loss import policy_loss
from easyvideor1.train.reference import AdapterReference, Reference
from easyvideor1.train.screening import Screen
from easyvideor1.train.sharding import computation_dtype, default_device, load_model, shard
from easyvideor1.train.skipping import Losses, SkippedSteps
from easyvideor1.train.tally import Tally, describe
from easyvideor1.train.token_tree import ClipLoader

if TYPE_CHECKING:
    from easyvideor1.preprocess.families.base import FamilyAdapter


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
        self._refused: dict[str, str] = {}
        self.device = device or default_device()
        has_reference = algorithm.kl.place is not KlPlace.none
        language_model = load_model(
            model_path,
            config,
            trust_remote_code=trust_remote_code,
            reference_adapters=has_reference,
        )
        self._adapters: adapters.AdapterFacts | None = None
        if config.lora.is_on:
            base = adapters.fingerprint(language_model.state_dict())
            self._adapters = adapters.AdapterFacts.of(config.lora, base)
        self.kernels = kernels_of(language_model)
        if self.rank == 0:
            print(told(self.kernels))
        refuse_slow(self.kernels, self.device, allowed=config.allow_slow_kernels)
        self.temperature = temperature
        self.model = self._policy(language_model, entropy_gradient=algorithm.entropy_bonus > 0)
        shard(self.model, self.device, dtype, config)
        self.model.train()
        self.reference: Reference | None = None
        if has_reference and config.lora.is_on:
            self.reference = AdapterReference(self.model, algorithm.kl.estimator)
        elif has_reference:
            self.reference = self._load_reference(dtype, trust_remote_code=trust_remote_code)
        costs = self.cost_model
        self._patch_tokens = costs.patch_tokens
        self._flops = FlopModel.of(language_model, costs)
        self._has_learned = False
        self._writer = checkpoint.RankWriter()
        self.begin(config.optimizer, total_updates=None)

    def _policy(self, language_model: PreTrainedModel, *, entropy_gradient: bool) -> PolicyModel:
        return PolicyModel(
            language_model,
            temperature=self.temperature,
            forbidden_token_ids=self.family.forbidden_token_ids,
            logits_mb=self.config.logits_mb,
            entropy_gradient=entropy_gradient,
        )

    def _load_reference(self, dtype: str, *, trust_remote_code: bool) -> Reference:
        plain = replace(self.config, activation_checkpointing=False, freeze=[])
        language_model = load_model(self.model_path, plain, trust_remote_code=trust_remote_code)
        # It is never updated, so the dtype of the computation is enough.
        for parameter in language_model.parameters():
            parameter.data = parameter.data.to(computation_dtype(dtype, self.device))
        model = self._policy(language_model, entropy_gradient=False)
        shard(model, self.device, dtype, plain, backward=False)
        return Reference(model, self.algorithm.kl.estimator)

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
        return cost_model_of(self.model.hf, self.config.layout)

    def begin(self, optimizer: OptimizerConfig, total_updates: int | None) -> None:
        """Start a phase of training: a fresh optimizer, its schedule at 0. Weights stay.

        They become those of the reference.

        Args:
            optimizer: its settings.
            total_updates: where a cosine schedule ends; None where the rate stays constant.
        """
        learning_rate(optimizer, optimizer.warmup_updates, total_updates)
        self.optimizer_config = optimizer
        self.total_updates = total_updates
        self.optimizer = build_optimizer(self.model, optimizer)
        self.num_updates = 0
        self._skipped = SkippedSteps(self.config.max_skipped_updates)
        if self.reference is not None:
            self.reference.adopt(self.model)
            self._is_reference_initial = not self._has_learned

    def update(
        self,
        examples: Sequence[TrainExample],
        objective: Objective = "policy",
        *,
        kl_coefficient: float = 0.0,
        cuts: Sequence[int] = (),
    ) -> dict[str, float]:
        """Train on this rank's share of the examples.

        One optimizer step, and a further one from each of the `cuts` on. In the first the weights
        are those that sampled, so the ratio to them is 1 by construction; for the further ones the
        log-probs before the first are computed first. A step whose loss or gradient is not finite,
        or of whose completions none can be trained on, is skipped and counted.

        Args:
            examples: this rank's share of each step, one after another, see `balance.divide_steps`;
                may be empty.
            objective: the algorithm's, or imitation (`sft`).
            kl_coefficient: of the divergence from the reference, where it is in the loss.
            cuts: indices of the share where a further step begins; equally many on every rank.

        Returns:
            Metrics over all ranks, the same on every rank.

        Raises:
            ValueError: if no rank is given an example, or all weights are 0.
            UserError: if a checkpoint that `begin_save` began could not be written, or after more
                than `learner.max_skipped_updates` steps in a row that were not finite.
        """
        self._writer.check()
        if not self._sum(torch.tensor(len(examples))).item():
            raise ValueError("nothing to train on: no rank was given an example")
        reset_peak(self.device)
        screened = self._screen(examples)
        tally = Tally(self.device)
        tally.add("refused_completions", torch.tensor(screened.num_refused))
        tally.add("flops", torch.zeros((), dtype=torch.float64))
        self._refused |= screened.unusable
        steps = screened.cut(cuts)
        clock = Stopwatch()
        if cuts and objective == "policy":
            with clock("old_logprobs"):
                steps[1:] = [self._with_old_logprobs(step, screened.clips) for step in steps[1:]]
        grad_norms: list[float] = []
        for step in steps:
            norm = self._step(step, screened.clips, objective, tally, kl_coefficient)
            if norm is not None:
                grad_norms.append(norm)
        self._has_learned = True
        tally.add_max("peak_memory_gb", torch.tensor([peak_bytes(self.device) / 1e9]))
        return self._metrics(tally, grad_norms) | clock.phases()

    def take_refused(self) -> dict[str, str]:
        """By id, the samples whose media this rank's updates could not have, and why.

        Those since the last call.
        """
        refused, self._refused = self._refused, {}
        return refused

    def logprobs(self, examples: Sequence[TrainExample]) -> list[list[float]]:
        """Log-probs of each completion's tokens under the current weights.

        Returns:
            Per example [L], 0 on tokens that no policy chose.
        """
        return self._per_token(examples, self.clip_store, self._logprobs_of)

    def divergences(self, examples: Sequence[TrainExample]) -> list[list[float] | None]:
        """Estimates of the KL of the current policy from the reference, by `algorithm.kl`.

        Returns:
            Per example [L], in nats, 0 on tokens that no policy chose; None for a completion that
            an update would refuse.
        """
        assert self.reference is not None, "algorithm.kl.place=none keeps no reference"
        screened = self._screen(examples)
        values = self._per_token(screened.examples, screened.clips, self._divergences_of)
        known = dict(zip(screened.indices, values, strict=True))
        return [known.get(index) for index in range(len(examples))]

    def _logprobs_of(self, batch: Batch) -> Tensor:
        return self.model(batch).logprobs

    def _divergences_of(self, batch: Batch) -> Tensor:
        assert self.reference is not None
        scores = self.model(batch, self.reference.distribution(batch))
        return self.reference.divergence(batch, scores)

    def _per_token(
        self,
        examples: Sequence[TrainExample],
        clips: ClipLoader,
        values_of: Callable[[Batch], Tensor],
    ) -> list[list[float]]:
        return per_token(examples, self._batches(examples, clips), values_of)

    def gather_weights(self, skip: tuple[str, ...] = ()) -> Iterator[tuple[str, Tensor]]:
        """Full weights by their Hugging Face name, the tied head included, on this rank's device.

        With LoRA those of the model that the adapters make.

        Every rank gets them, and runs the iterator to its end for the collectives in it. A tensor
        may be a view of the live weights: use it before the next update.

        Args:
            skip: name prefixes of weights that are left out, e.g. `frozen_prefixes`.
        """
        state = self.model.hf.state_dict()
        for stored, value in state.items():
            name = adapters.plain_name(stored)
            if adapters.is_adapter(stored) or name.startswith(skip):
                continue
            weight = self._gather(value)
            a_name, b_name = adapters.adapter_names(name)
            if self._adapters is not None and a_name in state:
                a, b = self._gather(state[a_name]), self._gather(state[b_name])
                weight = adapters.merged(weight, a, b, self._adapters.scale)
            yield name, weight

    def _gather(self, value: Tensor) -> Tensor:
        # Offloaded shards come back one at a time.
        here = value.to(self.device)
        return (here.full_tensor() if isinstance(here, DTensor) else here).detach()

    def weight_shapes(self, skip: tuple[str, ...] = ()) -> dict[str, tuple[torch.dtype, Size]]:
        """Dtype and shape of what `gather_weights` yields, in its order; gathers nothing."""
        return {
            name: (value.dtype, value.shape)
            for stored, value in self.model.hf.state_dict().items()
            if not (name := adapters.plain_name(stored)).startswith(skip)
            and not adapters.is_adapter(stored)
        }

    @property
    def frozen_prefixes(self) -> tuple[str, ...]:
        """Name prefixes of the parts of the model that never change."""
        return frozen_prefixes(self.model.hf)

    def offload(self) -> None:
        """Move weights and optimizer to host memory; without a GPU they are there already."""
        self._move(torch.device("cpu"))

    def onload(self) -> None:
        """Move weights and optimizer to this rank's device; before anything is computed."""
        self._move(self.device)

    def _move(self, device: torch.device) -> None:
        models = [self.model]
        if self.reference is not None and self.reference.model is not self.model:
            models.append(self.reference.model)
        move(models, self.optimizer, device)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer, schedule and random states into `folder`."""
        self._writer.save(folder, self._snapshot())

    def begin_save(self, folder: Path) -> None:
        """Begin to write what `save` would; updates may follow at once.

        Takes as much host memory as this rank's share of weights and optimizer until it is written.
        """
        self._writer.begin(folder, self._snapshot())

    def finish_save(self) -> None:
        """Wait until what `begin_save` began is written."""
        self._writer.finish()

    def _snapshot(self) -> checkpoint.Snapshot:
        progress = {"num_updates": self.num_updates, "num_skipped": self._skipped.total}
        return checkpoint.Snapshot.of(
            self.model,
            self.optimizer,
            progress,
            reference=self._own_reference,
            adapters=self._adapters,
        )

    def checkpoint_bytes(self) -> CheckpointBytes:
        """What a checkpoint and an export take on the disk, over all ranks."""
        reference = self._own_reference
        frozen = {} if reference is None else reference.state()
        weights = self.model.state_dict()
        if self._adapters is not None:
            weights = adapters.own_state(self.model, adapters.POLICY)
        num_exported = adapters.num_base_weights(list(self.model.named_parameters()))
        return CheckpointBytes(
            weights=checkpoint.stored_bytes(weights.values(), self.world_size),
            training=checkpoint.optimizer_bytes(self.model, self.world_size)
            + checkpoint.stored_bytes(frozen.values(), self.world_size),
            export=num_exported * export.stored_dtype(self.family.config).itemsize,
        )

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote; the number of ranks may have changed.

        Raises:
            UserError: for adapters of another model or shape, or where whole weights are meant.
        """
        adapters.refuse_other(
            checkpoint.adapters_of(folder),
            self._adapters,
            folder=folder,
            model_path=self.model_path,
        )
        progress = checkpoint.load_rank(
            folder,
            self.model,
            self.optimizer,
            self.reference,
            adapters_alone=self._adapters is not None,
        )
        self.num_updates = progress["num_updates"]
        self._skipped.total = progress["num_skipped"]
        self._has_learned = True
        self._is_reference_initial = not progress["has_reference"]

    @property
    def _own_reference(self) -> Reference | None:
        """The reference where it is not the model that the run began with."""
        if self.reference is None or self._is_reference_initial:
            return None
        return self.reference

    def export(self, folder: Path, rollout: RolloutConfig | None = None) -> None:
        """Write a Hugging Face folder that transformers and vLLM load.

        Args:
            folder: an older one is replaced.
            rollout: how answers were sampled, which its generation config recommends; None for the
                policy as it is at the learner's temperature.
        """
        weights: dict[str, Tensor] = {}
        for name, value in self.gather_weights():
            if self.rank == 0:
                weights[name] = value.cpu()
        if self.rank == 0:
            sampling = export.sampling_settings(
                rollout or RolloutConfig(temperature=self.temperature),
                self.family.forbidden_token_ids,
            )
            dtype = export.stored_dtype(self.family.config)
            export.write_folder(
                folder, self.model.hf, weights, self.family.processor, dtype, sampling
            )
        checkpoint.wait_for_all()

    def _step(
        self,
        examples: Sequence[TrainExample],
        clips: ClipLoader,
        objective: Objective,
        tally: Tally,
        kl_coefficient: float,
    ) -> float | None:
        """One optimizer step; returns the norm of the gradient before clipping.

        None where no rank has an example, and nothing is done.
        """
        parts = parts_of(objective, self.algorithm, self.num_updates)
        scale = scale_of(parts, examples, self.algorithm.constant_length, self._sum)
        if scale is None:
            self._skipped.nothing_to_train_on()
            return None
        scale.count(tally)
        losses = Losses()
        activations = ActivationMeter()
        for number, batch in enumerate(self._batches(examples, clips)):
            with at_samples(batch.sample_ids):
                with activations.measure() if number == 0 else nullcontext():
                    scores, divergence_T = self._read(batch, objective)
                if objective == "sft":
                    loss_T = imitation(scores.logprobs)
                else:
                    loss_T = policy_loss(
                        scores,
                        divergence_T,
                        batch,
                        self.algorithm,
                        tally,
                        kl_coefficient=kl_coefficient,
                    )
                loss = weighted_sum(loss_T, scale.shares(batch))
                # FSDP averages gradients over ranks; the loss is a sum over them.
                (loss * self.world_size).backward()
                tally.add("loss", loss.detach())
                losses.add(loss, batch.sample_ids)
                tally.count(scores.entropy.detach(), batch)
                if batch.sample_ids:  # an idle forest does nothing worth counting
                    tally.add(
                        "flops", torch.tensor(self._flops.of_batch(batch), dtype=torch.float64)
                    )
        tally.add_max("activation_gb", torch.tensor([activations.num_bytes / 1e9]))
        grad_norm = clip_gradients(self.model.parameters(), self.optimizer_config.max_grad_norm)
        self._apply(grad_norm, losses)
        return grad_norm

    def _read(self, batch: Batch, objective: Objective) -> tuple[TokenScores, Tensor | None]:
        """Scores of the targets; and their divergence, where it is part of the loss."""
        reference = self.reference
        if reference is None or objective == "sft" or self.algorithm.kl.place is not KlPlace.loss:
            return self.model(batch), None
        scores: TokenScores = self.model(batch, reference.distribution(batch))
        return scores, reference.divergence(batch, scores)

    def _apply(self, grad_norm: float, losses: Losses) -> None:
        """The optimizer's step, unless a loss or the gradient is not finite."""
        loss = self._sum(losses.total()).item()
        if math.isfinite(grad_norm) and math.isfinite(loss):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(
                    self.optimizer_config, self.num_updates, self.total_updates
                )
            self.optimizer.step()
            self.num_updates += 1
            self._skipped.done()
        self.optimizer.zero_grad()
        if not math.isfinite(loss):
            self._skipped.not_finite(f"the loss is {loss}", losses.at_fault())
        elif not math.isfinite(grad_norm):
            self._skipped.not_finite(f"the norm of the gradient is {grad_norm}", [])

    def _metrics(self, tally: Tally, grad_norms: list[float]) -> dict[str, float]:
        sums, maxima = tally.reduce(self._sum, self._max)
        metrics = {
            "learner/lr": self.optimizer.param_groups[0]["lr"],
            "learner/refused_completions": sums["refused_completions"],
            "learner/skipped_updates": float(self._skipped.total),
            "learner/peak_memory_gb": maxima["peak_memory_gb"],
        }
        if not grad_norms:
            return metrics
        metrics["learner/loss"] = sums["loss"] / len(grad_norms)
        metrics["learner/tflops"] = sums["flops"] / 1e12
        if (peak := peak_tflops(self.device)) is not None:
            metrics["learner/peak_tflops"] = peak
        metrics["learner/grad_norm"] = sum(grad_norms) / len(grad_norms)
        return metrics | describe(sums, maxima)

    def _with_old_logprobs(
        self, examples: Sequence[TrainExample], clips: ClipLoader
    ) -> list[TrainExample]:
        """The examples with the log-probs of the weights before the first step."""
        logprobs = self._per_token(examples, clips, self._logprobs_of)
        return [
            replace(example, old_logprobs=values)
            for example, values in zip(examples, logprobs, strict=True)
        ]

    def _batches(self, examples: Sequence[TrainExample], clips: ClipLoader) -> Iterator[Batch]:
        return micro_batches(
            examples,
            clips,
            self.family,
            layout=self.config.layout,
            max_tokens=self.config.micro_batch_tokens,
            patch_tokens=self._patch_tokens,
            device=self.device,
        )

    def _sum(self, value: Tensor) -> Tensor:
        return sum_over_ranks(value, self.device)

    def _max(self, value: Tensor) -> Tensor:
        return max_over_ranks(value, self.device)
