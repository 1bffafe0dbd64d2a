"""What a rank writes into a checkpoint: weights, optimizer, random state and progress.

Through torch.distributed.checkpoint, on one rank or many. The folder around it, which is complete
or not there, is `run_folder`'s; called by `learner.RankLearner`.
"""

import json
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from easyvideor1.schema.errors import UserError


def save_rank(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: dict[str, int],
    reference: nn.Module | None = None,
) -> None:
    """Write this rank's share of model and optimizer, its random state, and `progress`.

    A `reference` is written where it is another than the run's initial weights, which are at hand.
    Collective: when it returns on any rank, all have written.
    """
    rank, world_size = _rank_and_size()
    folder.mkdir(parents=True, exist_ok=True)
    with _single_process_is_meant():
        dcp.save(_state_of(model, optimizer, reference), checkpoint_id=folder)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    torch.save(random, folder / f"random_{rank}_of_{world_size}.pt")
    if rank == 0:
        stored = {**progress, "has_reference": reference is not None}
        (folder / "progress.json").write_text(json.dumps(stored))
    wait_for_all()


def load_rank(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    reference: nn.Module | None = None,
) -> dict[str, int]:
    """Restore in place what `save_rank` wrote and return its `progress`.

    A `reference` is restored if one was written. Collective. The number of ranks may differ from
    that of the save; random states then stay as they are, since they belong to ranks that are no
    longer there.
    """
    rank, world_size = _rank_and_size()
    if not (folder / "progress.json").is_file():
        raise UserError(f"{folder} is not a learner checkpoint: progress.json is missing")
    progress = json.loads((folder / "progress.json").read_text())
    if not progress.get("has_reference"):
        reference = None
    state = _state_of(model, optimizer, reference)
    with _single_process_is_meant():
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    if reference is not None:
        set_model_state_dict(reference, state["reference"])
    random_file = folder / f"random_{rank}_of_{world_size}.pt"
    if random_file.is_file():
        random = torch.load(random_file, weights_only=True)
        torch.set_rng_state(random["cpu"])
        if "cuda" in random and torch.cuda.is_available():
            torch.cuda.set_rng_state(random["cuda"])
    return progress


def _state_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, reference: nn.Module | None
) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments}
    if reference is not None:
        state["reference"] = get_model_state_dict(reference)
    return state


def _rank_and_size() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextmanager
def _single_process_is_meant() -> Generator[None]:
    """Without a process group torch asks whether that is on purpose. It is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def wait_for_all() -> None:
    """Return once every rank has called this."""
    if dist.is_initialized():
        dist.barrier()
