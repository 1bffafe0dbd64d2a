"""Weights on their way from a trainer into a running engine.

Two vLLM backends for the worker's side: `SharedMemoryEngine` maps and loads what `weight_buckets`
packs; `SharedGPUEngine` is vLLM's own for CUDA IPC, but for the form of its handles. The sequence
around them, with its pause and its cache resets, is `Engine.publish`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.ipc_engine import (
    IPCWeightTransferEngine,
    IPCWeightTransferUpdateInfo,
)

from easyvideor1.evaluate.ipc_handles import torch_handle
from easyvideor1.evaluate.weight_buckets import TensorAssembly, WeightBucket, WeightEntry

BACKEND = "evr_shared_memory"
IPC_BACKEND = "evr_ipc"


@dataclass
class SharedMemoryInit(WeightTransferInitInfo):
    """Nothing to agree on: each update says where it lies."""


@dataclass
class SharedMemoryUpdate(WeightTransferUpdateInfo):
    """One bucket, or the message that closes an update."""

    path: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] | None = None
    """In the closing message: name prefixes of the parts that keep the weights they have."""


class SharedMemoryEngine(WeightTransferEngine[SharedMemoryInit, SharedMemoryUpdate]):
    """Worker side of the transfer: maps the trainer's memory and loads it layer by layer."""

    init_info_cls = SharedMemoryInit
    update_info_cls = SharedMemoryUpdate
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: SharedMemoryInit) -> None: ...

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        # Plain load_weights fails on a CPU, where start-up has prepacked and emptied parameters.
        initialize_layerwise_reload(self.model)
        self._assembly = TensorAssembly()
        self._loaded: set[str] = set()

    def receive_weights(self, update_info: SharedMemoryUpdate) -> None:
        if update_info.kept is not None:
            # Not in `finish_weight_update`: vLLM takes an update that fails there for unfinished,
            # and would refuse to begin the next.
            self._check_complete(update_info.kept)
            return
        entries = tuple(WeightEntry(**entry) for entry in update_info.entries)
        bucket = WeightBucket(path=update_info.path, entries=entries)
        # A layer whose parts lie in two buckets keeps the first one mapped until it is complete.
        self._loaded |= self.model.load_weights(self._assembly.tensors(bucket))

    def _check_complete(self, kept: Sequence[str]) -> None:
        # Not only the learner's mistake to guard against: a tied lm_head that is not sent would
        # keep its old values on a CPU, and half of a fused layer would be corrupt.
        mapper = self.model.hf_to_vllm_mapper
        kept_prefixes = tuple(mapper.map_name(prefix) or prefix for prefix in kept)
        wanted = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        missing = sorted(
            name for name in wanted - self._loaded if not name.startswith(kept_prefixes)
        )
        if missing:
            raise ValueError(
                f"the published weights lack {len(missing)} of {len(wanted)} parameters, among "
                f"them {', '.join(missing[:3])}; publish all items of state_dict()"
            )

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None: ...


class SharedGPUEngine(IPCWeightTransferEngine):
    """Loads weights from GPU memory of the trainer. Not run on a GPU yet."""

    def parse_update_info(self, update_dict: dict[str, Any]) -> IPCWeightTransferUpdateInfo:
        """The packed buffer's handles came as `ipc_handles.plain_handle`."""
        handles = {gpu: torch_handle(plain) for gpu, plain in update_dict["ipc_handles"].items()}
        return super().parse_update_info(update_dict | {"ipc_handles": handles})


def bucket_update(bucket: WeightBucket) -> dict[str, Any]:
    """A bucket as vLLM carries it to its workers."""
    return {"path": bucket.path, "entries": [asdict(entry) for entry in bucket.entries]}


def closing_update(kept: Sequence[str]) -> dict[str, Any]:
    """The message that all buckets were sent, but for the parts under these name prefixes."""
    return {"kept": list(kept)}


WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryEngine)
WeightTransferEngineFactory.register_engine(IPC_BACKEND, SharedGPUEngine)
