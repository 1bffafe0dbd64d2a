"""What a rank writes into a checkpoint: weights, optimizer, random state and progress.

With LoRA the weights are those of the adapters; the model they belong to is told by a fingerprint.

Through torch.distributed.checkpoint, on one rank or many, at once or while training goes on. The
weights lie apart from the rest, so that the rest can go and they stay. The folder around both,
which is complete or not there, is `checkpointer`'s; called by `learner.RankLearner`.
"""

import io
import json
import warnings
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from easyvideor1.schema.codec import from_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import new_file, write_json
from easyvideor1.train.adapters import POLICY, AdapterFacts, own_state
from easyvideor1.train.interfaces import SAVED_PROGRESS, SAVED_TRAINING, SAVED_WEIGHTS
from easyvideor1.train.reference import Reference

ADAPTERS = "adapters.json"
"""Beside weights that are those of adapters alone: what is needed to use them."""

BYTES_PER_SHARD = 2_048
"""Around the numbers of a tensor: a small archive and an entry in the index; measured 1.8 to 2 kB
with torch 2.13."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """What this rank writes."""

    weights: dict[str, Any]
    training: dict[str, Any]
    """Optimizer, and a reference that is not the run's initial model."""
    random: dict[str, Tensor]
    """State of the generators, by device type."""
    progress: dict[str, Any]
    """JSON-serialisable, the same on every rank."""
    adapters: AdapterFacts | None = None
    """Where `weights` are those of adapters alone."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        progress: dict[str, int],
        reference: Reference | None = None,
        adapters: AdapterFacts | None = None,
    ) -> "Snapshot":
        """The state as it is; its tensors are the live ones."""
        weights, moments = _state(model, optimizer, adapters_alone=adapters is not None)
        random = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random["cuda"] = torch.cuda.get_rng_state()
        return cls(
            weights=weights,
            training=_training_state(moments, reference),
            random=random,
            progress={**progress, "has_reference": reference is not None},
            adapters=adapters,
        )

    def copied(self) -> "Snapshot":
        """The same in host memory, which later updates leave alone."""
        options = StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=False,
        )
        stager = DefaultStager(options)
        staged = stager.stage({"weights": self.weights, "training": self.training})
        assert isinstance(staged, dict)  # a future only where staging is asynchronous
        stager.close()
        return Snapshot(
            weights=staged["weights"],
            training=staged["training"],
            random=self.random,
            progress=self.progress,
            adapters=self.adapters,
        )


class RankWriter:
    """Writes this rank's part of checkpoints; one at a time."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._group: dist.ProcessGroup | None = None
        self._pending: Future[None] | None = None

    def save(self, folder: Path, snapshot: Snapshot) -> None:
        """Write. Collective: when it returns on any rank, all have written.

        Raises:
            UserError: if a file cannot be written.
        """
        self.finish()
        _write(folder, snapshot, None)

    def begin(self, folder: Path, snapshot: Snapshot) -> None:
        """Copy the state into host memory and begin to write the copy. Collective."""
        self.finish()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
            if dist.is_initialized():
                # The ranks agree on what is written while training has collectives of its own.
                group = dist.new_group(backend="gloo")
                assert isinstance(group, dist.ProcessGroup)  # every rank is in it
                self._group = group
        self._pending = self._thread.submit(_write, folder, snapshot.copied(), self._group)

    def finish(self) -> None:
        """Wait until what was begun is written.

        Raises:
            UserError: if a file could not be written.
        """
        if self._pending is not None:
            self._pending.result()  # a failure stays, for whoever asks next
        self._pending = None

    def check(self) -> None:
        """Raise what `finish` would, if writing has failed already."""
        if self._pending is not None and self._pending.done():
            self.finish()


def load_rank(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    reference: Reference | None = None,
    *,
    adapters_alone: bool = False,
) -> dict[str, int]:
    """Restore in place what `RankWriter` wrote and return its `progress`.

    Collective. The number of ranks may differ from that of the save; random states then stay as
    they are, since they belong to ranks that are no longer there.

    Args:
        folder: as given to `RankWriter`.
        model: takes the weights.
        optimizer: of the model.
        reference: restored if one was written.
        adapters_alone: the model has adapters, and all else of it stays as it is.
    """
    rank, world_size = _rank_and_size()
    training_folder = folder / SAVED_TRAINING
    if not (training_folder / SAVED_PROGRESS).is_file():
        raise UserError(f"{folder} is not a learner checkpoint: {SAVED_PROGRESS} is missing")
    progress = json.loads((training_folder / SAVED_PROGRESS).read_text())
    if not progress.get("has_reference"):
        reference = None
    weights, moments = _state(model, optimizer, adapters_alone=adapters_alone)
    training = _training_state(moments, reference)
    with _single_process_is_meant():
        dcp.load(weights, checkpoint_id=folder / SAVED_WEIGHTS)
        dcp.load(training, checkpoint_id=training_folder)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=weights,
        optim_state_dict=training["optimizer"],
        options=StateDictOptions(strict=not adapters_alone),
    )
    if reference is not None:
        reference.load_state(training["reference"])
    random_file = training_folder / _random_name(rank, world_size)
    if random_file.is_file():
        random = torch.load(random_file, weights_only=True)
        torch.set_rng_state(random["cpu"])
        if "cuda" in random and torch.cuda.is_available():
            torch.cuda.set_rng_state(random["cuda"])
    return progress


def adapters_of(folder: Path) -> AdapterFacts | None:
    """What is said of the adapters in a checkpoint; None if it holds whole weights."""
    file = folder / SAVED_WEIGHTS / ADAPTERS
    return from_plain(AdapterFacts, json.loads(file.read_text())) if file.is_file() else None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Full weights of a checkpoint by their name in the model that was saved, on the CPU.

    Args:
        folder: as given to `RankWriter`. No process group is needed, however many ranks wrote it.
    """
    stored = dcp.FileSystemReader(folder / SAVED_WEIGHTS).read_metadata().state_dict_metadata
    weights = {
        name: torch.empty(item.size, dtype=item.properties.dtype)
        for name, item in stored.items()
        if isinstance(item, TensorStorageMetadata)
    }
    with _single_process_is_meant():
        dcp.load(weights, checkpoint_id=folder / SAVED_WEIGHTS, no_dist=True)
    return weights


def stored_bytes(tensors: Iterable[Tensor], world_size: int) -> int:
    """What tensors take in a checkpoint that so many ranks write, each a shard of every one.

    Args:
        tensors: whole or sharded; a tied one counts under each of its names.
        world_size: number of ranks.
    """
    return sum(t.numel() * t.dtype.itemsize + BYTES_PER_SHARD * world_size for t in tensors)


def optimizer_bytes(model: nn.Module, world_size: int) -> int:
    """The same of AdamW: two moments like each trained weight, and the number of its steps."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return 2 * stored_bytes(trained, world_size) + BYTES_PER_SHARD * world_size * len(trained)


def _state(
    model: nn.Module, optimizer: torch.optim.Optimizer, *, adapters_alone: bool
) -> tuple[dict[str, Any], Any]:
    """Weights and optimizer, sharded; with `adapters_alone` of the weights only theirs."""
    weights, moments = get_state_dict(model, optimizer)
    # Not `ignore_frozen_params`, which keeps a tied head.
    return (own_state(model, POLICY) if adapters_alone else weights), moments


def _training_state(moments: dict[str, Any], reference: Reference | None) -> dict[str, Any]:
    state: dict[str, Any] = {"optimizer": moments}
    if reference is not None:
        state["reference"] = reference.state()
    return state


def _write(folder: Path, snapshot: Snapshot, group: dist.ProcessGroup | None) -> None:
    """Write a snapshot; the progress of rank 0 comes last of all. Collective within `group`."""
    rank, world_size = _rank_and_size()
    training_folder = folder / SAVED_TRAINING
    try:
        training_folder.mkdir(parents=True, exist_ok=True)
        with new_file(training_folder / _random_name(rank, world_size)) as draft:
            draft.write_bytes(_serialized(snapshot.random))
        with _single_process_is_meant():
            # Each syncs its files, and returns on rank 0 when all ranks are done.
            dcp.save(snapshot.weights, checkpoint_id=folder / SAVED_WEIGHTS, process_group=group)
            dcp.save(snapshot.training, checkpoint_id=training_folder, process_group=group)
        if rank == 0 and snapshot.adapters is not None:
            write_json(folder / SAVED_WEIGHTS / ADAPTERS, asdict(snapshot.adapters))
        if rank == 0:
            write_json(training_folder / SAVED_PROGRESS, snapshot.progress)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    except CheckpointException as error:
        first, _ = next(iter(error.failures.values()))
        raise _cannot_write(folder, first) from error
    wait_for_all(group)


def _cannot_write(folder: Path, error: BaseException) -> UserError:
    return UserError(
        f"the checkpoint in {folder.parent} cannot be written: {error!r}. The checkpoint before it "
        "is whole: free space or repair the disk, and start the same command again"
    )


def _serialized(state: dict[str, Tensor]) -> bytes:
    """As torch stores it; torch itself turns the errors of a disk into its own."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def _random_name(rank: int, world_size: int) -> str:
    return f"random_{rank}_of_{world_size}.pt"


def _rank_and_size() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextmanager
def _single_process_is_meant() -> Generator[None]:
    """Without a process group torch asks whether that is on purpose. It is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def wait_for_all(group: dist.ProcessGroup | None = None) -> None:
    """Return once every rank has called this."""
    if dist.is_initialized():
        dist.barrier(group)
