"""The loop's `Runtime` over a run's processes: samplers, learner, streams, checkpoints, tracker.

A further run in the same process (a sweep) starts afresh. Called by `cli`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from easyvideor1.schema.records import Sample
from easyvideor1.train.advantages import AdvantageEstimator
from easyvideor1.train.checkpointer import Checkpointer
from easyvideor1.train.config import MixingMode, TrainConfig
from easyvideor1.train.hand_over import HandOver
from easyvideor1.train.inputs import Inputs, open_store
from easyvideor1.train.interfaces import Learner, Runtime, Sampler
from easyvideor1.train.kl_penalty import KlPenalty
from easyvideor1.train.live_benchmarks import LiveBenchmarks
from easyvideor1.train.mixing import MixedSampler, OfflineGate
from easyvideor1.train.processes import Processes, open_processes
from easyvideor1.train.publishing import weight_transfer
from easyvideor1.train.ray_learner import RayLearner
from easyvideor1.train.rollout import RaySampler
from easyvideor1.train.run_folder import Checkpoint, RunFolder
from easyvideor1.train.scorer import score_completions
from easyvideor1.train.stopping import Stop
from easyvideor1.train.tracking import RunTracker, open_tracker


@contextmanager
def open_runtime(
    config: TrainConfig,
    folder: RunFolder,
    start: Checkpoint | None,
    *,
    train: Sequence[Sample],
    validation: Sequence[Sample],
    benchmarks: LiveBenchmarks | None = None,
) -> Generator[Runtime]:
    """Start all processes of a run, and end them.

    Args:
        config: of the run.
        folder: of the run.
        start: checkpoint to continue from.
        train: samples to train on.
        validation: held-out samples.
        benchmarks: to validate with besides; None for none.
    """
    with open_processes(config, folder.path / "logs") as processes:
        # Loaded here while the processes load theirs.
        from easyvideor1.preprocess.families import family_of

        family = family_of(config.model)
        inputs = Inputs(config, family)
        load = open_store(config, family, validation=False).load
        with open_tracker(config, folder, start, load) as tracker:
            runtime = assemble(
                config, folder, start, processes, tracker, inputs, train, validation, benchmarks
            )
            processes.await_start()
            try:
                yield runtime
            finally:
                runtime.checkpoints.close()


def assemble(
    config: TrainConfig,
    folder: RunFolder,
    start: Checkpoint | None,
    processes: Processes,
    tracker: RunTracker,
    inputs: Inputs,
    train: Sequence[Sample],
    validation: Sequence[Sample],
    benchmarks: LiveBenchmarks | None,
) -> Runtime:
    """The parts of a run as the loop takes them; calls no actor."""
    stop = Stop()
    rollouts = RaySampler(
        processes.engines, config.rollout, seed=config.seed, recovery=processes.recovery, stop=stop
    )
    sampler: Sampler = rollouts
    if config.mixing.mode in (MixingMode.replace, MixingMode.append):
        sampler = MixedSampler(sampler, inputs.reader, config.mixing, seed=config.seed)
    gate = None
    if config.mixing.mode is MixingMode.gated:
        gate = OfflineGate(inputs.reader, config.mixing, seed=config.seed)
    rank_learner = RayLearner(processes.ranks, weight_transfer(config, processes.ranks), config)
    learner: Learner = (
        HandOver(rank_learner, rollouts) if config.rollout.colocated else rank_learner
    )
    data, warm_start = inputs.training(train), inputs.warm_start(train)
    advantages = AdvantageEstimator(config.algorithm.advantage, config.algorithm.offline)
    kl = KlPenalty(config.algorithm.kl)
    stateful: dict[str, Any] = {
        "data": data,
        "offline": inputs.reader,
        "advantages": advantages,
        "kl": kl,
    }
    if warm_start is not None:
        stateful["warm_start"] = warm_start
    prompts = inputs.validation(validation)
    default = "accuracy" if prompts or benchmarks is None else benchmarks.names[0]
    return Runtime(
        data=data,
        sampler=sampler,
        learner=learner,
        score=lambda answers: score_completions(answers, config.reward),
        advantages=advantages,
        kl=kl,
        checkpoints=Checkpointer(
            config,
            folder,
            start,
            learner=learner,
            stateful=stateful,
            on_sealed=lambda path: tracker.note("checkpoint", str(path)),
            tracking=tracker.identity,
        ),
        tracker=tracker,
        gate=gate,
        warm_start=None if warm_start is None else (warm_start, inputs.reader),
        validation=prompts,
        benchmarks=None if benchmarks is None else partial(benchmarks.run, rollouts),
        best_by=config.validation.best_by or default,
        stop=stop,
    )
