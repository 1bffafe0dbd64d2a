"""A set of equal Ray actors, called with a deadline, whose failures end the run with a reason.

Nothing waits for ever: an actor that dies fails the calls on it, one that hangs meets its deadline.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easyvideor1.schema.errors import UserError


class ActorFailedError(UserError):
    """An actor died, hung or raised; the run cannot go on, its last checkpoint is whole.

    A `UserError`, because it is told in one paragraph: the driver's own traceback says nothing, and
    the actor's is kept in the logs.
    """


def log_to(path: Path) -> None:
    """Append what this process and its children print to a file, so that it outlives Ray's own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


class Actors:
    """Handles of equal actors with a name for messages, e.g. `engine` or `learner rank`."""

    def __init__(self, name: str, handles: Sequence[Any], *, logs: Path):
        self.name = name
        self._handles = list(handles)
        self._logs = logs

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def handles(self) -> list[Any]:
        """The actors, for others that call them directly."""
        return list(self._handles)

    def begin_all(self, method: str, *args: Any) -> list[Any]:
        """Start a method on every actor; pass the result to `wait`."""
        return [getattr(handle, method).remote(*args) for handle in self._handles]

    def all(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """Call a method with the same arguments on every actor."""
        return self.wait(self.begin_all(method, *args), method, timeout_s=timeout_s)

    def each(
        self, method: str, calls: Sequence[tuple[int, tuple[Any, ...]]], *, timeout_s: float
    ) -> list[Any]:
        """Call a method per (actor index, arguments), all at once; results in order."""
        futures = [getattr(self._handles[i], method).remote(*args) for i, args in calls]
        return self.wait(futures, method, timeout_s=timeout_s)

    def wait(self, futures: Sequence[Any], what: str, *, timeout_s: float) -> list[Any]:
        """Results of calls; the first failure or the deadline ends the wait.

        Raises:
            UserError: as the actor raised it.
            ActorFailedError: for any other failure, a dead actor or the deadline.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        deadline = time.monotonic() + timeout_s
        waiting = list(futures)
        try:
            # One by one as they come: a rank that died leaves the others waiting for it.
            while waiting:
                left = max(0.0, deadline - time.monotonic())
                done, waiting = ray.wait(waiting, num_returns=1, timeout=left)
                if not done:
                    raise GetTimeoutError
                ray.get(done)
            return ray.get(list(futures))
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            self._keep(str(error))
            raise self._failed(f"{what} failed with {error.cause!r}") from error
        except RayActorError as error:
            raise self._failed(f"a process died during {what}") from error
        except GetTimeoutError:
            raise self._failed(
                f"{what} took longer than {timeout_s:g} s; if that is no hang, raise "
                "rollout.timeout_s, rollout.start_timeout_s or learner.timeout_s"
            ) from None

    def _failed(self, reason: str) -> ActorFailedError:
        return ActorFailedError(f"{self.name}: {reason}; details are in {self._logs}")

    def _keep(self, trace: str) -> None:
        with (self._logs / "failures.log").open("a") as file:
            file.write(f"{time.ctime()}\n{trace}\n")
