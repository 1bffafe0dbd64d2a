"""Takes the checkpoints of a run, seals them when they are whole, and removes old ones after that.

A checkpoint is written beside the others under a name that nobody reads, at once or while training
goes on (`learner.async_save`), and gets its own name when its last byte is on the disk.
`ray_runtime` makes the `Checkpointer`, the loop calls it.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.files import DraftFolder, folder_bytes
from easyvideor1.train import disk_space
from easyvideor1.train.config import TrainConfig
from easyvideor1.train.interfaces import (
    SAVED_PROGRESS,
    SAVED_TRAINING,
    CheckpointBytes,
    Learner,
    Position,
)
from easyvideor1.train.retention import apply, retention
from easyvideor1.train.run_folder import TRACKING, Checkpoint, RunFolder

POLL_S = 0.2
"""Between two looks whether a checkpoint is written."""
CLOSE_TIMEOUT_S = 30.0
"""A run that failed waits so long for a checkpoint that is being written."""


class PendingSave:
    """A checkpoint that the learner is writing while training goes on; a thread seals it."""

    def __init__(self, draft: DraftFolder, began: float):
        self.target = draft.target
        self._draft = draft
        self._began = began
        self._last_file = draft.path / "learner" / SAVED_TRAINING / SAVED_PROGRESS
        self._seconds: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="seal")
        self._thread.start()

    @property
    def is_sealed(self) -> bool:
        """Whether it stands under its name."""
        return self._seconds is not None

    def finish(self) -> float:
        """Seal it now that the learner has said that all is written; seconds since it began."""
        self._stop()
        return self._seal() if self._seconds is None else self._seconds

    def give_up(self) -> None:
        """Remove what was written, unless it was whole and sealed."""
        self._stop()
        if not self.is_sealed:
            self._draft.discard()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            if self._last_file.is_file():
                self._seal()
                return

    def _seal(self) -> float:
        self._draft.seal()
        self._seconds = time.perf_counter() - self._began
        return self._seconds

    def _stop(self) -> None:
        self._ended.set()
        self._thread.join()


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
        tracking: Mapping[str, str] | None = None,
    ):
        """Bind the parts of a run that have a state.

        Args:
            config: of the run.
            folder: of the run.
            start: where to continue from; None to start anew.
            learner: saves itself, and its export where the config wants one per checkpoint.
            stateful: by name, objects with `state()` and `load_state()`, e.g. the data.
            on_sealed: told where each checkpoint lies.
            tracking: where the run's history is, see `tracking.RunTracker.identity`.
        """
        self._config = config
        self._folder = folder
        self._start = start
        self._learner = learner
        self._stateful = stateful
        self._on_sealed = on_sealed
        self._tracking = dict(tracking or {})
        self._pending: PendingSave | None = None
        self._marked: tuple[str, dict[str, Any]] = ("", {})
        self._metrics: dict[str, float] = {}
        self._newest = start.position.name if start and folder.owns(start) else None

    def restore(self) -> Position:
        """Load the position to continue from; the start when there is none.

        Raises:
            UserError: if the run's checkpoints will not fit on the disk.
        """
        position = self._start.position if self._start else Position()
        in_warm_start = position.step == 0 and self._config.train.warm_start.steps > 0
        self._learner.begin("sft" if in_warm_start else "policy")
        if self._start is not None:
            self._learner.load(self._start.learner)
            for name, part in self._stateful.items():
                part.load_state(self._start.state[name])
        disk_space.check_run(self._folder.path, self._config, self._bytes)
        return position

    def mark(self, position: Position) -> None:
        """Remember the state of all but the learner, for a `save` of this position later on."""
        self._marked = (position.name, self._states())

    def save(self, position: Position) -> None:
        """Take a checkpoint, unless this position has one; of two the second waits for the first.

        What is not the learner's is as at the last `mark`, if that was of this position.

        The last one of a run is sealed when this returns: nothing is left to do meanwhile.

        Raises:
            UserError: if it does not fit on the disk or cannot be written.
        """
        with self._stalled():
            self._settle()
            if position.name == self._newest:
                return
            disk_space.check_save(self._folder.path, self._config, self._bytes, position)
            began = time.perf_counter()
            name, marked = self._marked
            state = marked if name == position.name else self._states()
            draft = self._folder.draft(position, state | {TRACKING: self._tracking})
            self._newest = position.name
            try:
                if self._config.train.export_checkpoints:
                    self._learner.export(draft.path / "export")
                if self._goes_on_meanwhile(position):
                    self._learner.begin_save(draft.path / "learner")
                    self._pending = PendingSave(draft, began)
                    return
                self._learner.save(draft.path / "learner")
                draft.seal()
            except BaseException:
                draft.discard()
                raise
            self._after_seal(draft.target, time.perf_counter() - began)

    def _states(self) -> dict[str, Any]:
        return {name: part.state() for name, part in self._stateful.items()}

    def wait(self) -> None:
        """Return once every checkpoint taken is sealed."""
        with self._stalled():
            self._settle()

    def close(self) -> None:
        """At the end of a run that failed: seal what is being written if it soon is whole."""
        if self._pending is None:
            return
        try:
            self._learner.finish_save(CLOSE_TIMEOUT_S)
            self._pending.finish()
        except UserError as error:
            # The run has ended for a reason of its own; this must not hide it.
            print(error)
        finally:
            self._give_up()

    def metrics(self) -> dict[str, float]:
        """Of what happened since the last call; empty if nothing did.

        Seconds for which saving held the run up, and of what was sealed the seconds from its
        beginning and the size.
        """
        if self._pending is not None and self._pending.is_sealed:
            self.wait()
        metrics, self._metrics = self._metrics, {}
        return metrics

    def _settle(self) -> None:
        """Wait for a checkpoint that is being written, and seal it."""
        if self._pending is None:
            return
        try:
            self._learner.finish_save()
        except UserError:
            self._give_up()
            raise
        sealed, seconds = self._pending.target, self._pending.finish()
        self._pending = None
        self._after_seal(sealed, seconds)

    def _give_up(self) -> None:
        """Remove what is being written, unless it is sealed."""
        if self._pending is not None:
            self._pending.give_up()
        self._pending = None

    def _after_seal(self, sealed: Path, seconds: float) -> None:
        """Tell of it, and let go of older ones."""
        self._metrics["checkpoint/save_seconds"] = seconds
        self._metrics["checkpoint/gb"] = folder_bytes(sealed) / 1e9
        self._on_sealed(sealed)
        keep = self._config.learner
        apply(retention(self._folder.checkpoints(), keep.keep_last, keep.keep_best))

    def _goes_on_meanwhile(self, position: Position) -> bool:
        """Whether training goes on while this one is written; after the last there is none."""
        train = self._config.train
        is_last = (position.step, position.warm_start_step) == (
            train.steps,
            train.warm_start.steps,
        )
        return self._config.learner.async_save and not is_last

    @cached_property
    def _bytes(self) -> CheckpointBytes:
        return self._learner.checkpoint_bytes()

    @contextmanager
    def _stalled(self) -> Generator[None]:
        """Count the body as time for which the run was held up."""
        began = time.perf_counter()
        try:
            yield
        finally:
            name = "checkpoint/stall_seconds"
            self._metrics[name] = self._metrics.get(name, 0.0) + time.perf_counter() - began
