"""The actors of a run without Ray: a real engine and a real rank, called in this process."""

import inspect
from typing import Any

from easyvideor1.preprocess.store import LoadCounts
from easyvideor1.train.learner import RankLearner
from easyvideor1.train.ray_learner import RankActor
from easyvideor1.train.rollout import EngineActor
from easyvideor1.train.slots import Slots
from tests.live_engine import LiveEngine
from tests.train.policy_cases import RandomClips, clips_for


class CountedClips(RandomClips):
    counts = LoadCounts()


class LocalEngine(EngineActor):
    """Around a live engine."""

    def __init__(self, live: LiveEngine):
        clips = CountedClips(clips_for(live.family))
        self._engine = live.engine
        self._stores = {False: clips, True: clips}  # type: ignore[dict-item]
        self._slots = Slots(8)


class LocalRank(RankActor):
    """Around a learner that is the only rank."""

    def __init__(self, learner: RankLearner):
        self._rank = 0
        self._learner = learner
        self._store = CountedClips()  # type: ignore[assignment]
        self._buckets = None
        self._sender = None


class LocalActors:
    """`actors.Actors` over objects of this process; coroutines run on the engine's loop."""

    def __init__(self, objects: list[Any], live: LiveEngine):
        self.calls: list[str] = []
        self._objects = objects
        self._live = live

    def __len__(self) -> int:
        return len(self._objects)

    def all(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        calls = [(index, args) for index in range(len(self))]
        return self.each(method, calls, timeout_s=timeout_s)

    def each(self, method: str, calls: Any, *, timeout_s: float) -> list[Any]:
        self.calls.append(method)
        return [self._call(getattr(self._objects[index], method), args) for index, args in calls]

    def _call(self, function: Any, args: Any) -> Any:
        result = function(*args)
        return self._live.run(result) if inspect.isawaitable(result) else result
