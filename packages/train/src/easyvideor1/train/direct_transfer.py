"""The learner's side of vLLM's weight transfers between GPUs: CUDA IPC and NCCL.

Every rank gathers the weights; rank 0 talks to the engines. Written against vLLM 0.32 and tested on
a CPU up to the transfer itself, which has not been run on GPUs yet. vLLM is imported at the first
publish, by ranks that use it.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo

    from easyvideor1.train.learner import RankLearner


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectSetup:
    """What ranks and engines agree on."""

    backend: str
    """`ipc` or `nccl`."""
    bucket_bytes: int
    workers_per_engine: int


class EngineClient:
    """vLLM's `VLLMWeightSyncClient` over engine actors: each call goes to all and waits for all."""

    def __init__(self, engines: Sequence[Any], *, workers_per_engine: int):
        self._engines = list(engines)
        self._workers_per_engine = workers_per_engine

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Introduce the trainer; in an NCCL group each engine's workers have their own ranks."""
        messages = []
        for index in range(len(self._engines)):
            own = dict(init_info)
            if "rank_offset" in own:
                own["rank_offset"] += index * self._workers_per_engine
            messages.append(own)
        self._wait("init_weight_transfer", [(message,) for message in messages])

    def start_weight_update(self) -> None:
        """Make the workers ready."""
        self._wait("start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Pass a message of the backend on."""
        from easyvideor1.evaluate.ipc_handles import plain_handle

        if "ipc_handles" in update_info:
            handles = update_info["ipc_handles"]
            plain = {gpu: plain_handle(arguments) for gpu, arguments in handles.items()}
            update_info = update_info | {"ipc_handles": plain}
        self._wait("update_weights", [(update_info,)] * len(self._engines))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Put the weights in place; their version is the sampler's to set."""
        self._wait("finish_weight_update")

    def _wait(self, method: str, arguments: list[tuple[Any, ...]] | None = None) -> None:
        import ray

        arguments = arguments or [()] * len(self._engines)
        ray.get(
            [
                getattr(engine, method).remote(*own)
                for engine, own in zip(self._engines, arguments, strict=True)
            ]
        )


class DirectSender:
    """One rank's part in every publish of a run."""

    def __init__(
        self,
        learner: "RankLearner",
        setup: DirectSetup,
        meeting: tuple[str, int],
        engines: Sequence[Any],
    ):
        """Meet the engines.

        Args:
            learner: of this rank.
            setup: the same on all ranks.
            meeting: host and free port of rank 0.
            engines: handles of the engine actors.
        """
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

        self._source = weight_source(learner)
        client = EngineClient(engines, workers_per_engine=setup.workers_per_engine)
        self._trainer = WeightTransferTrainerFactory.trainer_init(
            trainer_info(setup, learner.rank, meeting, num_engines=len(engines)),
            client=client,
            source=self._source,
        )

    def send(self, *, everything: bool) -> None:
        """Send the weights; returns when every engine holds them."""
        self._source.everything = everything
        with fixed_segments():
            self._trainer.send_weights()


def trainer_info(
    setup: DirectSetup, rank: int, meeting: tuple[str, int], *, num_engines: int
) -> "TrainerInitInfo":
    """vLLM's description of the transfer."""
    from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    if setup.backend == "ipc":
        return IPCTrainerInitInfo(
            rank=rank, packed=True, packed_buffer_size_bytes=setup.bucket_bytes
        )
    host, port = meeting
    return NCCLTrainerInitInfo(
        rank=rank,
        master_address=host,
        master_port=port,
        world_size=1 + num_engines * setup.workers_per_engine,
        # Two buffers, one sent while the other is filled.
        packed_buffer_size_bytes=setup.bucket_bytes // 2,
    )


def weight_source(learner: "RankLearner") -> Any:
    """The learner's weights as vLLM's `WeightSource`, the tied head included."""
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    class LearnerWeights(WeightSource):
        everything = True
        """Whether the frozen parts are sent too."""

        def _skip(self) -> tuple[str, ...]:
            return () if self.everything else learner.frozen_prefixes

        def metadata(self) -> "list[ParamMeta]":
            return [
                ParamMeta(name, dtype, tuple(shape))
                for name, (dtype, shape) in learner.weight_shapes(self._skip()).items()
            ]

        def __iter__(self) -> "Iterator[tuple[str, torch.Tensor]]":
            return learner.gather_weights(self._skip())

    return LearnerWeights()


@contextmanager
def fixed_segments() -> Generator[None]:
    """Allocate without expandable segments, which cannot be shared between processes.

    Of effect where the user has asked for them with `PYTORCH_CUDA_ALLOC_CONF`.
    """
    import torch

    variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    wanted = any("expandable_segments:True" in os.environ.get(name, "") for name in variables)
    if not wanted:
        yield
        return
    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
    try:
        yield
    finally:
        torch.cuda.empty_cache()
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
