"""Whether a run's checkpoints fit on the disk: before the first step, and before each save.

Pure arithmetic on sizes that the learner tells, and two refusals. Called by `checkpointer`.
"""

import shutil
from pathlib import Path

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import folder_bytes
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import CheckpointBytes, Position

GIB = 1024**3


def run_bytes(config: TrainConfig, sizes: CheckpointBytes) -> int:
    """What checkpoints and the final export of a run take on the disk at most, in bytes.

    An old checkpoint goes when the new one is sealed, so there is one more than `keep_last`; the
    end of a warm start stays; and of those that were best the weights.
    """
    train, learner = config.train, config.learner
    every = train.save_every
    num_saves = -(-train.steps // every) + -(-train.warm_start.steps // every)
    keeps_warm_start = train.warm_start.steps > 0
    num_full = min(num_saves, learner.keep_last + 1 + keeps_warm_start)
    num_best = min(num_saves - num_full, learner.keep_best)
    per_checkpoint = sizes.export if train.export_checkpoints else 0
    return (
        num_full * (sizes.full + per_checkpoint)
        + num_best * (sizes.weights + per_checkpoint)
        + sizes.export
    )


def check_run(folder: Path, config: TrainConfig, sizes: CheckpointBytes) -> None:
    """Refuse a run whose checkpoints will not fit; what its folder holds already counts.

    Raises:
        UserError: with what is needed, what is free, and what would need less.
    """
    needed = run_bytes(config, sizes)
    held = folder_bytes(folder / "checkpoints") + folder_bytes(folder / "export")
    free = shutil.disk_usage(folder).free
    if needed - held <= free:
        return
    learner = config.learner
    raise UserError(
        f"output_dir={folder} has {_gib(free)} free, but the checkpoints of this run will need "
        f"{_gib(needed - held)}: {_gib(sizes.full)} each in full "
        f"(learner.keep_last={learner.keep_last} and the one being written), "
        f"{_gib(sizes.weights)} as weights alone (learner.keep_best={learner.keep_best}), and "
        f"{_gib(sizes.export)} for the exported model. Free space, choose another output_dir, or "
        "lower these settings"
    )


def check_save(
    folder: Path, config: TrainConfig, sizes: CheckpointBytes, position: Position
) -> None:
    """Refuse a save that does not fit beside the older checkpoints.

    Raises:
        UserError: with what is needed and free.
    """
    needed = sizes.full + (sizes.export if config.train.export_checkpoints else 0)
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return
    raise UserError(
        f"{position.name} is not saved: {folder} has {_gib(free)} free, a checkpoint needs "
        f"{_gib(needed)}. The run ends here, its older checkpoints are whole: free space and start "
        "the same command again"
    )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.2f} GiB"
