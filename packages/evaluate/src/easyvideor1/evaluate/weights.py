"""Weights on their way from a trainer into a running engine.

`manifest` packs tensors into shared memory (trainer side); `SharedMemoryEngine` is a vLLM
weight-transfer backend that maps and loads them (inside the engine's worker). The sequence around
it, with its pause and its cache resets, is `Engine.publish`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from easyvideor1.evaluate.manifest import (
    WeightEntry,
    WeightManifest,
    read_manifest,
    write_manifest,
)

BACKEND = "evr_shared_memory"

__all__ = ["BACKEND", "WeightEntry", "WeightManifest", "update_request", "write_manifest"]


@dataclass
class SharedMemoryInit(WeightTransferInitInfo):
    """Nothing to agree on: each update says where it lies."""


@dataclass
class SharedMemoryUpdate(WeightTransferUpdateInfo):
    path: str
    entries: list[dict[str, Any]]


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

    def receive_weights(self, update_info: SharedMemoryUpdate) -> None:
        entries = [WeightEntry(**entry) for entry in update_info.entries]
        loaded = self.model.load_weights(read_manifest(update_info.path, entries))
        # Not only the learner's mistake to guard against: a tied lm_head that is not sent would
        # keep its old values on a CPU.
        wanted = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        if missing := sorted(wanted - set(loaded)):
            raise ValueError(
                f"the published weights lack {len(missing)} of {len(wanted)} parameters, among "
                f"them {', '.join(missing[:3])}; publish all items of state_dict()"
            )

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None: ...


def update_request(manifest: WeightManifest) -> dict[str, Any]:
    """The manifest as vLLM carries it to its workers."""
    return {"path": manifest.path, "entries": [asdict(entry) for entry in manifest.entries]}


WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryEngine)
