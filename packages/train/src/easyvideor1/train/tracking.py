"""Where a run's numbers go: the console, `metrics.jsonl` and `samples.jsonl`, MLflow and others.

A continued run goes on in the same files and the same MLflow run. What the files say of steps after
the checkpoint it continues from is removed, since those steps are taken again; MLflow removes
nothing, so there they are twice. MLflow is imported only when it is on.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from tqdm import tqdm

from easyvideor1.schema import jsonl
from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.conf import outputs_dir
from easyvideor1.schema.records import Group, Sample
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.metrics import WARM_START, is_warm_start
from easyvideor1.train.run_folder import TRACKING, Checkpoint, RunFolder, flatten
from easyvideor1.train.sample_page import SamplePages
from easyvideor1.train.stopping import RunStopped
from easyvideor1.train.tracking_extras import TensorBoardSink, WandbSink

if TYPE_CHECKING:
    from easyvideor1.preprocess.clip import Clip

NUM_PARAM_CHARACTERS = 500  # MLflow refuses parameters over 6000; nobody reads them either
MLFLOW_RUN_ID = "mlflow_run_id"
WANDB_RUN_ID = "wandb_run_id"
NUM_BATCH = 100  # parameters MLflow takes at once


class Sink(Protocol):
    """One place that metrics and tables are written to."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None: ...

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None: ...

    def log_page(self, page: Path) -> None:
        """Keep a file that was written in the run's folder, where the sink has a place for it."""

    def note(self, name: str, value: str) -> None: ...

    def close(self, status: str) -> None: ...


class RunTracker(AbstractContextManager["RunTracker"]):
    """`interfaces.Tracker` over several sinks; closes them with how the run ended."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        samples_every: int,
        samples_groups: int,
        identity: Mapping[str, str],
        pages: SamplePages | None = None,
    ):
        self._sinks = sinks
        self.identity = dict(identity)
        """Where the history is, for a continued run to go on in it, e.g. `mlflow_run_id`."""
        self._samples_every = samples_every
        self._samples_groups = samples_groups
        self._pages = pages

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Metrics of one step; it may have several lots of them, or an empty one."""
        for sink in self._sinks if metrics else ():
            sink.log(metrics, step=step)

    def log_groups(self, groups: Sequence[Group], *, step: int) -> None:
        """The first groups as a table and a page, every `samples_every` steps and at step 1."""
        shown = groups[: self._samples_groups]
        if not shown or (step != 1 and step % self._samples_every):
            return
        rows = [row for group in shown for row in group_rows(group, step)]
        page = self._pages.write(shown, step) if self._pages is not None else None
        for sink in self._sinks:
            sink.log_rows(rows, step=step)
            if page is not None:
                sink.log_page(page)

    def note(self, name: str, value: str) -> None:
        """A fact about the run, e.g. where its newest checkpoint lies."""
        for sink in self._sinks:
            sink.note(name, value)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all sinks as finished, failed or killed."""
        status = "FINISHED"
        if kind is not None:
            is_asked = issubclass(kind, KeyboardInterrupt | RunStopped)
            status = "KILLED" if is_asked else "FAILED"
        for sink in self._sinks:
            sink.close(status)


def open_tracker(
    config: TrainConfig,
    folder: RunFolder,
    start: Checkpoint | None,
    load: "Callable[[Sample], list[Clip]] | None" = None,
) -> RunTracker:
    """The tracker of a run that starts anew (None) or continues.

    A checkpoint of this run says where its history is; a branch off another run has its own.

    Args:
        config: of the run.
        folder: of the run.
        start: checkpoint to continue from.
        load: the clips of a sample, for pages with frames; None for no pages.
    """
    position = start.position if start else Position()
    sinks: list[Sink] = [
        ConsoleSink(config.train.steps, config.train.warm_start.steps, position),
        JsonlSink(folder, position),
    ]
    identity = start.state.get(TRACKING, {}) if start and folder.owns(start) else {}
    if config.tracking.mlflow:
        mlflow = MlflowSink(config, folder, run_id=identity.get(MLFLOW_RUN_ID))
        identity = {**identity, MLFLOW_RUN_ID: mlflow.run_id}
        sinks.append(mlflow)
    if config.tracking.tensorboard:
        sinks.append(TensorBoardSink(folder, position))
    if config.tracking.wandb:
        wandb = WandbSink(config, folder, run_id=identity.get(WANDB_RUN_ID))
        identity = {**identity, WANDB_RUN_ID: wandb.run_id}
        sinks.append(wandb)
    pages = None
    if load is not None and config.tracking.samples_frames > 0:
        pages = SamplePages(folder.sample_pages, load, config.tracking.samples_frames)
    return RunTracker(
        sinks,
        pages=pages,
        identity=identity,
        samples_every=config.tracking.samples_every,
        samples_groups=config.tracking.samples_groups,
    )


def group_rows(group: Group, step: int) -> list[dict[str, Any]]:
    """One row per completion of a group, JSON-serialisable."""
    return [
        {
            "step": step,
            "sample_id": group.sample.id,
            "problem_type": group.sample.problem_type.value,
            "problem": group.sample.problem,
            "gold": json.dumps(group.sample.answer, ensure_ascii=False),
            "source": completion.source.value,
            "text": completion.text,
            "reward": score.value,
            **{f"reward_{part}": value for part, value in score.parts.items()},
            "status": score.status.value,
            "finish_reason": completion.finish_reason,
            "policy_version": completion.segments[0].policy_version,
        }
        for completion, score in zip(group.completions, group.scores, strict=True)
    ]


class ConsoleSink:
    """A progress bar per phase with what one looks at first, and a line per validation."""

    def __init__(self, steps: int, warm_start_steps: int, position: Position):
        self._bars: dict[str, tqdm[Any]] = {}
        self._totals = {"warm start": warm_start_steps, "training": steps}
        self._initial = {"warm start": position.warm_start_step, "training": position.step}

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        if "validation/refused" in metrics:
            tqdm.write(f"step {step}: {_validation_line(metrics)}")
        if all(name.startswith("validation/") for name in metrics):
            return  # what benchmarks say is printed by evaluate
        phase = "warm start" if is_warm_start(metrics) else "training"
        bar = self._bars.get(phase) or self._open(phase)
        if headline := _headline(metrics):  # what is told after a step, of its checkpoint, has none
            bar.set_postfix(headline, refresh=False)
        bar.update(step - bar.n)

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None: ...

    def log_page(self, page: Path) -> None: ...

    def note(self, name: str, value: str) -> None: ...

    def close(self, status: str) -> None:
        for bar in self._bars.values():
            bar.close()

    def _open(self, phase: str) -> "tqdm[Any]":
        self.close("")  # the warm start ends where training begins
        bar = tqdm(desc=phase, total=self._totals[phase], initial=self._initial[phase])
        self._bars[phase] = bar
        return bar


def _headline(metrics: Mapping[str, float]) -> dict[str, str]:
    shown = {
        "reward": "reward/mean",
        "accuracy": "reward/accuracy",
        "loss": "learner/loss",
        "s": "seconds/step",
    }
    plain = {name.removeprefix(WARM_START): value for name, value in metrics.items()}
    return {label: f"{plain[name]:.3f}" for label, name in shown.items() if name in plain}


def _validation_line(metrics: Mapping[str, float]) -> str:
    prefix = "validation/accuracy/"
    tasks = ", ".join(
        f"{name.removeprefix(prefix)} {value:.3f}"
        for name, value in metrics.items()
        if name.startswith(prefix)
    )
    refused = f"{metrics['validation/refused']:.0f} prompts refused by the engine"
    text = f"validation accuracy {metrics['validation/accuracy']:.3f} ({tasks})"
    return f"{text}, {refused}" if metrics["validation/refused"] else text


class JsonlSink:
    """`metrics.jsonl` and `samples.jsonl` in the run's folder."""

    def __init__(self, folder: RunFolder, position: Position):
        self._folder = folder
        for path in (folder.metrics, folder.samples):
            jsonl.keep(path, lambda row: _is_before(row, position))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        # JSON has no NaN; a number that is not finite is a fact about the run and stays visible.
        values = {k: v if math.isfinite(v) else str(v) for k, v in metrics.items()}
        jsonl.append(self._folder.metrics, [{"step": step, "time": time.time(), **values}])

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
        jsonl.append(self._folder.samples, rows)

    def log_page(self, page: Path) -> None: ...

    def note(self, name: str, value: str) -> None: ...

    def close(self, status: str) -> None: ...


def _is_before(row: Mapping[str, Any], position: Position) -> bool:
    """Whether a row is about what led to a position, and not about steps after it."""
    if is_warm_start(row):
        return row["step"] <= position.warm_start_step
    return position.step > 0 and row["step"] <= position.step  # a start is measured anew


class MlflowSink:
    """One MLflow run per run folder; checkpoints hold its id for a continued run."""

    def __init__(self, config: TrainConfig, folder: RunFolder, *, run_id: str | None):
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(store_uri(config))
        is_reopened = run_id is not None and self._reopen(run_id)
        self.run_id = run_id if run_id and is_reopened else self._create(config, folder)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        points = [Metric(name, value, now, step) for name, value in metrics.items()]
        self._client.log_batch(self.run_id, metrics=points)

    def log_rows(self, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
        if not rows:
            return
        names = dict.fromkeys(name for row in rows for name in row)
        table = {name: [row.get(name) for row in rows] for name in names}
        self._client.log_table(self.run_id, table, f"samples/step_{step:06d}.json")

    def log_page(self, page: Path) -> None:
        self._client.log_artifact(self.run_id, str(page), "samples")

    def note(self, name: str, value: str) -> None:
        self._client.set_tag(self.run_id, name, value)

    def close(self, status: str) -> None:
        self._client.set_terminated(self.run_id, status)

    def _reopen(self, run_id: str) -> bool:
        """Go on in a run; False if this store does not hold it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(run_id, status="RUNNING")
        except MlflowException:
            tqdm.write(f"MLflow run {run_id} is not in this store; its history starts anew here")
            return False
        return True

    def _create(self, config: TrainConfig, folder: RunFolder) -> str:
        from mlflow.entities import Param

        run = self._client.create_run(
            self._experiment(config.tracking.mlflow_experiment),
            run_name=f"{config.run_name}/{folder.path.name}",
            tags={"run_folder": str(folder.path)},
        )
        params = [
            Param(name, str(value)[:NUM_PARAM_CHARACTERS])
            for name, value in flatten(to_plain(config)).items()
        ]
        for start in range(0, len(params), NUM_BATCH):
            self._client.log_batch(run.info.run_id, params=params[start : start + NUM_BATCH])
        return run.info.run_id

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        artifacts = (outputs_dir() / "mlflow_artifacts").as_uri()
        return self._client.create_experiment(name, artifact_location=artifacts)


def store_uri(config: TrainConfig) -> str:
    """The tracking store of a run: as configured, else SQLite under `outputs/`."""
    if config.tracking.mlflow_uri is not None:
        return config.tracking.mlflow_uri
    path = outputs_dir() / "mlflow.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"
