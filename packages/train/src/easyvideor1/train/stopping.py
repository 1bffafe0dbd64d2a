"""A run that is asked to stop, by SIGTERM or Ctrl-C, saves and ends; asked again, it ends at once.

The signal sets a flag. The loop looks at it between two steps, and a rollout, which may take
minutes, is given up over it. What a step has done by then is whole or undone: weights after an
update are saved, the prompts of a rollout that was given up are taken again.
"""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from easyvideor1.train.interfaces import Position, Runtime

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequestedError(Exception):
    """What was being waited for is given up, because the run was asked to stop."""


class RunStopped(SystemExit):
    """Ends the command, and a sweep with it, after a run has stopped as it was asked.

    Its status is what a shell reports of a command that the signal ended: 143 or 130.
    """

    def __init__(self, number: signal.Signals, position: str):
        super().__init__(128 + number)
        self.message = (
            f"stopped by {number.name} at {position}; the same command goes on from there"
        )


class Stop:
    """Whether a run was asked to stop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """That asked for it; None as long as nobody did."""

    @property
    def is_requested(self) -> bool:
        """Whether the run is to save and end."""
        return self.signal is not None

    def check(self) -> None:
        """Raises StopRequestedError once the run was asked to stop."""
        if self.is_requested:
            raise StopRequestedError

    @contextmanager
    def listening(self) -> Generator[None]:
        """Take the signals over for the body of a `with`; in the main thread, where they arrive."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._receive) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        # Not by print: the main thread may be within one.
        text = f"\n{self.signal.name}: saving and ending; the same signal again ends at once\n"
        os.write(2, text.encode())
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)


def stopped(runtime: "Runtime", position: "Position", number: signal.Signals) -> RunStopped:
    """Save where the run stands, and wait until that is sealed."""
    if position.step > 0 or position.warm_start_step > 0:
        runtime.checkpoints.save(position)
        runtime.checkpoints.wait()
    return RunStopped(number, position.name)
