"""Engines that die are started anew, so many times, and the run goes on.

Where they read the weights from shared memory: a transfer between GPUs is a group that all of its
members join once, so there an engine's death ends the run, which the same command continues.
"""

from collections.abc import Callable, Sequence
from typing import Any

from easyvideor1.train.actors import ActorDiedError, ActorFailedError, Actors
from easyvideor1.train.config import TrainConfig, WeightTransferName
from easyvideor1.train.publishing import chosen_transfer


class Recovery:
    """Puts new engines in the place of dead ones.

    Args:
        engines: of the run.
        make: a new actor for an engine's place, by its index.
        config: of the run.
    """

    def __init__(self, engines: Actors, make: Callable[[int], Any], config: TrainConfig):
        self.num_restarts = 0
        self._engines = engines
        self._make = make
        self._config = config
        self._limit = config.rollout.max_engine_restarts if is_possible(config) else 0

    def restart(self, indices: Sequence[int], death: ActorDiedError) -> Actors:
        """Start these engines anew; they have the weights of the checkpoint on the disk.

        Raises:
            ActorDiedError: a new one died at its start.
            ActorFailedError: there were too many deaths.
        """
        import ray

        if self.num_restarts + len(indices) > self._limit:
            raise ActorFailedError(f"{death}; {self._why_not()}") from death
        self.num_restarts += len(indices)
        print(f"{death}; starting it anew ({self.num_restarts} of {self._limit} times)")
        for index in indices:
            ray.kill(self._engines.handles[index])
            self._engines.replace(index, self._make(index))
        new = self._engines.subset(indices)
        new.all("start", self._config, timeout_s=self._config.rollout.start_timeout_s)
        return new

    def _why_not(self) -> str:
        if not is_possible(self._config):
            return "with this rollout.weight_transfer no engine is started anew within a run"
        return f"rollout.max_engine_restarts={self._limit} is reached"


def is_possible(config: TrainConfig) -> bool:
    """Whether an engine can be replaced while the run goes on."""
    through_memory = chosen_transfer(config) is WeightTransferName.shared_memory
    return through_memory and not config.rollout.colocated
