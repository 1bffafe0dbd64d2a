"""What a rank writes into a checkpoint: weights, optimizer, random state and progress.

Through torch.distributed.checkpoint, on one rank or many. The folder around it, which is complete
or not there, is `run_folder`'s; called by `learner.RankLearner`.
"""

import json
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from easyvideor1.schema.errors import UserError


def save_rank(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, int]
) -> None:
    """Write this rank's share of model and optimizer, its random state, and `progress`.

    Collective: when it returns on any rank, all have written.
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
    wait_for_all()


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


def wait_for_all() -> None:
    """Return once every rank has called this."""
    if dist.is_initialized():
        dist.barrier()
