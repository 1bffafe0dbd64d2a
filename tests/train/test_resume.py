"""A run that is stopped and started again does what an uninterrupted one does."""

import json

import pytest

from easyvideor1.train.algorithm_config import AdvantageConfig, AdvantageName, AlgorithmConfig
from easyvideor1.train.config import MixingConfig, MixingMode, WarmStartConfig
from easyvideor1.train.loop import train


def config_of(table, path, steps=6):
    return table.config(
        path,
        steps=steps,
        save_every=2,
        validate_every=100,
        warm_start=WarmStartConfig(steps=4, batch_size=3),
        mixing=MixingConfig(mode=MixingMode.replace),
        # The estimator with something to remember.
        algorithm=AlgorithmConfig(advantage=AdvantageConfig(name=AdvantageName.ema_grpo)),
    )


def start(table, samples, path, steps=6):
    return table.Run(config_of(table, path, steps), samples)


def end_state(run):
    return json.loads((run.sealed[-1] / "state.json").read_text()) | {
        "table": json.loads((run.sealed[-1] / "learner" / "table.json").read_text())
    }


@pytest.mark.parametrize("updates_before_the_crash", [1, 3, 4, 5, 7, 9])
def test_a_crash_changes_nothing_but_time(table, samples, tmp_path, updates_before_the_crash):
    straight = start(table, samples, tmp_path / "straight")
    train(straight.config, straight.runtime)

    crashed = start(table, samples, tmp_path / "crashed")
    update = crashed.policy.update

    def update_or_crash(examples, objective="policy", **settings):
        if len(crashed.policy.updates) == updates_before_the_crash:
            raise ConnectionError
        return update(examples, objective, **settings)

    crashed.policy.update = update_or_crash
    with pytest.raises(ConnectionError):
        train(crashed.config, crashed.runtime)

    resumed = start(table, samples, tmp_path / "crashed")
    train(resumed.config, resumed.runtime)
    assert end_state(resumed) == end_state(straight)


def test_a_finished_run_goes_on_when_asked_for_more_steps(table, samples, tmp_path):
    straight = start(table, samples, tmp_path / "straight", steps=6)
    train(straight.config, straight.runtime)

    short = start(table, samples, tmp_path / "short", steps=2)
    train(short.config, short.runtime)
    longer = start(table, samples, tmp_path / "short", steps=6)
    train(longer.config, longer.runtime)

    assert list(longer.tracker.of("reward/mean")) == [3, 4, 5, 6]
    assert end_state(longer)["table"] == end_state(straight)["table"]
