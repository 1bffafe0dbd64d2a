"""A rank of the learner that fails when it reads its first clip; `python -m` it as `evr-train`.

How it fails is in the environment, which reaches the processes of a Ray of our own.
"""

import os
import signal
import time

from easyvideor1.preprocess.clip import Clip
from easyvideor1.schema.records import Sample
from easyvideor1.train import cli, inputs, processes
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.ray_learner import RankActor
from easyvideor1.train.token_tree import ClipLoader

FAULT = "EVR_TEST_FAULT"
"""Environment variable: `raise`, `die` or `hang`."""
FAULTY = 1
"""The rank that fails."""


class FaultyClips:
    """A clip store that fails."""

    def __init__(self, store: ClipLoader):
        self._store = store

    def load(self, sample: Sample) -> list[Clip]:
        match os.environ[FAULT]:
            case "raise":
                raise OSError(5, "the disk is gone")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(3_600)
        return self._store.load(sample)


class FaultyRank(RankActor):
    """Works until it is to read a clip."""

    def start(self, config: TrainConfig) -> None:
        if self._rank == FAULTY:
            open_store = inputs.open_store
            # In this process alone, which is the rank's.
            inputs.open_store = lambda *args, **kwargs: FaultyClips(open_store(*args, **kwargs))  # type: ignore[assignment]
        super().start(config)


if __name__ == "__main__":
    from tests.train import faulty_rank

    # The class by its importable name, which Ray's workers know it by.
    processes.RankActor = faulty_rank.FaultyRank  # type: ignore[misc]
    cli.main()
