"""Two ranks of a learner as Ray actors, met and started, for tests of what they do together."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from easyvideor1.preprocess.config import RayConfig
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.train.actors import Actors
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.publishing import weight_transfer
from easyvideor1.train.ray_learner import RankActor, RayLearner


@contextmanager
def learner_on_two_ranks(
    actor: type[RankActor], config: TrainConfig, logs: Path
) -> Generator[RayLearner]:
    """A learner in a Ray of its own, which ends with the block."""
    import ray

    with ray_session(RayConfig(), num_cpus=2):
        remote = ray.remote(actor).options(num_cpus=0)
        handles = [remote.remote(logs / f"rank_{rank}.log", rank) for rank in (0, 1)]
        ranks = Actors("learner", handles, logs=logs)
        ((host, port),) = ranks.each("address", [(0, (True,))], timeout_s=120)
        links = ranks.all("meet", config, host, port, timeout_s=120)
        assert all(link.backend == "gloo" and link.bus_gb_s > 0 for link in links)
        ranks.all("start", config, timeout_s=120)
        yield RayLearner(ranks, weight_transfer(config, ranks), config)
