"""The supervised phase before reinforcement learning: its batches, its weights, its end."""

from easyvideor1.train.config import WarmStartConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.loop import train
from easyvideor1.train.warm_start import take_examples, warm_start


def test_answer_tokens_weigh_more(table, samples, tmp_path):
    section = WarmStartConfig(steps=1, batch_size=3, answer_weight=20.0)
    run = table.Run(table.config(tmp_path, steps=0, warm_start=section), samples)
    data, reader = run.runtime.warm_start
    examples = take_examples(run.config, data, reader, step=1)
    assert len(examples) == 3
    for example in examples:
        assert example.prompt.sample.offline
        assert example.token_weights == [1.0, 20.0, 1.0, 1.0]


def test_reinforcement_learning_follows_with_a_fresh_optimizer(table, samples, tmp_path):
    section = WarmStartConfig(steps=3, batch_size=2)
    run = table.Run(table.config(tmp_path, steps=2, warm_start=section, save_every=2), samples)
    train(run.config, run.runtime)
    assert [objective for objective, _ in run.policy.updates] == ["sft"] * 3 + ["policy"] * 2
    assert run.policy.phases == ["sft", "policy"]
    names = [folder.name for folder in run.sealed]
    assert names == ["warm_start_000002", "warm_start_000003", "step_000002"]
    assert run.tracker.of("warm_start/learner/loss").keys() == {1, 2, 3}


def test_a_run_past_its_warm_start_does_not_warm_start_again(table, samples, tmp_path):
    section = WarmStartConfig(steps=3, batch_size=2)
    run = table.Run(table.config(tmp_path, steps=2, warm_start=section), samples)
    position = Position(step=1, warm_start_step=3)
    assert warm_start(run.config, run.runtime, position) == position
    assert run.policy.updates == []
