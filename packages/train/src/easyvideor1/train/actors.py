"""A set of equal Ray actors, called with a deadline, whose failures end the run with a reason.

Nothing waits for ever: an actor that dies fails the calls on it, one that hangs meets its deadline.
Who can put another in the place of a dead one asks with `settle`, see `recovery`.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from easyvideor1.evaluate.engine_request import EngineDiedError
from easyvideor1.schema.errors import UserError
from easyvideor1.train.failures import RankFailedError
from easyvideor1.train.stopping import Stop

POLL_S = 1.0
"""Between two looks whether the run was asked to stop."""
DEATH_NOTICE_S = 3.0
"""When an actor dies, those that were talking to it may fail first; so long its own end is waited
for, which is the reason to tell."""


class ActorFailedError(UserError):
    """An actor died, hung or raised; the run cannot go on, its last checkpoint is whole.

    A `UserError`, because it is told in one paragraph: the driver's own traceback says nothing, and
    the actor's is kept in the logs.
    """


class ActorDiedError(ActorFailedError):
    """An actor is no more, or the engine in it; its place can be taken by another."""

    def __init__(self, message: str, index: int):
        super().__init__(message)
        self.index = index


def log_to(path: Path) -> None:
    """Append what this process and its children print to a file, so that it outlives Ray's own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


class Call(NamedTuple):
    """A method that an actor is running."""

    index: int
    """Of the actor."""
    future: Any


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

    def begin_all(self, method: str, *args: Any) -> list[Call]:
        """Start a method on every actor; pass the result to `wait`."""
        return [
            Call(index, getattr(handle, method).remote(*args))
            for index, handle in enumerate(self._handles)
        ]

    def all(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """Call a method with the same arguments on every actor."""
        return self.wait(self.begin_all(method, *args), method, timeout_s=timeout_s)

    def each(
        self, method: str, calls: Sequence[tuple[int, tuple[Any, ...]]], *, timeout_s: float
    ) -> list[Any]:
        """Call a method per (actor index, arguments), all at once; results in order."""
        begun = [Call(i, getattr(self._handles[i], method).remote(*args)) for i, args in calls]
        return self.wait(begun, method, timeout_s=timeout_s)

    def settle(
        self,
        method: str,
        calls: Sequence[tuple[int, tuple[Any, ...]]],
        *,
        timeout_s: float,
        stop: Stop | None = None,
    ) -> list[Any]:
        """As `each`, but the calls on a dead actor have its `ActorDiedError` for a result.

        Raises:
            StopRequestedError: the run was asked to stop meanwhile; the calls go on unheeded.
        """
        begun = [Call(i, getattr(self._handles[i], method).remote(*args)) for i, args in calls]
        return self._results(begun, method, timeout_s=timeout_s, stop=stop, outlive_deaths=True)

    async def one(self, index: int, method: str, *args: Any) -> Any:
        """Await a method of one actor.

        Raises:
            ActorDiedError: the actor, or its engine, is dead.
        """
        from ray.exceptions import RayActorError, RayTaskError

        try:
            return await getattr(self._handles[index], method).remote(*args)
        except RayActorError as error:
            raise self._died(method, index) from error
        except RayTaskError as error:
            if isinstance(error.cause, EngineDiedError):
                raise self._died(method, index) from error
            raise error.cause from None

    def subset(self, indices: Sequence[int]) -> "Actors":
        """Some of them, under the same name."""
        return Actors(self.name, [self._handles[i] for i in indices], logs=self._logs)

    def replace(self, index: int, handle: Any) -> None:
        """Put another actor in the place of one."""
        self._handles[index] = handle

    def wait(self, calls: Sequence[Call], what: str, *, timeout_s: float) -> list[Any]:
        """Results of calls; the first failure or the deadline ends the wait.

        Raises:
            UserError: as the actor raised it.
            ActorDiedError: an actor is dead.
            ActorFailedError: for any other failure, or the deadline.
        """
        return self._results(calls, what, timeout_s=timeout_s)

    def _results(
        self,
        calls: Sequence[Call],
        what: str,
        *,
        timeout_s: float,
        stop: Stop | None = None,
        outlive_deaths: bool = False,
    ) -> list[Any]:
        import ray

        deadline = time.monotonic() + timeout_s
        waiting = {call.future: call.index for call in calls}
        deaths: dict[Any, ActorDiedError] = {}
        # One by one as they come: a rank that died leaves the others waiting for it.
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=min(left, POLL_S))
            if stop is not None:
                stop.check()
            if not done:
                if left > POLL_S:
                    continue
                raise self._late(what, timeout_s, sorted(set(waiting.values())))
            (future,) = done
            index = waiting.pop(future)
            if (error := _error_of(future)) is None:
                continue
            failure = self._failure(error, index, what, waiting)
            if not (outlive_deaths and isinstance(failure, ActorDiedError)):
                raise failure from error
            deaths[future] = failure
        return [deaths.get(call.future) or ray.get(call.future) for call in calls]

    def _failure(
        self, error: Exception, index: int, what: str, waiting: dict[Any, int]
    ) -> UserError:
        """What to tell about the first call that failed."""
        from ray.exceptions import RayActorError, RayTaskError

        if isinstance(error, RayActorError):
            return self._died(what, index)
        if not isinstance(error, RayTaskError):
            return self._failed(f"{what} failed with {error!r}")
        if isinstance(error.cause, UserError):
            return error.cause
        if isinstance(error.cause, EngineDiedError):
            return self._died(what, index)
        self._keep(str(error))
        dead = _first_dead(waiting, timeout_s=DEATH_NOTICE_S)
        if dead is not None:
            return self._died(what, dead)
        if isinstance(error.cause, RankFailedError):
            return self._failed(f"{what} failed on {error.cause}")
        place = f"in process {index} of {len(self)}"
        return self._failed(f"{what} failed with {error.cause!r} {place}")

    def _died(self, what: str, index: int) -> ActorDiedError:
        reason = f"process {index} of {len(self)} died during {what}"
        return ActorDiedError(str(self._failed(reason)), index)

    def _late(self, what: str, timeout_s: float, indices: list[int]) -> "ActorFailedError":
        late = ", ".join(map(str, indices))
        return self._failed(
            f"{what} took longer than {timeout_s:g} s in process {late} of {len(self)}; if that is "
            "no hang, raise rollout.timeout_s, rollout.start_timeout_s or learner.timeout_s"
        )

    def _failed(self, reason: str) -> ActorFailedError:
        return ActorFailedError(f"{self.name}: {reason}; details are in {self._logs}")

    def _keep(self, trace: str) -> None:
        with (self._logs / "failures.log").open("a") as file:
            file.write(f"{time.ctime()}\n{trace}\n")


def _error_of(future: Any) -> Exception | None:
    """The exception that a finished call ended with."""
    import ray
    from ray.exceptions import RayError

    try:
        ray.get(future)
    except RayError as error:
        return error
    return None


def _first_dead(waiting: dict[Any, int], *, timeout_s: float) -> int | None:
    """An actor among those still called that turns out to be dead within the time."""
    import ray
    from ray.exceptions import RayActorError

    deadline = time.monotonic() + timeout_s
    left = dict(waiting)
    while left:
        done, _ = ray.wait(list(left), num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
        if not done:
            return None
        (future,) = done
        index = left.pop(future)
        if isinstance(_error_of(future), RayActorError):
            return index
    return None
