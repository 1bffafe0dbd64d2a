"""Engines and learner that take turns on the same GPUs.

A cycle, with a reading of the memory at each arrow:
rollout → sleep → onload → update → offload → wake weights → publish → wake KV cache → rollout.
On a CPU sleeping and moving change nothing and the same calls are made. Not run on a GPU yet.
"""

from collections.abc import Sequence
from pathlib import Path

from easyvideor1.schema import environment
from easyvideor1.train.interfaces import CheckpointBytes, Objective, Sampler, TrainExample
from easyvideor1.train.ray_learner import RayLearner
from easyvideor1.train.rollout import RaySampler


class HandOver:
    """`interfaces.Learner` around one whose memory is the engines' between updates."""

    def __init__(self, learner: RayLearner, engines: RaySampler):
        self._learner = learner
        self._engines = engines
        self._is_learners_turn = False

    def divergences(self, examples: Sequence[TrainExample]) -> list[list[float] | None]:
        """Asked before an update, in the same turn of the learner."""
        self._take_turn()
        return self._learner.divergences(examples)

    def update(
        self,
        examples: Sequence[TrainExample],
        objective: Objective = "policy",
        *,
        kl_coefficient: float = 0.0,
    ) -> dict[str, float]:
        """First half of the cycle. Several updates in a row are one turn of the learner."""
        self._take_turn()
        learned = self._learner.update(examples, objective, kl_coefficient=kl_coefficient)
        self._read("update")
        return learned

    def take_refused(self) -> dict[str, str]:
        """See `Learner`; asks for nothing on a GPU."""
        return self._learner.take_refused()

    def _take_turn(self) -> None:
        if self._is_learners_turn:
            return
        self._read("rollout")
        # The weights go too: a copy in host memory would be overwritten by the next publish.
        self._engines.sleep()
        self._read("sleep")
        self._learner.onload()
        self._read("onload")
        self._is_learners_turn = True

    def publish(self, sampler: Sampler) -> None:
        """Second half of the cycle, or new weights for engines that are awake."""
        if not self._is_learners_turn:
            self._learner.publish(sampler)
            return
        self._learner.offload()
        self._read("offload")
        self._engines.wake("weights")
        self._read("wake_weights")
        # In buckets, each freed before the next: beside weights and KV cache there is no room for
        # a second copy of the weights.
        self._learner.publish(sampler)
        self._read("publish")
        self._engines.wake("kv_cache")
        self._read("wake_kv_cache")
        self._is_learners_turn = False

    def begin(self, objective: Objective) -> None:
        """A fresh optimizer and schedule."""
        self._learner.begin(objective)

    def save(self, folder: Path) -> None:
        """Write a checkpoint, from wherever the weights are."""
        self._learner.save(folder)

    def begin_save(self, folder: Path) -> None:
        """Begin to write one, from wherever the weights are; they may move meanwhile."""
        self._learner.begin_save(folder)

    def finish_save(self, timeout_s: float | None = None) -> None:
        """Wait until it is written."""
        self._learner.finish_save(timeout_s)

    def checkpoint_bytes(self) -> CheckpointBytes:
        """What a checkpoint takes on the disk."""
        return self._learner.checkpoint_bytes()

    def load(self, folder: Path) -> None:
        """Restore a checkpoint, to wherever the weights are."""
        self._learner.load(folder)

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder."""
        self._learner.export(folder)

    def _read(self, arrow: str) -> None:
        """A GPU's memory is read once, that of processes on a CPU adds up."""
        if environment.has_nvidia_gpu():
            used = max(self._learner.memory_bytes())
        else:
            used = sum(self._learner.memory_bytes()) + sum(self._engines.memory_bytes())
        self._engines.readings[f"hand_over/{arrow}_gb"] = used / 1e9
