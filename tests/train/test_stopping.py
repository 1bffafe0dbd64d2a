"""A run that is asked to stop saves what it has done, takes nothing back and skips nothing."""

import os
import signal
import threading

import pytest

from easyvideor1.train.config import MixingMode, WarmStartConfig
from easyvideor1.train.loop import train
from easyvideor1.train.stopping import RunStopped, Stop, StopRequestedError
from tests.train.test_resume import end_state


def config_of(table, path, steps=5):
    return table.config(
        path,
        steps=steps,
        save_every=100,
        validate_every=2,
        warm_start=WarmStartConfig(steps=3, batch_size=3),
        mixing=MixingMode.replace,
    )


def stopped_during(table, samples, path, phase, call):
    """A run that is asked to stop within a phase, in its so manieth call; what ended it."""
    run = table.Run(config_of(table, path), samples)
    whole, calls = getattr(run.policy, phase), []

    def ask_to_stop(*args, **settings):
        calls.append(args)
        if len(calls) == call:
            run.runtime.stop.signal = signal.SIGTERM
            if phase in ("generate", "answer"):  # which the real sampler gives up
                raise StopRequestedError
        return whole(*args, **settings)

    setattr(run.policy, phase, ask_to_stop)
    with pytest.raises(RunStopped) as stopped:
        train(run.config, run.runtime)
    return run, stopped.value


@pytest.mark.parametrize(
    ("phase", "call", "position"),
    [
        ("generate", 1, "warm_start_000003"),
        ("generate", 3, "step_000002"),
        ("update", 2, "warm_start_000002"),
        ("update", 3, "warm_start_000003"),
        ("update", 3 + 4, "step_000004"),
        ("answer", 1, "warm_start_000003"),
        ("answer", 2, "step_000002"),
    ],
)
def test_a_stopped_run_goes_on_as_if_nothing_had_been(
    table, samples, tmp_path, phase, call, position
):
    straight = table.Run(config_of(table, tmp_path / "straight"), samples)
    train(straight.config, straight.runtime)

    run, stopped = stopped_during(table, samples, tmp_path / "stopped", phase, call)
    assert stopped.code == 143
    assert f"stopped by SIGTERM at {position}" in stopped.message
    assert run.sealed[-1].name == position

    again = table.Run(config_of(table, tmp_path / "stopped"), samples)
    train(again.config, again.runtime)
    assert end_state(again) == end_state(straight)


def test_a_run_that_is_stopped_before_it_did_anything_leaves_no_checkpoint(
    table, samples, tmp_path
):
    config = table.config(tmp_path, steps=2)
    run = table.Run(config, samples)
    run.runtime.stop.signal = signal.SIGINT
    with pytest.raises(RunStopped) as stopped:
        train(run.config, run.runtime)
    assert stopped.value.code == 130 and not run.sealed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_interrupts(number, capfd):
    before, stop = signal.getsignal(number), Stop()
    with stop.listening():
        stop.check()
        os.kill(os.getpid(), number)
        assert stop.signal is number
        with pytest.raises(StopRequestedError):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            signal.sigtimedwait([], 1)
    assert signal.getsignal(number) is before
    assert f"{number.name}: saving and ending" in capfd.readouterr().err


def test_a_run_in_a_thread_leaves_signals_alone():
    handlers = []

    def listen():
        with Stop().listening():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert handlers == [before]
