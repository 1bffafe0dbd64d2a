"""The learner over Ray: one actor per rank, joined in a process group, behind one object."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.train.actors import Actors, log_to
from easyvideor1.train.balance import CostModel, divide, divide_steps
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.direct_transfer import DirectSender, DirectSetup
from easyvideor1.train.failures import on_rank
from easyvideor1.train.interfaces import CheckpointBytes, Objective, Sampler, TrainExample
from easyvideor1.train.memory import used_bytes
from easyvideor1.train.metrics import CacheMetrics
from easyvideor1.train.network import free_port, interface_of
from easyvideor1.train.preflight import LinkFacts, measure_link
from easyvideor1.train.publishing import WeightTransfer

if TYPE_CHECKING:
    from easyvideor1.evaluate.weight_buckets import WeightBucket
    from easyvideor1.preprocess.store import LoadCounts


class RankActor:
    """One rank of the learner, in a process of its own."""

    def __init__(self, log: Path, rank: int):
        log_to(log)
        self._rank = rank
        self._buckets: Iterator[WeightBucket] | None = None
        self._sender: DirectSender | None = None

    def address(self, loopback: bool) -> tuple[str, int]:
        """Host and free port where the ranks can meet; asked of rank 0."""
        import ray

        host = "127.0.0.1" if loopback else ray.util.get_node_ip_address()
        return host, free_port(host)

    def meet(self, config: TrainConfig, host: str, port: int) -> LinkFacts | None:
        """Meet the other ranks; returns how fast they exchange tensors, None for a single one."""
        import ray
        import torch

        from easyvideor1.train.sharding import default_device, join_process_group

        own = "127.0.0.1" if host == "127.0.0.1" else ray.util.get_node_ip_address()
        if interface := interface_of(own):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        num_ranks = config.learner.ranks
        if num_ranks > 1 or torch.cuda.is_available():
            join_process_group(
                rank=self._rank,
                world_size=num_ranks,
                host=host,
                port=port,
                timeout_s=config.learner.process_group_timeout_s,
            )
        return measure_link(default_device())

    def start(self, config: TrainConfig) -> None:
        """Load this rank's share of the model; after all have met."""
        import torch

        from easyvideor1.preprocess.families import family_of
        from easyvideor1.train.inputs import open_store
        from easyvideor1.train.learner import RankLearner

        # The same on every rank and in every run; a checkpoint restores what was reached.
        torch.manual_seed(config.seed)
        model, algorithm = config.model, config.algorithm
        family = family_of(config.model)
        longest = algorithm.constant_length or config.rollout.max_new_tokens
        self._config = config
        self._store = open_store(config, family, validation=False)
        self._learner = RankLearner(
            config=config.learner,
            algorithm=replace(algorithm, constant_length=longest),
            model_path=model.path,
            family=family,
            clip_store=self._store,
            temperature=config.rollout.temperature,
            dtype=model.dtype,
            trust_remote_code=model.trust_remote_code,
        )
        if config.rollout.colocated:
            self._learner.offload()

    def begin(self, objective: Objective) -> None:
        """A fresh optimizer and schedule for one phase."""
        train = self._config.train
        if objective == "sft":
            self._learner.begin(train.warm_start.optimizer, train.warm_start.steps)
        else:
            learner = self._config.learner
            self._learner.begin(learner.optimizer, train.steps * learner.updates_per_rollout)

    def update(
        self,
        examples: list[TrainExample],
        objective: Objective,
        kl_coefficient: float,
        cuts: list[int],
    ) -> dict[str, float]:
        """This rank's part of an update."""
        with on_rank(self._rank):
            return self._learner.update(
                examples, objective, kl_coefficient=kl_coefficient, cuts=cuts
            )

    def take_refused(self) -> dict[str, str]:
        """See `RankLearner.take_refused`."""
        return self._learner.take_refused()

    def cost_model(self) -> CostModel:
        """What an update costs."""
        return self._learner.cost_model

    def logprobs(self, examples: list[TrainExample]) -> list[list[float]]:
        """See `RankLearner.logprobs`; of this rank's share."""
        return self._learner.logprobs(examples)

    def divergences(self, examples: list[TrainExample]) -> list[list[float] | None]:
        """See `RankLearner.divergences`; of this rank's share."""
        with on_rank(self._rank):
            return self._learner.divergences(examples)

    def load_counts(self) -> "LoadCounts":
        """Clips loaded so far, and where they came from."""
        return self._store.counts

    def frozen(self) -> tuple[str, ...]:
        """Name prefixes of the parts that never change."""
        return self._learner.frozen_prefixes

    def next_bucket(
        self, max_bytes: int, skip: tuple[str, ...], first: bool
    ) -> "WeightBucket | None":
        """The next part of the weights, in shared memory of rank 0; None after the last.

        The other ranks help to gather them and return empty ones. A bucket is valid until the next
        call. The first of a publish forgets what is left of one that was not finished.
        """
        from easyvideor1.evaluate.weight_buckets import write_buckets

        if first or self._buckets is None:
            weights = self._learner.gather_weights(skip)
            self._buckets = write_buckets(weights, max_bytes=max_bytes, write=self._rank == 0)
        bucket = next(self._buckets, None)
        if bucket is None:
            self._buckets = None
        return bucket

    def send_weights(
        self,
        setup: DirectSetup,
        meeting: tuple[str, int],
        engines: list[Any],
        everything: bool,
    ) -> None:
        """This rank's part in a publish from GPU to GPU."""
        if self._sender is None:
            self._sender = DirectSender(self._learner, setup, meeting, engines)
        self._sender.send(everything=everything)

    def offload(self) -> None:
        """Give GPU memory away."""
        self._learner.offload()

    def onload(self) -> None:
        """Take it back."""
        self._learner.onload()

    def memory_bytes(self) -> int:
        """Memory in use, see `memory.used_bytes`."""
        return used_bytes()

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint."""
        self._learner.save(folder)

    def begin_save(self, folder: Path) -> None:
        """Begin to write it while training goes on."""
        self._learner.begin_save(folder)

    def finish_save(self) -> None:
        """Wait until it is written."""
        self._learner.finish_save()

    def checkpoint_bytes(self) -> CheckpointBytes:
        """What the parts of all ranks take on the disk."""
        return self._learner.checkpoint_bytes()

    def load(self, folder: Path) -> None:
        """Restore this rank's part of a checkpoint."""
        self._learner.load(folder)

    def export(self, folder: Path) -> None:
        """Write the whole model as a Hugging Face folder."""
        self._learner.export(folder, self._config.rollout)


class RayLearner:
    """`interfaces.Learner` over rank actors."""

    def __init__(self, ranks: Actors, transfer: WeightTransfer, config: TrainConfig):
        self._ranks = ranks
        self._transfer = transfer
        self._timeout_s = config.learner.timeout_s
        self._updates_per_rollout = config.learner.updates_per_rollout
        self._version = 0
        # Engines that have slept hold nothing.
        self._always_everything = config.rollout.colocated
        self._engines_have_frozen_parts = False
        self._cost_model: CostModel | None = None
        peak = config.tracking.peak_tflops
        self._peak = {} if peak is None else {"learner/peak_tflops": peak}
        self._cache_metrics = CacheMetrics("learner")

    def begin(self, objective: Objective) -> None:
        """A fresh optimizer and schedule on every rank."""
        self._ranks.all("begin", objective, timeout_s=self._timeout_s)

    def update(
        self,
        examples: Sequence[TrainExample],
        objective: Objective = "policy",
        *,
        kl_coefficient: float = 0.0,
    ) -> dict[str, float]:
        """One update on all ranks together, divided by what the examples cost.

        The examples of each of its optimizer steps are the same, however many ranks there are. Its
        metrics say as well how even the division is, and how often frames came from the cache.
        """
        num_steps = self._updates_per_rollout if objective == "policy" else 1
        division = divide_steps(examples, num_steps, len(self._ranks), self._cost())
        calls = [
            (rank, (division.share(rank), objective, kl_coefficient, division.cuts(rank)))
            for rank in range(len(self._ranks))
        ]
        learned = self._ranks.each("update", calls, timeout_s=self._timeout_s)[0]
        counts = self._ranks.all("load_counts", timeout_s=self._timeout_s)
        balance = {"learner/makespan_over_mean": division.makespan_over_mean}
        return learned | self._peak | balance | self._cache_metrics.since_last(counts)

    def take_refused(self) -> dict[str, str]:
        """By id, the samples whose media updates could not have since the last call, and why."""
        refused: dict[str, str] = {}
        for of_rank in self._ranks.all("take_refused", timeout_s=self._timeout_s):
            refused |= of_rank
        return refused

    def logprobs(self, examples: Sequence[TrainExample]) -> list[list[float]]:
        """Log-probs of each completion's tokens under the current weights."""
        return self._of_each("logprobs", examples)

    def divergences(self, examples: Sequence[TrainExample]) -> list[list[float] | None]:
        """Per example [L] KL of the current policy from the reference; None where refused."""
        return self._of_each("divergences", examples)

    def _of_each(self, method: str, examples: Sequence[TrainExample]) -> list[Any]:
        """What the ranks say together about each example, in their order."""
        division = divide(examples, len(self._ranks), self._cost())
        calls = [(rank, (share,)) for rank, share in enumerate(division.shares)]
        found = self._ranks.each(method, calls, timeout_s=self._timeout_s)
        values: dict[int, Any] = {}
        for indices, share in zip(division.indices, found, strict=True):
            values |= zip(indices, share, strict=True)
        return [values[index] for index in range(len(examples))]

    def _cost(self) -> CostModel:
        if self._cost_model is None:
            (self._cost_model,) = self._ranks.each(
                "cost_model", [(0, ())], timeout_s=self._timeout_s
            )
        return self._cost_model

    def publish(self, sampler: Sampler) -> None:
        """Hand the current weights to every engine, under the next version."""
        self._version += 1
        everything = self._always_everything or not self._engines_have_frozen_parts

        def send(engines: Actors, *, are_new: bool = False) -> None:
            self._transfer.send(engines, everything=everything or are_new)

        sampler.publish(send, self._version)
        self._engines_have_frozen_parts = True

    def offload(self) -> None:
        """Give the GPUs' memory away, on every rank."""
        self._ranks.all("offload", timeout_s=self._timeout_s)

    def onload(self) -> None:
        """Take it back, on every rank."""
        self._ranks.all("onload", timeout_s=self._timeout_s)

    def memory_bytes(self) -> list[int]:
        """Memory in use as each rank sees it."""
        return self._ranks.all("memory_bytes", timeout_s=self._timeout_s)

    def save(self, folder: Path) -> None:
        """Every rank writes its part."""
        self._ranks.all("save", folder, timeout_s=self._timeout_s)

    def begin_save(self, folder: Path) -> None:
        """Every rank begins to write its part."""
        self._ranks.all("begin_save", folder, timeout_s=self._timeout_s)

    def finish_save(self, timeout_s: float | None = None) -> None:
        """Wait for every rank."""
        self._ranks.all("finish_save", timeout_s=timeout_s or self._timeout_s)

    def checkpoint_bytes(self) -> CheckpointBytes:
        """What a checkpoint takes on the disk, as rank 0 computes it for all."""
        (sizes,) = self._ranks.each("checkpoint_bytes", [(0, ())], timeout_s=self._timeout_s)
        return sizes

    def load(self, folder: Path) -> None:
        """Every rank restores its part."""
        # A checkpoint may be that of a run which trained what this one freezes.
        self._engines_have_frozen_parts = False
        self._ranks.all("load", folder, timeout_s=self._timeout_s)

    def export(self, folder: Path) -> None:
        """The whole model as a Hugging Face folder."""
        self._ranks.all("export", folder, timeout_s=self._timeout_s)
