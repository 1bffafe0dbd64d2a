"""An engine's worker that keeps a copy of every bucket it loads: a leak for a test to catch."""

from typing import Any

from easyvideor1.evaluate import weights
from easyvideor1.evaluate.weight_buckets import read_bucket
from easyvideor1.evaluate.worker import WorkerExtension

_kept: list[Any] = []


class LeakyExtension(WorkerExtension):
    """Named in place of `WorkerExtension`."""


class _LeakyAssembly(weights.TensorAssembly):
    def tensors(self, bucket: Any) -> Any:
        _kept.extend(piece.clone() for _, piece in read_bucket(bucket))
        return super().tensors(bucket)


weights.TensorAssembly = _LeakyAssembly  # type: ignore[misc]
