"""Checkpoints: what a rank writes, and folders that are either complete or not there.

`save_rank` and `load_rank` move weights, optimizer and random states through
torch.distributed.checkpoint, on one rank or many. `commit`, `find` and `prune` handle the folders
around them; the process that drives the run calls these.
"""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from easyvideor1.schema.errors import UserError

MANIFEST = "checkpoint.json"
FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A complete checkpoint folder and what its manifest says."""

    path: Path
    step: int
    score: float | None = None
    """Validation score of these weights; higher is better."""
    state: dict[str, Any] = field(default_factory=dict)
    """What the caller keeps with it, JSON-serialisable."""


def save_rank(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, int]
) -> None:
    """Write this rank's share of model and optimizer, its random state, and `progress`.

    Collective. The files are flushed to disk; `commit` seals the folder around them.
    """
    rank, world_size = _rank_and_size()
    folder.mkdir(parents=True, exist_ok=True)
    weights, moments = get_state_dict(model, optimizer)
    with _single_process_is_meant():
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    torch.save(random, folder / f"random_{rank}_of_{world_size}.pt")
    if rank == 0:
        (folder / "progress.json").write_text(json.dumps(progress))
    _barrier()


def load_rank(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Restore in place what `save_rank` wrote and return its `progress`.

    Collective. The number of ranks may differ from that of the save; random states then stay as
    they are, since they belong to ranks that are no longer there.
    """
    rank, world_size = _rank_and_size()
    if not (folder / "progress.json").is_file():
        raise UserError(f"{folder} is not a learner checkpoint: progress.json is missing")
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    with _single_process_is_meant():
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    random_file = folder / f"random_{rank}_of_{world_size}.pt"
    if random_file.is_file():
        random = torch.load(random_file, weights_only=True)
        torch.set_rng_state(random["cpu"])
        if "cuda" in random and torch.cuda.is_available():
            torch.cuda.set_rng_state(random["cuda"])
    return json.loads((folder / "progress.json").read_text())


def _rank_and_size() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextmanager
def _single_process_is_meant() -> Generator[None]:
    """Without a process group torch asks whether that is on purpose. It is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def commit(
    path: Path,
    write: Callable[[Path], None],
    *,
    step: int,
    score: float | None = None,
    state: dict[str, Any] | None = None,
) -> Checkpoint:
    """Make the checkpoint folder `path`: all of it, or nothing that `find` would see.

    Args:
        path: the folder; an older one of that name is replaced.
        write: fills the folder it is given.
        step: position in the run.
        score: validation score, for `prune`.
        state: kept in the manifest.
    """
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    made = Checkpoint(path=path, step=step, score=score, state=state or {})
    manifest = {key: value for key, value in asdict(made).items() if key != "path"}
    (partial / MANIFEST).write_text(json.dumps({"format": FORMAT, **manifest}, indent=2))
    _flush(partial)
    if path.exists():
        _remove(path)
    partial.rename(path)
    _flush_folder(path.parent)
    return made


def find(root: Path) -> list[Checkpoint]:
    """The complete checkpoints in `root`, by step."""
    manifests = [
        file for file in root.glob(f"*/{MANIFEST}") if not file.parent.name.startswith(".")
    ]
    return sorted((read(file.parent) for file in manifests), key=lambda made: made.step)


def read(path: Path) -> Checkpoint:
    """The checkpoint in the folder `path`.

    Raises:
        UserError: if there is none, or one of another format.
    """
    file = path / MANIFEST
    if not file.is_file():
        raise UserError(f"{path} is not a checkpoint: {MANIFEST} is missing")
    values = json.loads(file.read_text())
    if (found := values.pop("format", None)) != FORMAT:
        raise UserError(f"{file} has format {found}, this version reads {FORMAT}")
    return Checkpoint(path=path, **values)


def prune(root: Path, *, keep_last: int, keep_best: int) -> list[Path]:
    """Remove all but the newest and the best-scored checkpoints; returns what went.

    Of equal scores the earlier step is the better.
    """
    made = find(root)
    scored = [one for one in made if one.score is not None]
    best = sorted(scored, key=lambda one: (-(one.score or 0.0), one.step))[:keep_best]
    kept = {one.path for one in [*made[-keep_last:], *best]}
    gone = [one.path for one in made if one.path not in kept]
    for path in gone:
        _remove(path)
    return gone


def _remove(path: Path) -> None:
    """Renamed first, so that a killed removal leaves nothing that looks complete."""
    doomed = path.with_name(f".{path.name}.removed")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


def _flush(folder: Path) -> None:
    """Everything in `folder` reaches the disk before its new name does."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
        _flush_folder(Path(parent))


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
