"""How new weights travel from the learner's ranks into running engines.

Each way is a `WeightTransfer`; the requests in flight, the caches and the version around it are the
sampler's. Through shared memory the driver passes bucket after bucket; on GPUs vLLM's own transfers
run between ranks and engines (`direct_transfer`). The ways between GPUs have not been run yet.
"""

from typing import TYPE_CHECKING, Protocol

from easyvideor1.schema import environment
from easyvideor1.train.actors import Actors
from easyvideor1.train.config import TrainConfig, WeightTransferName
from easyvideor1.train.direct_transfer import DirectSetup

if TYPE_CHECKING:
    from easyvideor1.evaluate.weight_buckets import WeightBucket

ENGINE_BACKENDS = {
    WeightTransferName.shared_memory: "evr_shared_memory",
    WeightTransferName.ipc: "evr_ipc",
    WeightTransferName.nccl: "nccl",
}
"""Names in vLLM; the first two are `BACKEND` and `IPC_BACKEND` of `evaluate.weights`, which cannot
be imported without vLLM."""


class WeightTransfer(Protocol):
    """Moves the current weights of the ranks into engines that wait for them."""

    def send(self, engines: Actors, *, everything: bool) -> None:
        """Replace the engines' weights.

        Args:
            engines: between `begin_publish` and `finish_publish`.
            everything: also the parts that are frozen, for engines that may not hold them yet.
        """
        ...


class SharedMemoryTransfer:
    """Rank 0 writes a bucket, every engine reads it, it is freed, the next."""

    def __init__(self, ranks: Actors, *, bucket_bytes: int, timeout_s: float):
        self._ranks = ranks
        self._bucket_bytes = bucket_bytes
        self._timeout_s = timeout_s

    def send(self, engines: Actors, *, everything: bool) -> None:
        kept = () if everything else self._ranks.all("frozen", timeout_s=self._timeout_s)[0]
        engines.all("start_weight_update", timeout_s=self._timeout_s)
        bucket = self._next_bucket(kept, first=True)
        while bucket is not None:
            engines.all("load_bucket", bucket, timeout_s=self._timeout_s)
            bucket = self._next_bucket(kept)
        engines.all("close_buckets", kept, timeout_s=self._timeout_s)
        engines.all("finish_weight_update", timeout_s=self._timeout_s)

    def _next_bucket(self, kept: tuple[str, ...], *, first: bool = False) -> "WeightBucket | None":
        asked = (self._bucket_bytes, kept, first)
        return self._ranks.all("next_bucket", *asked, timeout_s=self._timeout_s)[0]


class DirectTransfer:
    """vLLM's transfers between GPUs, driven by the ranks themselves."""

    def __init__(self, ranks: Actors, *, config: TrainConfig, backend: WeightTransferName):
        self._ranks = ranks
        self._timeout_s = config.rollout.timeout_s
        self._loopback = config.ray.address is None
        self._setup = DirectSetup(
            backend=backend.value,
            bucket_bytes=_bucket_bytes(config),
            workers_per_engine=config.rollout.engine.tensor_parallel_size,
        )
        self._meeting: tuple[str, int] | None = None

    def send(self, engines: Actors, *, everything: bool) -> None:
        if self._meeting is None:
            calls = [(0, (self._loopback,))]
            (self._meeting,) = self._ranks.each("address", calls, timeout_s=self._timeout_s)
        self._ranks.all(
            "send_weights",
            self._setup,
            self._meeting,
            engines.handles,
            everything,
            timeout_s=self._timeout_s,
        )


def chosen_transfer(config: TrainConfig) -> WeightTransferName:
    """What `rollout.weight_transfer` means on this machine."""
    rollout = config.rollout
    if rollout.weight_transfer is not WeightTransferName.auto:
        return rollout.weight_transfer
    if not environment.has_nvidia_gpu():
        return WeightTransferName.shared_memory
    return WeightTransferName.ipc if rollout.colocated else WeightTransferName.nccl


def engine_backend(config: TrainConfig) -> str:
    """Name of the same under which an engine is started."""
    return ENGINE_BACKENDS[chosen_transfer(config)]


def weight_transfer(config: TrainConfig, ranks: Actors) -> WeightTransfer:
    """The transfer of a run."""
    chosen = chosen_transfer(config)
    if chosen is not WeightTransferName.shared_memory:
        return DirectTransfer(ranks, config=config, backend=chosen)
    return SharedMemoryTransfer(
        ranks, bucket_bytes=_bucket_bytes(config), timeout_s=config.rollout.timeout_s
    )


def _bucket_bytes(config: TrainConfig) -> int:
    return config.rollout.publish_bucket_mb * 1024**2
