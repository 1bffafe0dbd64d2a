"""The run as processes: a Ray of our own or one to join, engines, ranks, and the loop's `Runtime`.

Everything that was started is ended when the context is left, however it is left; a further run in
the same process (a sweep) starts afresh. Called by `cli`.
"""

import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Sample
from easyvideor1.train.actors import ActorFailedError, Actors
from easyvideor1.train.config import MixingMode, TrainConfig
from easyvideor1.train.hand_over import HandOver
from easyvideor1.train.inputs import Inputs
from easyvideor1.train.interfaces import Learner, Runtime, Sampler
from easyvideor1.train.mixing import ReplaceSampler
from easyvideor1.train.publishing import weight_transfer
from easyvideor1.train.ray_learner import RankActor, RayLearner
from easyvideor1.train.rollout import EngineActor, RaySampler
from easyvideor1.train.run_folder import Checkpoint, Checkpointer, RunFolder
from easyvideor1.train.scorer import score_completions
from easyvideor1.train.tracking import RunTracker, open_tracker

STOP_TIMEOUT_S = 30.0  # an engine that does not stop by then is killed with its actor


@contextmanager
def open_runtime(
    config: TrainConfig,
    folder: RunFolder,
    start: Checkpoint | None,
    *,
    train: Sequence[Sample],
    validation: Sequence[Sample],
) -> Generator[Runtime]:
    """Start all processes of a run, and end them.

    Args:
        config: of the run.
        folder: of the run.
        start: checkpoint to continue from.
        train: samples to train on.
        validation: held-out samples.
    """
    session = ray_session(
        config.ray,
        num_cpus=len(os.sched_getaffinity(0)),
        num_gpus=None if environment.has_nvidia_gpu() else 0,
        object_store_bytes=config.ray.object_store_mb * 1024**2,
    )
    began = time.monotonic()
    print(
        f"starting {config.rollout.engines} engine(s) and {config.learner.ranks} learner rank(s); "
        f"logs in {folder.path / 'logs'}"
    )
    with session:
        engines, ranks = place(config, folder)
        limit = config.rollout.start_timeout_s
        starting_ranks = begin_ranks(ranks, config)
        if config.rollout.colocated:
            # An engine measures the GPU's free memory to choose the size of its KV cache.
            ranks.wait(starting_ranks, "start", timeout_s=limit)
        starting_engines = engines.begin_all("start", config)
        # Loaded here while the processes above load theirs.
        from easyvideor1.preprocess.families import load_family

        family = load_family(config.model.path, trust_remote_code=config.model.trust_remote_code)
        with open_tracker(config, folder, start.position if start else None) as tracker:
            inputs = Inputs(config, family)
            runtime = assemble(
                config, folder, start, engines, ranks, tracker, inputs, train, validation
            )
            engines.wait(starting_engines, "start", timeout_s=limit)
            ranks.wait(starting_ranks, "start", timeout_s=limit)
            print(f"ready after {time.monotonic() - began:.0f} s")
            try:
                yield runtime
            finally:
                stop(engines)


def assemble(
    config: TrainConfig,
    folder: RunFolder,
    start: Checkpoint | None,
    engines: Actors,
    ranks: Actors,
    tracker: RunTracker,
    inputs: Inputs,
    train: Sequence[Sample],
    validation: Sequence[Sample],
) -> Runtime:
    """The parts of a run as the loop takes them; calls no actor."""
    rollouts = RaySampler(engines, config.rollout, seed=config.seed)
    sampler: Sampler = rollouts
    if config.mixing.mode is MixingMode.replace:
        sampler = ReplaceSampler(sampler, inputs.reader, seed=config.seed)
    rank_learner = RayLearner(ranks, weight_transfer(config, ranks), config)
    learner: Learner = (
        HandOver(rank_learner, rollouts) if config.rollout.colocated else rank_learner
    )
    data, warm_start = inputs.training(train), inputs.warm_start(train)
    stateful: dict[str, Any] = {"data": data, "offline": inputs.reader}
    if warm_start is not None:
        stateful["warm_start"] = warm_start
    return Runtime(
        data=data,
        sampler=sampler,
        learner=learner,
        score=lambda answers: score_completions(answers, config.reward),
        checkpoints=Checkpointer(
            config,
            folder,
            start,
            learner=learner,
            stateful=stateful,
            on_sealed=lambda path: tracker.note("checkpoint", str(path)),
        ),
        tracker=tracker,
        warm_start=None if warm_start is None else (warm_start, inputs.reader),
        validation=inputs.validation(validation),
    )


def place(config: TrainConfig, folder: RunFolder) -> tuple[Actors, Actors]:
    """The actors of engines and ranks, with their GPUs. They use cores without reserving them."""
    import ray

    engine_gpus, rank_gpus = gpu_shares(config)
    num_engines, num_ranks = config.rollout.engines, config.learner.ranks
    bundles: list[Any] = [None] * max(num_engines, num_ranks)
    if config.rollout.colocated and engine_gpus + rank_gpus > 0:
        bundles = gpu_per_pair(num_ranks, config.rollout.start_timeout_s)
    logs = folder.path / "logs"
    engines, ranks = [], []
    for index in range(num_engines):
        options = {"num_cpus": 0, "num_gpus": engine_gpus, "scheduling_strategy": bundles[index]}
        engine = ray.remote(EngineActor).options(**options)
        engines.append(engine.remote(logs / f"engine_{index}.log", index))
    for index in range(num_ranks):
        options = {"num_cpus": 0, "num_gpus": rank_gpus, "scheduling_strategy": bundles[index]}
        rank = ray.remote(RankActor).options(**options)
        ranks.append(rank.remote(logs / f"rank_{index}.log", index))
    return Actors("engine", engines, logs=logs), Actors("learner", ranks, logs=logs)


def gpu_shares(config: TrainConfig) -> tuple[float, float]:
    """GPUs that an engine and a rank reserve."""
    engine_gpus, rank_gpus = config.ray.engine_gpus, config.ray.rank_gpus
    has_gpu, colocated = environment.has_nvidia_gpu(), config.rollout.colocated
    if engine_gpus is None:
        engine_gpus = config.rollout.engine.tensor_parallel_size * (0.5 if colocated else 1)
        engine_gpus = engine_gpus if has_gpu else 0
    if rank_gpus is None:
        rank_gpus = (0.5 if colocated else 1) if has_gpu else 0
    return engine_gpus, rank_gpus


def gpu_per_pair(num_pairs: int, timeout_s: float) -> list[Any]:
    """Where the engine and the rank of each pair find the same GPU.

    Fractions alone would not do: Ray may put two engines on one GPU and two ranks on the other.

    Raises:
        UserError: if there are fewer GPUs.
    """
    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    gpus = ray.cluster_resources().get("GPU", 0)
    if gpus < num_pairs:
        raise UserError(
            f"rollout.colocated=true with learner.ranks={num_pairs} needs as many GPUs, but Ray "
            f"has {gpus:g}; lower learner.ranks and rollout.engines"
        )
    group = placement_group([{"GPU": 1}] * num_pairs)
    ray.get(group.ready(), timeout=timeout_s)
    return [
        PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        for index in range(num_pairs)
    ]


def begin_ranks(ranks: Actors, config: TrainConfig) -> list[Any]:
    """Start every rank, all with the address of rank 0."""
    loopback = config.ray.address is None
    limit = config.rollout.start_timeout_s
    ((host, port),) = ranks.each("address", [(0, (loopback,))], timeout_s=limit)
    return ranks.begin_all("start", config, host, port)


def stop(engines: Actors) -> None:
    """End the engines' processes; one that is dead or hangs goes with its actor."""
    try:
        engines.all("stop", timeout_s=STOP_TIMEOUT_S)
    except ActorFailedError as error:
        # The run has ended, for a reason of its own or well; this must not hide it.
        print(error)
