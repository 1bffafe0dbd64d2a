"""Calls on Ray actors: results in order, and every kind of failure ends with its reason."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.evaluate.engine_request import EngineDiedError
from easyvideor1.preprocess.config import RayConfig
from easyvideor1.preprocess.ray_session import ray_session
from easyvideor1.schema.errors import UserError
from easyvideor1.train.actors import ActorDiedError, ActorFailedError, Actors, log_to
from easyvideor1.train.direct_transfer import EngineClient
from easyvideor1.train.stopping import Stop, StopRequestedError


class Worker:
    """What an engine or a rank may do."""

    def __init__(self, index, log):
        log_to(log)
        self.index = index

    def double(self, value):
        return self.index, 2 * value

    def refuse(self):
        raise UserError("the prompt is too long; raise max_model_len")

    def fail(self):
        raise ZeroDivisionError("by hand")

    def hang_or_die(self, die):
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        self.hang()

    def double_or_die(self, value, die):
        return os.kill(os.getpid(), signal.SIGKILL) if die else self.double(value)

    def lose_engine(self):
        raise EngineDiedError("the engine's process has ended")

    def nap(self, seconds):
        time.sleep(seconds)

    def hang(self):
        time.sleep(60)

    def shout(self, text):
        os.system(f"echo {text}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ray_session(RayConfig(), num_cpus=2):
        yield


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


def start_workers(logs: Path) -> Actors:
    import ray

    remote = ray.remote(Worker).options(num_cpus=0)
    handles = [remote.remote(i, logs / f"worker_{i}.log") for i in range(2)]
    return Actors("worker", handles, logs=logs)


@pytest.fixture(scope="module")
def workers(cluster, logs) -> Actors:
    return start_workers(logs)


def test_results_come_in_the_order_of_the_calls(workers):
    calls = [(1, (10,)), (0, (20,)), (1, (30,))]
    assert workers.each("double", calls, timeout_s=60) == [(1, 20), (0, 40), (1, 60)]
    assert workers.all("double", 4, timeout_s=60) == [(0, 8), (1, 8)]


def test_an_input_error_stays_an_input_error(workers):
    with pytest.raises(UserError, match="raise max_model_len"):
        workers.all("refuse", timeout_s=60)


def test_an_error_of_our_own_names_the_actor_the_call_and_the_logs(workers, logs):
    with pytest.raises(ActorFailedError) as error:
        workers.all("fail", timeout_s=60)
    assert "worker: fail failed with ZeroDivisionError('by hand')" in str(error.value)
    assert str(logs) in str(error.value)
    assert 'raise ZeroDivisionError("by hand")' in (logs / "failures.log").read_text()


def test_what_actors_and_their_children_print_is_kept(workers, logs):
    workers.all("shout", "hello", timeout_s=60)
    assert "hello" in (logs / "worker_0.log").read_text()


def test_a_dead_actor_ends_the_wait_though_another_one_hangs(cluster, logs):
    workers = start_workers(logs)
    with pytest.raises(ActorFailedError, match="worker: process 1 of 2 died during hang_or_die"):
        workers.each("hang_or_die", [(0, (False,)), (1, (True,))], timeout_s=45)


def test_the_calls_on_a_dead_actor_are_settled_beside_those_that_succeed(cluster, logs):
    workers = start_workers(logs)
    calls = [(0, (1, False)), (1, (2, True)), (0, (3, False)), (1, (4, False))]
    first, died, third, after = workers.settle("double_or_die", calls, timeout_s=45)
    assert (first, third) == ((0, 2), (0, 6))
    for death in (died, after):
        assert isinstance(death, ActorDiedError) and death.index == 1
        assert "worker: process 1 of 2 died during double_or_die" in str(death)

    workers.replace(1, start_workers(logs).handles[1])
    assert workers.settle("double", [(1, (5,))], timeout_s=45) == [(1, 10)]


def test_an_engine_without_its_process_counts_as_dead(cluster, logs):
    workers = start_workers(logs)
    (death,) = workers.settle("lose_engine", [(0, ())], timeout_s=45)
    assert isinstance(death, ActorDiedError) and death.index == 0
    with pytest.raises(ActorDiedError, match="worker: process 0 of 2 died during lose_engine"):
        workers.each("lose_engine", [(0, ())], timeout_s=45)
    with pytest.raises(UserError, match="too long"):
        workers.settle("refuse", [(0, ())], timeout_s=45)


def test_a_wait_is_given_up_when_the_run_is_to_stop(workers):
    stop = Stop()
    threading.Timer(0.5, lambda: setattr(stop, "signal", signal.SIGTERM)).start()
    began = time.monotonic()
    with pytest.raises(StopRequestedError):
        workers.settle("nap", [(0, (20,))], timeout_s=45, stop=stop)
    assert time.monotonic() - began < 10


def test_an_actor_that_hangs_meets_its_deadline(workers):
    late = "worker: hang took longer than 1 s in process 0, 1 of 2"
    with pytest.raises(ActorFailedError, match=late):
        workers.all("hang", timeout_s=1)


class Listener:
    """What an engine actor is to vLLM's trainer."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def init_weight_transfer(self, init_info: Any) -> None:
        self.heard.append(("init", init_info))

    def start_weight_update(self) -> None:
        self.heard.append("start")

    def update_weights(self, update_info: Any) -> None:
        self.heard.append(("update", update_info))

    def finish_weight_update(self) -> None:
        self.heard.append("finish")

    def tell(self) -> list[Any]:
        return self.heard


def test_every_engine_hears_vllms_trainer_and_has_ranks_of_its_own(cluster):
    import ray

    listeners = [ray.remote(Listener).options(num_cpus=0).remote() for _ in range(2)]
    client = EngineClient(listeners, workers_per_engine=2)
    client.init_weight_transfer_engine({"rank_offset": 1, "world_size": 5})
    client.start_weight_update()
    client.update_weights({"names": ["a"]})
    client.finish_weight_update("3")
    for listener, offset in zip(listeners, (1, 3), strict=True):
        assert ray.get(listener.tell.remote()) == [
            ("init", {"rank_offset": offset, "world_size": 5}),
            "start",
            ("update", {"names": ["a"]}),
            "finish",
        ]
