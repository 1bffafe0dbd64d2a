"""What a step collects: dynamic sampling, greedy answers and completions without the order."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Group, Media, MediaKind, Sample, Score, ScoreStatus, Source
from easyvideor1.train.algorithm_config import (
    AdvantageConfig,
    AdvantageName,
    AlgorithmConfig,
    DynamicSamplingConfig,
)
from easyvideor1.train.collection import collect, has_spread, num_to_draw
from easyvideor1.train.config import MixingConfig, MixingMode
from easyvideor1.train.interfaces import Experience, Prompt
from easyvideor1.train.left_out import Reason
from easyvideor1.train.loop import train
from easyvideor1.train.metrics import Stopwatch, summarize
from easyvideor1.train.mixing import MixedSampler, OfflineGate

REPLACE = MixingConfig(mode=MixingMode.replace)
RIGHT, WRONG = "R", "W"


@dataclass
class Call:
    """One call of `generate`."""

    sample_ids: list[str]
    sizes: list[int]
    which: dict[str, Any]


class Scripted:
    """Sampler, data stream and scorer whose answers are written down by sample id.

    `script["s3"] = "RWWR"` are four completions of which two are right; "" is refused. Samples come
    in the order of the script, over and over.
    """

    def __init__(self, table: Any, script: dict[str, str], **samples: Any):
        self.table = table
        self.script = script
        self.calls: list[Call] = []
        self.greedy: list[tuple[list[str], bool]] = []
        self.refused: list[str] = []
        self.num_taken = 0
        about = [replace(table.sample(int(name[1:])), **samples) for name in script]
        self._stream = itertools.cycle([table.prompt(sample) for sample in about])

    # Data

    def take(self, count: int) -> list[Prompt]:
        self.num_taken += count
        return list(itertools.islice(self._stream, count))

    def refuse(self, details: Mapping[str, str], reason: Reason) -> None:
        assert reason is Reason.refused_by_engine
        self.refused += details

    # Sampler

    def generate(self, prompts: Sequence[Prompt], group_sizes: Sequence[int], **which: Any) -> Any:
        self.calls.append(Call([p.sample.id for p in prompts], list(group_sizes), which))
        return [
            [self._completion(answer) for answer in self.script[p.sample.id][:size]]
            for p, size in zip(prompts, group_sizes, strict=True)
        ]

    def answer(self, prompts: Sequence[Prompt], *, validation: bool = True) -> Any:
        self.greedy.append(([p.sample.id for p in prompts], validation))
        answers = [self.script[p.sample.id][-1] for p in prompts]
        return [None if answer == "?" else self._completion(answer) for answer in answers]

    def _completion(self, answer: str) -> Any:
        completion = self.table.Policy()._completion(0, 0.0)
        return replace(completion, text=answer)

    # Scorer

    def score(self, answers: Any) -> list[Score]:
        return [
            Score(value=v, parts={"accuracy": v, "format": 1.0})
            for v in (
                float(completion.text in (RIGHT, "<answer>B</answer>")) for _, completion in answers
            )
        ]

    @property
    def runtime(self) -> Any:
        return SimpleNamespace(data=self, sampler=self, score=self.score, gate=None)


@pytest.fixture
def config(table: Any, tmp_path: Path) -> Any:
    """Batches of four prompts, groups of four."""
    return table.config(tmp_path, steps=1)


def dynamic(config: Any, **rule: Any) -> Any:
    rule = {"enabled": True} | rule
    config.algorithm = AlgorithmConfig(dynamic_sampling=DynamicSamplingConfig(**rule))
    return config


def collected(config: Any, scripted: Scripted, step: int = 1, **runtime: Any) -> Any:
    parts = SimpleNamespace(**vars(scripted.runtime) | runtime)
    return collect(config, parts, step=step, clock=Stopwatch())


def ids(experiences: Sequence[Experience]) -> list[str]:
    return [experience.prompt.sample.id for experience in experiences]


# Without dynamic sampling


def test_a_step_takes_one_batch_whatever_its_groups_say(table, config):
    scripted = Scripted(table, {"s0": "RRRR", "s1": "", "s2": "WWWW", "s3": "RWRW"})
    clock = Stopwatch()
    got = collect(config, scripted.runtime, step=5, clock=clock)
    assert ids(got.experiences) == ["s0", "s2", "s3"]
    assert [e.group.rewards for e in got.experiences] == [[1] * 4, [0] * 4, [1, 0, 1, 0]]
    assert scripted.num_taken == 4
    assert got.metrics == {"groups/refused": 1.0, "rollout/tokens": 24.0}
    assert scripted.refused == ["s1"]
    (call,) = scripted.calls
    assert call.sizes == [4] * 4 and call.which == {"step": 5, "draw": 0}
    assert {"seconds/rollout", "seconds/reward"} <= clock.seconds().keys()
    assert all(e.greedy is None and e.control == () for e in got.experiences)


def test_a_step_whose_prompts_are_all_refused_has_no_experience(table, config):
    got = collected(config, Scripted(table, {"s0": "", "s1": ""}))
    assert got.experiences == []
    assert got.metrics == {"groups/refused": 4.0, "rollout/tokens": 0.0}
    assert summarize(got.experiences) == {"groups/skipped_step": 1.0}


# Dynamic sampling


def test_groups_without_spread_are_replaced_by_further_prompts(table, config):
    script = {
        **{"s0": "RRRR", "s1": "RWWW", "s2": "WWWW", "s3": ""},
        **{"s4": "RRRW", "s5": "RRRR", "s6": "RRWW", "s7": "WWWR"},
    }
    scripted = Scripted(table, script)
    got = collected(dynamic(config), scripted)
    assert ids(got.experiences) == ["s1", "s4", "s6", "s7"]
    assert [call.which["draw"] for call in scripted.calls] == [0, 1]
    assert scripted.refused == ["s3"] and scripted.num_taken == 8
    assert got.metrics == {
        "groups/refused": 1.0,
        "rollout/tokens": 56.0,
        "dynamic_sampling/draws": 2.0,
        "dynamic_sampling/prompts": 8.0,
        "dynamic_sampling/without_spread": 3.0,
        "dynamic_sampling/all_right": 2.0,
        "dynamic_sampling/all_wrong": 1.0,
        "dynamic_sampling/surplus": 0.0,
        # 4 + 1 + 0 + 3 + 4 + 2 + 1 of 28 completions, those of replaced groups included.
        "dynamic_sampling/accuracy": pytest.approx(15 / 28),
    }


def test_a_full_batch_is_one_draw(table, config):
    scripted = Scripted(table, {"s0": "RWWW"})
    got = collected(dynamic(config), scripted)
    assert len(got.experiences) == 4 and len(scripted.calls) == 1
    assert got.metrics["dynamic_sampling/draws"] == 1.0


def test_what_comes_after_the_batch_is_full_is_dropped_and_counted(table, config):
    script = {**{f"s{i}": "RRRR" for i in range(3)}, **{f"s{i}": "RW" for i in range(3, 8)}}
    got = collected(dynamic(config), Scripted(table, script))
    assert ids(got.experiences) == ["s3", "s4", "s5", "s6"]
    assert got.metrics["dynamic_sampling/surplus"] == 1.0


def test_a_draw_has_as_many_prompts_as_will_probably_do():
    assert num_to_draw(32, 0, 0, at_most=32) == 32
    assert num_to_draw(2, 30, 32, at_most=32) == 3
    assert num_to_draw(22, 10, 32, at_most=32) == 32
    assert num_to_draw(5, 11, 47, at_most=32) == 20
    assert num_to_draw(32, 0, 64, at_most=32) == 32


@pytest.mark.parametrize(
    ("share", "max_draws"),
    # The batch is full when 1/share batches were drawn, but for the last draw's rounding.
    [(2, 3), (3, 4), (6, 7)],
)
def test_few_groups_with_spread_fill_a_batch_in_few_draws(table, config, share, max_draws):
    config.rollout.batch_size = 60
    script = {f"s{i}": "RWWW" if i % share == 0 else "WWWW" for i in range(600)}
    got = collected(dynamic(config, max_draws=max_draws), Scripted(table, script))
    assert len(got.experiences) == 60
    assert len(set(ids(got.experiences))) == 60


def test_a_batch_that_is_never_full_ends_the_run_with_counts_and_advice(table, config):
    script = {"s0": "RRRR", "s1": "RRRR", "s2": "WWWW", "s3": "", "s4": "RWWW"}
    scripted = Scripted(table, script)
    with pytest.raises(UserError) as error:
        collected(dynamic(config, max_draws=2), scripted)
    text = str(error.value)
    assert len(scripted.calls) == 2
    assert "found 1 of 4 groups that differ in accuracy" in text
    assert "max_draws=2 rollouts: 8 prompts drawn, 1 refused by the engine" in text
    assert "6 without spread (4 all right, 2 all wrong, 0 the same in between)" in text
    assert "data.filter='0 < pass_rate < 1'" in text
    assert "raise rollout.group_size=4" in text
    own, anew = text.split("in a new one, with another run_name")
    assert "a larger algorithm.dynamic_sampling.max_draws" in own and "enabled=false" in own
    assert not any(name in own for name in ("data.filter", "group_size"))
    assert "dynamic_sampling" not in anew
    assert "warm_start" not in text, "no advice for a policy that knows nothing"


def test_a_policy_that_knows_nothing_is_told_of_the_warm_start(table, config):
    with pytest.raises(UserError, match=r"train\.warm_start\.steps.*mixing=replace"):
        collected(dynamic(config, max_draws=1), Scripted(table, {"s0": "WWWW"}))


def experience(table: Any, accuracies: Sequence[float], **parts: Sequence[float]) -> Experience:
    prompt = table.prompt(table.sample(1))
    columns = {"accuracy": accuracies, **parts}
    scores = [
        Score(value=0.0, parts=dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]
    completion = table.Policy()._completion(0, 0.0)
    group = Group(
        sample=prompt.sample, completions=(completion,) * len(scores), scores=tuple(scores)
    )
    return Experience(prompt=prompt, group=group)


@pytest.mark.parametrize(
    ("accuracies", "spread"),
    [([1, 1, 1], False), ([0, 0], False), ([0.4, 0.4], False), ([0.4, 0.5], True), ([0, 1], True)],
)
def test_spread_is_looked_for_in_the_named_part_alone(table, accuracies, spread):
    count = range(len(accuracies))
    one = experience(table, accuracies, format=list(count), brevity=[1.0 for _ in count])
    assert has_spread(one, "accuracy") == spread
    assert has_spread(one, "format")
    assert not has_spread(one, "brevity")


def test_a_part_that_a_reward_lacks_is_named_with_those_it_has(table, config):
    with pytest.raises(
        UserError, match=r"sample s0: its reward has no part 'tool'.*accuracy, format"
    ):
        collected(dynamic(config, key="tool"), Scripted(table, {"s0": "RWRW"}))


def test_an_answer_whose_scoring_failed_has_nothing_of_a_named_part(table):
    one = experience(table, [0.0, 0.0], tool=[0.0, 0.0])
    failed = Score(value=0.0, parts={"accuracy": 0.0}, status=ScoreStatus.timeout)
    group = replace(one.group, scores=(*one.group.scores[:1], failed))
    assert not has_spread(replace(one, group=group), "tool")
    used = replace(one.group.scores[0], parts={"accuracy": 0.0, "tool": 1.0})
    assert has_spread(replace(one, group=replace(group, scores=(used, failed))), "tool")


@pytest.mark.parametrize(
    ("fresh", "is_kept"),
    [("WWW", True), ("RRR", False), ("RWW", True)],
)
def test_a_right_offline_answer_makes_a_group_of_wrong_ones_worth_training(
    table, config, fresh, is_kept
):
    """The group's advantages are computed over all of them."""
    scripted = Scripted(
        table, {"s1": fresh}, offline=table.sample(1, offline=["<answer>B</answer>"]).offline
    )
    mixed = MixedSampler(scripted, table.reader(), REPLACE, seed=0)  # type: ignore[arg-type]
    if not is_kept:
        with pytest.raises(UserError, match="4 all right"):
            collected(dynamic(config, max_draws=1), scripted, sampler=mixed)
        return
    got = collected(dynamic(config, max_draws=1), scripted, sampler=mixed)
    sources = [c.source for c in got.experiences[0].group.completions]
    assert sources == [Source.policy] * 3 + [Source.offline]


def test_gated_groups_are_mixed_after_the_reward_and_before_they_are_kept(table, config):
    offline = table.sample(1, offline=["<answer>B</answer>"]).offline
    scripted = Scripted(table, {"s1": "WWWW", "s4": "RWRR"}, offline=offline)
    gate = OfflineGate(table.reader(), MixingConfig(mode=MixingMode.gated), seed=0)
    got = collected(dynamic(config, max_draws=1), scripted, gate=gate)
    assert ids(got.experiences) == ["s1", "s4", "s1", "s4"]
    sources = [[c.source for c in e.group.completions] for e in got.experiences[:2]]
    assert sources == [[Source.policy] * 3 + [Source.offline], [Source.policy] * 4]
    assert all(call.sizes == [4] * 4 for call in scripted.calls)
    assert got.metrics["mixing/poor_groups"] == 2.0
    assert got.metrics["mixing/gated_groups"] == 2.0
    assert got.metrics["offline/refused"] == 0.0


# Greedy answers and controls


def remax(config: Any, group_size: int = 1) -> Any:
    config.algorithm = AlgorithmConfig(advantage=AdvantageConfig(name=AdvantageName.remax))
    config.rollout.group_size = group_size
    return config


def test_remax_scores_the_greedy_answer_on_the_budget_of_training(table, config):
    scripted = Scripted(table, {"s0": "RW", "s1": "WR", "s2": "WW", "s3": "RR"})
    got = collected(remax(config), scripted)
    assert [e.group.rewards for e in got.experiences] == [[1], [0], [0], [1]]
    greedy = [e.greedy.parts["accuracy"] for e in got.experiences if e.greedy is not None]
    assert greedy == [0, 1, 0, 1]
    assert scripted.greedy == [(["s0", "s1", "s2", "s3"], False)]
    assert summarize(got.experiences)["reward/greedy/accuracy"] == 0.5


def test_a_prompt_without_a_greedy_answer_has_no_baseline_and_is_left_out(table, config):
    scripted = Scripted(table, {"s0": "RW", "s1": "R?", "s2": "WW", "s3": "RR"})
    got = collected(remax(config), scripted)
    assert ids(got.experiences) == ["s0", "s2", "s3"]
    assert scripted.refused == ["s1"]
    assert got.metrics == {"groups/refused": 1.0, "rollout/tokens": 14.0}


VIDEO = (Media(kind=MediaKind.image, path="a.png"), Media(kind=MediaKind.video, path="a.mp4"))
IMAGE = (Media(kind=MediaKind.image, path="a.png"),)


def t_grpo(config: Any, **options: Any) -> Any:
    advantage = AdvantageConfig(name=AdvantageName.t_grpo, **options)
    config.algorithm = AlgorithmConfig(advantage=advantage)
    return config


@pytest.mark.parametrize(("options", "size"), [({}, 2), ({"control_size": 3}, 3)])
def test_t_grpo_asks_again_with_the_frames_shuffled(table, config, options, size):
    scripted = Scripted(table, {"s0": "RWWR", "s1": "WRRR"}, media=VIDEO)
    got = collected(t_grpo(config, **options), scripted, step=7)
    ordered, control = scripted.calls
    assert ordered.which == {"step": 7, "draw": 0}
    assert control.which == {"step": 7, "shuffled_frames": True}
    assert control.sizes == [size] * 4
    assert [len(e.group.completions) for e in got.experiences] == [4] * 4
    accuracies = [[s.parts["accuracy"] for s in e.control] for e in got.experiences[:2]]
    assert accuracies == [[1, 0, 0][:size], [0, 1, 1][:size]]


def test_what_shows_no_video_has_no_control(table, config):
    scripted = Scripted(table, {"s0": "RWWR", "s1": "WWRR"}, media=IMAGE)
    got = collected(t_grpo(config), scripted)
    assert all(e.control == () for e in got.experiences)
    assert scripted.calls[-1].sample_ids == []
    assert not any(name.startswith("reward/control") for name in summarize(got.experiences))


def test_controls_belong_to_their_prompts_among_others(table, config):
    scripted = Scripted(
        table, {f"s{i}": answers for i, answers in enumerate(("RR", "RW", "WW", "WR"))}
    )
    scripted._stream = itertools.cycle(
        table.prompt(replace(table.sample(i), media=VIDEO if i % 2 else IMAGE)) for i in range(4)
    )
    got = collected(t_grpo(config), scripted)
    accuracies = [[s.parts["accuracy"] for s in e.control] for e in got.experiences]
    assert accuracies == [[], [1, 0], [], [0, 1]]
    assert summarize(got.experiences)["reward/control/accuracy"] == 0.5


def test_greedy_answers_and_controls_are_asked_for_kept_groups_alone(table, config):
    rule = DynamicSamplingConfig(enabled=True)
    script = {"s0": "RRRR", "s1": "RWWW", "s2": "WWWW", "s3": "RRRW"}
    for name in (AdvantageName.remax, AdvantageName.t_grpo):
        config.algorithm = AlgorithmConfig(
            advantage=AdvantageConfig(name=name), dynamic_sampling=rule
        )
        scripted = Scripted(table, script, media=VIDEO)
        got = collected(config, scripted)
        asked = scripted.greedy[-1][0] if scripted.greedy else scripted.calls[-1].sample_ids
        assert asked == ids(got.experiences)
        assert set(asked) == {"s1", "s3"}


# In the loop


def test_the_loop_learns_under_dynamic_sampling(table, samples: list[Sample], tmp_path):
    config = dynamic(table.config(tmp_path, steps=25))
    run = table.Run(config, samples)
    accuracy = train(run.config, run.runtime)
    assert accuracy is not None and accuracy >= 0.8
    assert all(len(examples) == 16 for _, examples in run.policy.updates)
    assert set(run.tracker.of("groups/tied").values()) == {0.0}
    assert max(run.tracker.of("dynamic_sampling/draws").values()) > 1
