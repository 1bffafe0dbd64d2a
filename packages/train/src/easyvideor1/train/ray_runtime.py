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
from easyvideor1.schema.records import Sample
from easyvideor1.train import preflight
from easyvideor1.train.actors import ActorFailedError, Actors, Call
from easyvideor1.train.config import MixingMode, TrainConfig
from easyvideor1.train.hand_over import HandOver
from easyvideor1.train.inputs import Inputs
from easyvideor1.train.interfaces import Learner, Runtime, Sampler
from easyvideor1.train.mixing import ReplaceSampler
from easyvideor1.train.placement import Placement, reserve
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
    with session, reserve(config) as placement:
        print(
            f"starting {config.rollout.engines} engine(s) and {config.learner.ranks} learner "
            f"rank(s) on {placement}; "
            f"logs in {folder.path / 'logs'}"
        )
        preflight.check_nodes(config, placement)
        engines, ranks = place(config, folder, placement)
        colocated = config.rollout.colocated
        starting_engines = [] if colocated else engines.begin_all("start", config)
        meeting = begin_meeting(ranks, config)
        # Loaded here while the processes above load theirs.
        from easyvideor1.preprocess.families import load_family

        family = load_family(config.model.path, trust_remote_code=config.model.trust_remote_code)
        with open_tracker(config, folder, start.position if start else None) as tracker:
            inputs = Inputs(config, family)
            runtime = assemble(
                config, folder, start, engines, ranks, tracker, inputs, train, validation
            )
            limit = config.rollout.start_timeout_s
            preflight.check_links(ranks.wait(meeting, "meet", timeout_s=limit))
            starting_ranks = ranks.begin_all("start", config)
            if colocated:
                # An engine measures the GPU's free memory to choose the size of its KV cache.
                ranks.wait(starting_ranks, "start", timeout_s=limit)
                starting_engines = engines.begin_all("start", config)
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


def place(config: TrainConfig, folder: RunFolder, placement: Placement) -> tuple[Actors, Actors]:
    """The actors of engines and ranks, each in its place."""
    import ray

    logs = folder.path / "logs"
    engines, ranks = [], []
    for index in range(config.rollout.engines):
        engine = ray.remote(EngineActor).options(**placement.options("engine", index))
        engines.append(engine.remote(logs / f"engine_{index}.log", index))
    for index in range(config.learner.ranks):
        rank = ray.remote(RankActor).options(**placement.options("rank", index))
        ranks.append(rank.remote(logs / f"rank_{index}.log", index))
    return Actors("engine", engines, logs=logs), Actors("learner", ranks, logs=logs)


def begin_meeting(ranks: Actors, config: TrainConfig) -> list[Call]:
    """Let all ranks meet at an address of rank 0."""
    loopback = config.ray.address is None
    limit = config.rollout.start_timeout_s
    ((host, port),) = ranks.each("address", [(0, (loopback,))], timeout_s=limit)
    return ranks.begin_all("meet", config, host, port)


def stop(engines: Actors) -> None:
    """End the engines' processes; one that is dead or hangs goes with its actor."""
    try:
        engines.all("stop", timeout_s=STOP_TIMEOUT_S)
    except ActorFailedError as error:
        # The run has ended, for a reason of its own or well; this must not hide it.
        print(error)
