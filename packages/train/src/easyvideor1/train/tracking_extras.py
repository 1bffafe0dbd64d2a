"""Metrics in TensorBoard and Weights & Biases, for those who look there; both are optional extras.

Each goes on in the history of a run that is continued: TensorBoard forgets the steps that are taken
again, W&B has them twice. Made by `tracking.open_tracker`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.schema.codec import to_plain
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.metrics import WARM_START, is_warm_start
from easyvideor1.train.run_folder import RunFolder, flatten

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardSink:
    """Event files in `tensorboard/` of the run's folder, one series per phase.

    They count steps from 1 each, and forgetting is by step, whatever the metric.
    """

    def __init__(self, folder: RunFolder, position: Position):
        self._folder = folder.path / "tensorboard"
        self._first_steps = {
            "warm_start": position.warm_start_step + 1,
            "training": position.step + 1 if position.step else 0,  # a start is measured anew
        }
        self._writers: dict[str, SummaryWriter] = {}

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        writer = self._writer("warm_start" if is_warm_start(metrics) else "training")
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
        lines = [
            f"**{row['sample_id']}** ({row['source']}, {row['reward']:.3f})\n\n    {row['text']}"
            for row in rows
        ]
        if lines:
            self._writer("training").add_text("samples", "\n\n".join(lines), step)

    def log_page(self, page: Path) -> None: ...

    def note(self, name: str, value: str) -> None: ...

    def close(self, status: str) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, phase: str) -> "SummaryWriter":
        if phase not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[phase] = SummaryWriter(
                str(self._folder / phase), purge_step=self._first_steps[phase]
            )
        return self._writers[phase]


class WandbSink:
    """One W&B run per run folder; checkpoints hold its id for a continued run.

    Online, offline or not at all as W&B's own variables say, e.g. `WANDB_MODE=offline`.
    """

    def __init__(self, config: TrainConfig, folder: RunFolder, *, run_id: str | None):
        import wandb

        self._run = wandb.init(
            project=config.tracking.wandb_project,
            name=f"{config.run_name}/{folder.path.name}",
            id=run_id,
            resume="allow",
            dir=str(folder.path),
            config={name: str(value) for name, value in flatten(to_plain(config)).items()},
        )
        # Steps of our own: W&B's never go back, which those of a continued run do.
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric(f"{WARM_START}*", step_metric=f"{WARM_START}step")

    @property
    def run_id(self) -> str:
        """Under which a continued run goes on."""
        return self._run.id

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        counter = f"{WARM_START}step" if is_warm_start(metrics) else "step"
        self._run.log({counter: step, **metrics})

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
        import wandb

        if not rows:
            return
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = wandb.Table(
            columns=[*columns], data=[[row.get(name) for name in columns] for row in rows]
        )
        self._run.log({"step": step, "samples": table})

    def log_page(self, page: Path) -> None:
        import wandb

        self._run.log({f"pages/{page.stem}": wandb.Html(page.read_text(encoding="utf-8"))})

    def note(self, name: str, value: str) -> None:
        self._run.summary[name] = value

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "FINISHED" else 1)
