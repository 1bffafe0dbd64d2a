"""The loop on a table policy: it learns, publishes before it samples, and logs what a step did."""

from dataclasses import replace

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Source
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    AlgorithmConfig,
    OfflineConfig,
    OfflineTreatment,
)
from easyvideor1.train.config import MixingConfig, MixingMode, WarmStartConfig
from easyvideor1.train.interfaces import Position
from easyvideor1.train.loop import is_due, train
from easyvideor1.train.validation import validate


def test_the_loop_learns_what_the_reward_asks_for(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=60, validate_every=20), samples)

    accuracy = train(run.config, run.runtime)

    assert accuracy is not None and accuracy >= 0.9
    assert run.tracker.of("validation/accuracy")[60] == accuracy
    assert run.tracker.of("validation/accuracy")[0] < 0.7
    assert list(run.tracker.of("reward/mean")) == list(range(1, 61))


def test_every_completion_is_sampled_from_the_newest_weights(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=3), samples)
    train(run.config, run.runtime)
    versions = [
        {example.completion.segments[0].policy_version for example in examples}
        for _, examples in run.policy.updates
    ]
    assert versions == [{1}, {2}, {3}]


def test_mixed_groups_reach_the_update_with_their_source(table, samples, tmp_path):
    config = table.config(tmp_path, steps=2, mixing=MixingConfig(mode=MixingMode.replace))
    run = table.Run(config, samples)
    train(run.config, run.runtime)
    for _, examples in run.policy.updates:
        assert len(examples) == 16  # 4 prompts, groups of 4
        offline = [e for e in examples if e.completion.source is Source.offline]
        with_one = {e.prompt.sample.id for e in examples if e.prompt.sample.offline}
        assert {e.prompt.sample.id for e in offline} == with_one
        assert all(e.completion.token_ids[-1] == table.END for e in offline)
    shares = run.tracker.of("offline/share")
    assert all(0 < share < 1 for share in shares.values())
    assert all(value == 1.0 for value in run.tracker.of("reward/offline").values())


LUFFY = AlgorithmConfig(
    advantage=AdvantageConfig(name=AdvantageName.group_mean),
    offline=OfflineConfig(treatment=OfflineTreatment.luffy),
)
CHORD = AlgorithmConfig(offline=OfflineConfig(treatment=OfflineTreatment.chord, in_baseline=False))


@pytest.mark.parametrize("algorithm", [LUFFY, CHORD])
@pytest.mark.parametrize("mode", [MixingMode.gated, MixingMode.append])
def test_gated_and_appended_answers_reach_the_update(table, samples, tmp_path, mode, algorithm):
    config = table.config(tmp_path, steps=3, mixing=mode, algorithm=algorithm)
    run = table.Run(config, samples)
    train(run.config, run.runtime)
    offline = [
        example
        for _, examples in run.policy.updates
        for example in examples
        if example.completion.source is Source.offline
    ]
    assert offline and all(example.prompt.sample.offline for example in offline)
    lengths = [len(group.completions) for group in run.tracker.groups]
    assert set(lengths) == ({4} if mode is MixingMode.gated else {4, 5})
    share = run.tracker.of("offline/share")
    assert len(share) == 3 and any(share.values())
    assert set(run.tracker.of("offline/dropped")) == {1, 2, 3}
    gated = run.tracker.of("mixing/gated_groups")
    if mode is MixingMode.append:
        assert not gated
        return
    poor = run.tracker.of("mixing/poor_groups")
    assert sum(gated.values()) == len(offline)
    assert all(0 <= gated[step] <= poor[step] <= 4 for step in poor)
    assert run.tracker.of("offline/refused") == {1: 0.0, 2: 0.0, 3: 0.0}


def test_a_step_logs_seconds_by_phase_and_reward_by_task(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=1), samples)
    train(run.config, run.runtime)
    logged = {name for _, metrics in run.tracker.rows for name in metrics}
    phases = ("rollout", "reward", "advantage", "update", "publish", "validate", "step")
    assert {f"seconds/{phase}" for phase in phases} <= logged
    assert {"checkpoint/stall_seconds", "checkpoint/save_seconds", "checkpoint/gb"} <= logged
    assert {"reward/multiple_choice", "data/epoch", "data/dropped", "groups/tied"} <= logged
    assert "advantage/groups_with_signal" in logged


def test_updates_of_both_phases_log_their_rate(table, samples, tmp_path):
    class Counting(table.Policy):
        def update(self, *args, **options):
            return {**super().update(*args, **options), "learner/tokens": 120.0}

    warm_start = WarmStartConfig(steps=1)
    run = table.Run(table.config(tmp_path, steps=1, warm_start=warm_start), samples)
    run.runtime = replace(run.runtime, learner=Counting())
    train(run.config, run.runtime)
    for prefix in ("warm_start/", ""):
        rate = run.tracker.of(f"{prefix}learner/tokens_per_s")[1]
        seconds = run.tracker.of(f"{prefix}seconds/update")[1]
        assert rate * seconds == pytest.approx(120.0)


def refusing_policy(table, refused):
    """A policy whose engine refuses some samples."""

    class Refusing(table.Policy):
        def generate(self, prompts, group_sizes, **which):
            groups = super().generate(prompts, group_sizes, **which)
            pairs = zip(prompts, groups, strict=True)
            return [[] if p.sample.id in refused else group for p, group in pairs]

        def answer(self, prompts, *, validation=True):
            pairs = zip(prompts, super().answer(prompts), strict=True)
            return [None if p.sample.id in refused else answer for p, answer in pairs]

    return Refusing()


def test_prompts_that_the_engine_refuses_are_left_out_and_counted(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=6), samples)
    policy = refusing_policy(table, {"s1", "s2"})
    runtime = replace(run.runtime, sampler=policy, learner=policy)
    accuracy = train(run.config, runtime)
    assert accuracy is not None
    assert run.tracker.of("validation/refused") == {0: 2.0, 6: 2.0}
    assert sum(run.tracker.of("groups/refused").values()) == 2.0, "each is taken once"
    assert run.tracker.of("data/refused/refused_by_engine")[6] == 2.0
    asked = {example.prompt.sample.id for _, examples in policy.updates for example in examples}
    assert asked == {sample.id for sample in samples} - {"s1", "s2"}
    sizes = [len(examples) for _, examples in policy.updates]
    assert sum(sizes) == 4 * (6 * 4 - 2)


def test_samples_that_the_learner_refuses_are_left_out_and_end_the_run_where_they_are_many(
    table, tmp_path
):
    refused = {f"s{index}" for index in range(0, 100, 8)}  # 13 %

    class Refusing(table.Policy):
        def take_refused(self):
            asked = {example.prompt.sample.id for example in self.updates[-1][1]}
            return {name: "its frames are damaged" for name in asked & refused}

    run = table.Run(table.config(tmp_path, steps=100), [table.sample(i) for i in range(100)])
    policy = Refusing()
    with pytest.raises(UserError, match=r"refused_by_learner .*\n.*its frames are damaged"):
        train(run.config, replace(run.runtime, sampler=policy, learner=policy))
    counts = run.tracker.of("data/refused/refused_by_learner")
    updates = [examples for _, examples in policy.updates]
    assert 50 <= 4 * len(updates) < 100 and max(counts) == len(updates) - 1
    asked = {e.prompt.sample.id for examples in updates[:-1] for e in examples}
    assert max(counts.values()) == len(asked & refused) > 0


def test_a_step_whose_prompts_are_all_refused_is_skipped_and_counted(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=3), samples)
    first = {prompt.sample.id for prompt in run.data.take(4)}
    run.data.load_state(run.data.state() | {"consumed": 0})
    policy = refusing_policy(table, first)
    accuracy = train(run.config, replace(run.runtime, sampler=policy, learner=policy))
    assert accuracy is not None
    assert run.tracker.of("groups/skipped_step") == {1: 1.0, 2: 0.0, 3: 0.0}
    assert [len(examples) for _, examples in policy.updates] == [16, 16]
    assert policy.version == 4, "weights were published before and after every step"
    assert list(run.tracker.of("reward/mean")) == [2, 3]


def test_a_refused_prompt_of_validation_counts_as_wrong(table, samples, tmp_path):
    run = table.Run(table.config(tmp_path, steps=1), samples)
    everything = validate(run.runtime, Position(step=1)).validation
    right = sum(
        completion.text == f"<answer>{sample.answer}</answer>"
        for sample, completion in zip(
            samples, run.policy.answer([table.prompt(s) for s in samples]), strict=True
        )
    )
    assert everything == right / 12 and right > 2
    by_answer = [s.id for s in samples if s.answer == "A"]  # what an untrained table says
    policy = refusing_policy(table, set(by_answer[:2]))
    position = validate(replace(run.runtime, sampler=policy), Position(step=1))
    assert position.validation == pytest.approx((right - 2) / 12)
    assert run.tracker.of("validation/refused") == {1: 2.0}

    nobody = refusing_policy(table, {sample.id for sample in samples})
    assert validate(replace(run.runtime, sampler=nobody), position).validation == 0.0


def test_a_warm_start_alone_is_a_run(table, samples, tmp_path):
    config = table.config(tmp_path, steps=0, warm_start=WarmStartConfig(steps=30, batch_size=4))
    run = table.Run(config, samples)
    accuracy = train(run.config, run.runtime)
    assert {objective for objective, _ in run.policy.updates} == {"sft"}
    assert accuracy is not None and accuracy >= 0.5  # half of the samples have a trajectory
    assert run.sealed[-1].name == "warm_start_000030"


def test_something_done_every_few_steps_is_also_done_at_the_last():
    assert [step for step in range(1, 8) if is_due(step, 3, 7)] == [3, 6, 7]
