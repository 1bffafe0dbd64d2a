"""A run's folder: the config it belongs to, sealed checkpoints, and which one to continue from.

    config.json            the composed config of the run, written when it starts
    checkpoints/step_000010/state.json + learner/ (+ export/)
    export/                the trained model as a Hugging Face folder
    result.json            written when the run is finished
    metrics.jsonl  samples.jsonl  data_report.jsonl  samples/step_000010.html
    validation/step_000010/<benchmark>/<fingerprint>/   as evr-evaluate writes it
    logs/                  what engines and learner ranks print

A checkpoint gets its name when it is on the disk, so a folder with the right name is whole. No
torch: `evr-train` decides here what to do before anything heavy loads.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from easyvideor1.schema.codec import to_plain
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import DraftFolder, write_json
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import SAVED_TRAINING, Position

FORMAT = 4
"""Of `state.json`."""

TRACKING = "tracking"
"""Among the parts of a checkpoint: where the history of its run is."""

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
    "rollout.engines",
    "rollout.start_timeout_s",
    "rollout.timeout_s",
    "rollout.max_engine_restarts",
    "rollout.colocated",
    "rollout.weight_transfer",
    "rollout.publish_bucket_mb",
    "learner.keep_last",
    "learner.keep_best",
    "learner.async_save",
    "learner.ranks",
    "learner.shard_size",
    "learner.threads",
    "learner.timeout_s",
    "learner.max_skipped_updates",
    "learner.process_group_timeout_s",
    "cache",
    "decode.workers",
    "decode.deadline_s",
    "decode.retry_quarantined",
    "data.max_refused_share",
    "plan",
    "export",
    "collect",
    "algorithm.dynamic_sampling.enabled",
    "algorithm.dynamic_sampling.max_draws",
)
"""Settings, or groups of them, that a continued run may change: how long, how often and where, and
what lets a run go on that could not fill a batch."""


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

    @property
    def is_full(self) -> bool:
        """Whether a run can go on from it; else it holds weights alone."""
        return (self.learner / SAVED_TRAINING).is_dir()


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
    def sample_pages(self) -> Path:
        """Pages of sampled groups with their frames."""
        return self.path / "samples"

    @property
    def validation(self) -> Path:
        """Results of benchmarks, by step."""
        return self.path / "validation"

    @property
    def data_report(self) -> Path:
        """Samples that were left out or rescaled."""
        return self.path / "data_report.jsonl"

    def checkpoints(self) -> list[Checkpoint]:
        """Sealed checkpoints, oldest first."""
        found = [read_checkpoint(state.parent) for state in self._states()]
        return sorted(found, key=lambda c: (c.position.step, c.position.warm_start_step))

    def owns(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is this run's own, and not that of a run it branches off from."""
        return checkpoint.folder.parent.parent.resolve() == self.path.resolve()

    def starting_point(self, config: TrainConfig) -> Checkpoint | None:
        """The checkpoint to continue from, by `train.resume`; None to start anew.

        Raises:
            UserError: if that checkpoint belongs to another config or lies beyond the steps asked
                for, or if the folder already holds a run that `train.resume` would overwrite.
        """
        own, resume = [c for c in self.checkpoints() if c.is_full], config.train.resume
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
        for pattern in (".*", f"*/learner/.{SAVED_TRAINING}"):
            for left in (self.path / "checkpoints").glob(pattern):
                shutil.rmtree(left)
        write_json(self.path / "config.json", to_plain(config))

    def draft(self, position: Position, state: Mapping[str, Any]) -> DraftFolder:
        """A checkpoint to be filled with the learner's part and sealed.

        Args:
            position: it is taken at.
            state: by part of the run, what its `state()` says, JSON-serialisable.

        Raises:
            UserError: if there is one of that name, which would stay in its place.
        """
        target = self.path / "checkpoints" / position.name
        if target.exists():
            raise UserError(f"{target} is there already; remove it or set another run_name")
        draft = DraftFolder(target)
        write_json(
            draft.path / "state.json",
            {"format": FORMAT, "position": asdict(position), "parts": dict(state)},
        )
        return draft

    def what_remains(self) -> str:
        """What a run that failed can go on from, in a sentence."""
        own = [checkpoint for checkpoint in self.checkpoints() if checkpoint.is_full]
        if not own:
            return "There is no checkpoint yet; the same command begins anew"
        return f"{own[-1].position.name} is whole; the same command goes on from there"

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
            _refuse_weights_alone(chosen)
        elif others := [c for c in RunFolder(path).checkpoints() if c.is_full]:
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

    def stored_config(self) -> dict[str, Any]:
        """The config that the run was started with, as `to_plain` wrote it.

        Raises:
            UserError: if it is not there.
        """
        path = self.path / "config.json"
        if not path.is_file():
            raise UserError(f"{path} is missing; a checkpoint is read from inside its run's folder")
        return json.loads(path.read_text())

    def _refuse_other_config(self, config: TrainConfig, position: Position) -> None:
        """Compare with the config that the run of this folder was started with."""
        free = [*FREE_TO_CHANGE, *(["train.warm_start.steps"] if position.step == 0 else [])]
        stored = flatten(with_defaults(self.stored_config(), TrainConfig()))
        wanted = flatten(to_plain(config))
        if differing := differences(stored, wanted, free=free):
            raise UserError(
                f"{self.path} belongs to a run with another config; {differing}. Set "
                "another run_name, or the same values"
            )


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


def with_defaults(stored: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """A stored config with the settings that are younger than its run, which had their default.

    A dict of free names is taken as it was stored: a name that it lacks was not set.

    Args:
        stored: the config, or a group of it, as plain values.
        defaults: dataclass of the same group.
    """
    complete = dict(stored)
    for name, plain in to_plain(defaults).items():
        default = getattr(defaults, name)
        if name not in stored:
            complete[name] = plain
        elif is_dataclass(default) and isinstance(stored[name], Mapping):
            complete[name] = with_defaults(stored[name], default)
    return complete


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested config to dotted names, e.g. `{"rollout.group_size": 8}`; lists stay values."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def differences(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], *, free: Sequence[str] = ()
) -> str:
    """Which values differ, e.g. `differing: seed (0 there, 1 now)`; empty where none do.

    Args:
        stored: by name, those that are there.
        wanted: those that are asked for now.
        free: names, or groups of dotted ones, that may differ.
    """
    differing = sorted(
        name
        for name in stored.keys() | wanted.keys()
        if stored.get(name) != wanted.get(name)
        and not any(name == f or name.startswith(f"{f}.") for f in free)
    )
    shown = [f"{name} ({stored.get(name)!r} there, {wanted.get(name)!r} now)" for name in differing]
    return f"differing: {', '.join(shown)}" if shown else ""


def _refuse_weights_alone(checkpoint: Checkpoint) -> None:
    if not checkpoint.is_full:
        raise UserError(
            f"{checkpoint.folder} was kept for its weights alone (learner.keep_best), and a run "
            "cannot go on from it; to start another run from these weights, export them with "
            f"evr-train job=export export.checkpoint={checkpoint.folder}, and give that folder as "
            "model.path"
        )


def _refuse_beyond(config: TrainConfig, checkpoint: Checkpoint) -> None:
    position, train = checkpoint.position, config.train
    if position.step > train.steps or position.warm_start_step > train.warm_start.steps:
        raise UserError(
            f"{checkpoint.folder} lies beyond train.steps={train.steps} and "
            f"train.warm_start.steps={train.warm_start.steps}; ask for more steps, or set another "
            "run_name"
        )
