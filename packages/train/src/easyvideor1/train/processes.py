"""The processes of a run: a Ray of our own or one to join, its engines and its learner's ranks.

Everything that was started is ended when the context is left, however it is left; a further run in
the same process (a sweep) starts afresh. Called by `ray_runtime` and by the conformance command.
"""

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.schema import environment
from easyvideor1.train import preflight
from easyvideor1.train.actors import ActorFailedError, Actors, Call
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.placement import Placement, reserve
from easyvideor1.train.ray_learner import RankActor
from easyvideor1.train.recovery import Recovery
from easyvideor1.train.rollout import EngineActor

STOP_TIMEOUT_S = 30.0  # an engine that does not stop by then is killed with its actor


class Processes:
    """Engines and ranks that are starting; what a caller does before `await_start` costs no time.

    Args:
        config: of the run.
        logs: folder for what they print.
        placement: their places.
    """

    def __init__(self, config: TrainConfig, logs: Path, placement: Placement):
        engines, ranks = place(config, logs, placement)
        self.engines, self.ranks = engines, ranks
        self.recovery = Recovery(engines, lambda index: new_engine(logs, placement, index), config)
        self._config = config
        self._began = time.monotonic()
        # Colocated, an engine measures the GPU's free memory to choose the size of its KV cache.
        self._ranks_first = config.rollout.colocated
        self._engines_start = [] if self._ranks_first else engines.begin_all("start", config)
        self._meeting = begin_meeting(ranks, config)
        self._have_started = False

    def await_start(self) -> None:
        """Wait until all have loaded their models."""
        limit = self._config.rollout.start_timeout_s
        preflight.check_links(self.ranks.wait(self._meeting, "meet", timeout_s=limit))
        ranks_start = self.ranks.begin_all("start", self._config)
        if self._ranks_first:
            self.ranks.wait(ranks_start, "start", timeout_s=limit)
            self._engines_start = self.engines.begin_all("start", self._config)
        self.engines.wait(self._engines_start, "start", timeout_s=limit)
        self.ranks.wait(ranks_start, "start", timeout_s=limit)
        self._have_started = True
        print(f"ready after {time.monotonic() - self._began:.0f} s")

    def stop(self) -> None:
        """End the engines' own processes; one that is dead or hangs goes with its actor."""
        if not self._have_started:
            return
        try:
            self.engines.all("stop", timeout_s=STOP_TIMEOUT_S)
        except ActorFailedError as error:
            # The run has ended, for a reason of its own or well; this must not hide it.
            print(error)


@contextmanager
def open_processes(config: TrainConfig, logs: Path) -> Generator[Processes]:
    """Begin to start all processes of a run, and end them.

    Args:
        config: of the run.
        logs: folder for what they print.
    """
    session = ray_session(
        config.ray,
        num_cpus=len(os.sched_getaffinity(0)),
        num_gpus=None if environment.has_nvidia_gpu() else 0,
        object_store_bytes=config.ray.object_store_mb * 1024**2,
    )
    with session, reserve(config) as placement:
        print(
            f"starting {config.rollout.engines} engine(s) and {config.learner.ranks} learner "
            f"rank(s) on {placement}; logs in {logs}"
        )
        preflight.check_nodes(config, placement)
        processes = Processes(config, logs, placement)
        try:
            yield processes
        finally:
            processes.stop()


def place(config: TrainConfig, logs: Path, placement: Placement) -> tuple[Actors, Actors]:
    """The actors of engines and ranks, each in its place."""
    import ray

    engines = [new_engine(logs, placement, index) for index in range(config.rollout.engines)]
    ranks = []
    for index in range(config.learner.ranks):
        rank = ray.remote(RankActor).options(**placement.options("rank", index))
        ranks.append(rank.remote(logs / f"rank_{index}.log", index))
    return Actors("engine", engines, logs=logs), Actors("learner", ranks, logs=logs)


def new_engine(logs: Path, placement: Placement, index: int) -> Any:
    """An actor for an engine, in its place."""
    import ray

    engine = ray.remote(EngineActor).options(**placement.options("engine", index))
    return engine.remote(logs / f"engine_{index}.log", index)


def begin_meeting(ranks: Actors, config: TrainConfig) -> list[Call]:
    """Let all ranks meet at an address of rank 0."""
    loopback = config.ray.address is None
    limit = config.rollout.start_timeout_s
    ((host, port),) = ranks.each("address", [(0, (loopback,))], timeout_s=limit)
    return ranks.begin_all("meet", config, host, port)
