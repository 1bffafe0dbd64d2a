"""A run's folder: the config it belongs to, sealed checkpoints, and which one to continue from.

    config.json            the composed config of the run, written when it starts
    checkpoints/step_000010/state.json + learner/ (+ export/)
    export/                the trained model as a Hugging Face folder
    result.json            written when the run is finished
    metrics.jsonl  samples.jsonl  data_report.jsonl
    logs/                  what engines and learner ranks print

A checkpoint gets its name when it is on the disk, so a folder with the right name is whole. No
torch: `evr-train` decides here what to do before anything heavy loads.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import new_folder, write_json
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import Learner, Position

FORMAT = 3
"""Of `state.json`."""

FREE_TO_CHANGE = (
    "run_name",
    "output_dir",
    "train.steps",
    "train.save_every",
    "train.validate_every",
    "train.resume",
    "train.export_checkpoints",
    "tracking",
    "ray",
    "rollout.start_timeout_s",
    "rollout.timeout_s",
    "rollout.colocated",
    "rollout.weight_transfer",
    "rollout.publish_bucket_mb",
    "learner.keep_last",
    "learner.keep_best",
    "learner.threads",
    "learner.timeout_s",
    "learner.shard_size",
    "learner.process_group_timeout_s",
    "cache",
    "decode.workers",
    "decode.deadline_s",
    "decode.retry_quarantined",
    "data.max_refused_share",
)
"""Settings, or groups of them, that a continued run may change: how long, how often and where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A sealed checkpoint."""

    folder: Path
    position: Position
    state: dict[str, Any]
    """By part of the run, e.g. the data, what its `state()` said."""

    @property
    def learner(self) -> Path:
        """What the learner saved."""
        return self.folder / "learner"


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def export(self) -> Path:
        """The trained model as a Hugging Face folder."""
        return self.path / "export"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples.jsonl"

    @property
    def data_report(self) -> Path:
        """Samples that were left out or rescaled."""
        return self.path / "data_report.jsonl"

    def checkpoints(self) -> list[Checkpoint]:
        """Sealed checkpoints, oldest first."""
        found = [read_checkpoint(state.parent) for state in self._states()]
        return sorted(found, key=lambda c: (c.position.step, c.position.warm_start_step))

    def starting_point(self, config: TrainConfig) -> Checkpoint | None:
        """The checkpoint to continue from, by `train.resume`; None to start anew.

        Raises:
            UserError: if that checkpoint belongs to another config or lies beyond the steps asked
                for, or if the folder already holds a run that `train.resume` would overwrite.
        """
        own, resume = self.checkpoints(), config.train.resume
        if resume == "never":
            if own:
                raise UserError(
                    f"{self.path} already holds {own[-1].position.name} and train.resume=never; "
                    "set another run_name, remove the folder, or use train.resume=auto"
                )
            return None
        chosen = own[-1] if own else None
        if resume != "auto":
            chosen = self._named(resume, own)
        if chosen is None:
            return None
        RunFolder(chosen.folder.parent.parent)._refuse_other_config(config, chosen.position)
        _refuse_beyond(config, chosen)
        return chosen

    def is_finished(self, config: TrainConfig) -> bool:
        """Whether nothing is left to do for `config`; its result is then in `result`."""
        own = self.checkpoints()
        result = self.result()
        if not own or result is None or not (self.export / "config.json").is_file():
            return False
        goal = (config.train.steps, config.train.warm_start.steps)
        last = own[-1].position
        return (last.step, last.warm_start_step) == goal and result["checkpoint"] == last.name

    def result(self) -> dict[str, Any] | None:
        """What `finish` wrote; None while the run is not finished."""
        path = self.path / "result.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def begin(self, config: TrainConfig) -> None:
        """Make the folder, keep the config, and remove what a killed run left half-written."""
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        for draft in (self.path / "checkpoints").glob(".*"):
            shutil.rmtree(draft)
        write_json(self.path / "config.json", to_plain(config))

    def seal(
        self, position: Position, state: Mapping[str, Any], fill: Callable[[Path], None]
    ) -> Path:
        """Write a checkpoint: `fill` puts the learner's part into the folder it is given."""
        folder = self.path / "checkpoints" / position.name
        with new_folder(folder) as draft:
            fill(draft)
            write_json(
                draft / "state.json",
                {"format": FORMAT, "position": asdict(position), "parts": dict(state)},
            )
        return folder

    def finish(self, validation: float | None) -> None:
        """Record that the run has reached its goal, with the accuracy of its last weights."""
        last = self.checkpoints()[-1]
        result = {"checkpoint": last.position.name, "validation": validation}
        write_json(self.path / "result.json", result)

    def _states(self) -> list[Path]:
        # A name that starts with a dot is not matched: still being written.
        folder = self.path / "checkpoints"
        return [*folder.glob("step_*/state.json"), *folder.glob("warm_start_*/state.json")]

    def _named(self, resume: str, own: list[Checkpoint]) -> Checkpoint | None:
        """The checkpoint that `train.resume` names, or this folder's newest if it is ahead of it.

        A run that branched off another one continues itself when it is started again.
        """
        path = Path(resume).expanduser().resolve()
        if (path / "state.json").is_file():
            chosen = read_checkpoint(path)
        elif others := RunFolder(path).checkpoints():
            chosen = others[-1]
        else:
            raise UserError(
                f"train.resume={resume} holds no checkpoint; give auto, never, a folder "
                "…/checkpoints/step_000010 or the folder of a run"
            )
        if own and chosen.folder.parent.parent != self.path.resolve():
            return own[-1]
        if own and chosen.folder.name != own[-1].folder.name:
            later = [c.folder.name for c in own[own_index(own, chosen) + 1 :]]
            raise UserError(
                f"train.resume={resume} is older than {', '.join(later)} in the same run; remove "
                "those to go back, or set another run_name to branch off"
            )
        return chosen

    def _refuse_other_config(self, config: TrainConfig, position: Position) -> None:
        """Compare with the config that the run of this folder was started with."""
        path = self.path / "config.json"
        if not path.is_file():
            raise UserError(
                f"{path} is missing; a checkpoint is continued from inside its run's folder"
            )
        free = [*FREE_TO_CHANGE, *(["train.warm_start.steps"] if position.step == 0 else [])]
        # A setting that is younger than the run had its default then.
        defaults = flatten(to_plain(TrainConfig()))
        stored = defaults | flatten(json.loads(path.read_text()))
        wanted = flatten(to_plain(config))
        differing = sorted(
            name
            for name in stored.keys() | wanted.keys()
            if stored.get(name) != wanted.get(name)
            and not any(name == f or name.startswith(f"{f}.") for f in free)
        )
        if differing:
            shown = ", ".join(
                f"{name} ({stored.get(name)!r} there, {wanted.get(name)!r} now)"
                for name in differing
            )
            raise UserError(
                f"{self.path} belongs to a run with another config; differing: {shown}. Set "
                "another run_name, or the same values"
            )


class Checkpointer:
    """`interfaces.Checkpoints` on a run's folder."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        start: Checkpoint | None,
        *,
        learner: Learner,
        stateful: Mapping[str, Any],
        on_sealed: Callable[[Path], None],
    ):
        """Bind the parts of a run that have a state.

        Args:
            config: of the run.
            folder: of the run.
            start: where to continue from; None to start anew.
            learner: saves itself, and its export where the config wants one per checkpoint.
            stateful: by name, objects with `state()` and `load_state()`, e.g. the data.
            on_sealed: told where each checkpoint lies.
        """
        self._config = config
        self._folder = folder
        self._start = start
        self._learner = learner
        self._stateful = stateful
        self._on_sealed = on_sealed

    def restore(self) -> Position:
        """Load the position to continue from; the start when there is none."""
        position = self._start.position if self._start else Position()
        in_warm_start = position.step == 0 and self._config.train.warm_start.steps > 0
        self._learner.begin("sft" if in_warm_start else "policy")
        if self._start is not None:
            self._learner.load(self._start.learner)
            for name, part in self._stateful.items():
                part.load_state(self._start.state[name])
        return position

    def save(self, position: Position) -> None:
        """Seal a checkpoint, then remove those that are neither new nor good enough to keep."""
        state = {name: part.state() for name, part in self._stateful.items()}
        self._on_sealed(self._folder.seal(position, state, self._fill))
        keep = self._config.learner
        for old in to_remove(self._folder.checkpoints(), keep.keep_last, keep.keep_best):
            # Out of sight first: a killed removal must not leave what looks like a checkpoint.
            shutil.rmtree(old.folder.rename(old.folder.with_name(f".{old.folder.name}")))

    def _fill(self, folder: Path) -> None:
        self._learner.save(folder / "learner")
        if self._config.train.export_checkpoints:
            self._learner.export(folder / "export")


def to_remove(checkpoints: list[Checkpoint], keep_last: int, keep_best: int) -> list[Checkpoint]:
    """Which of `checkpoints` (oldest first) to remove. The end of a warm start is always kept."""
    rated = [c for c in checkpoints if c.position.validation is not None]
    best = sorted(rated, key=lambda c: c.position.validation or 0.0, reverse=True)[:keep_best]
    kept = {c.folder for c in [*checkpoints[-keep_last:], *best]}
    warm = [c for c in checkpoints if c.position.step == 0]
    if warm:
        kept.add(warm[-1].folder)
    return [c for c in checkpoints if c.folder not in kept]


def read_checkpoint(folder: Path) -> Checkpoint:
    """The sealed checkpoint in `folder`.

    Raises:
        UserError: if another version of the format wrote it.
    """
    stored = json.loads((folder / "state.json").read_text())
    if stored["format"] != FORMAT:
        raise UserError(f"{folder} has format {stored['format']}, this version reads {FORMAT}")
    position = Position(**stored["position"])
    return Checkpoint(folder=folder, position=position, state=stored["parts"])


def own_index(own: list[Checkpoint], chosen: Checkpoint) -> int:
    """Where `chosen` stands among the checkpoints of its run."""
    return [c.folder.name for c in own].index(chosen.folder.name)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested config to dotted names, e.g. `{"rollout.group_size": 8}`; lists stay values."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _refuse_beyond(config: TrainConfig, checkpoint: Checkpoint) -> None:
    position, train = checkpoint.position, config.train
    if position.step > train.steps or position.warm_start_step > train.warm_start.steps:
        raise UserError(
            f"{checkpoint.folder} lies beyond train.steps={train.steps} and "
            f"train.warm_start.steps={train.warm_start.steps}; ask for more steps, or set another "
            "run_name"
        )
