"""Offline trajectories in a group, and the trajectories that are refused."""

import math
from dataclasses import replace

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Group, Sample, Score, Source, Trajectory
from easyvideor1.train.config import MixingConfig, MixingMode, RolloutConfig, TrainConfig
from easyvideor1.train.interfaces import Experience
from easyvideor1.train.mixing import MixedSampler, OfflineGate
from easyvideor1.train.offline import stable_hash

RIGHT, WRONG = "<answer>B</answer>", "<answer>A</answer>"
REPLACE = MixingConfig(mode=MixingMode.replace)


def test_an_offline_trajectory_takes_one_slot_and_one_less_is_generated(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT])), table.prompt(table.sample(2))]
    mixed = MixedSampler(table.Policy(), table.reader(), REPLACE, seed=0)
    with_offline, without = mixed.generate(prompts, [4, 4], step=1)
    assert [c.source for c in with_offline] == [Source.policy] * 3 + [Source.offline]
    assert [c.source for c in without] == [Source.policy] * 4
    assert with_offline[-1].text == RIGHT


def test_nothing_is_mixed_into_the_control_or_a_greedy_answer(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT]))]
    mixed = MixedSampler(table.Policy(), table.reader(), REPLACE, seed=0)
    (control,) = mixed.generate(prompts, [4], step=1, shuffled_frames=True)
    assert [c.source for c in control] == [Source.policy] * 4
    (greedy,) = mixed.answer(prompts, validation=False)
    assert greedy is not None and greedy.source is Source.policy


def test_another_draw_of_a_step_samples_the_fresh_completions_anew(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT]))]
    mixed = MixedSampler(table.Policy(), table.reader(), REPLACE, seed=0)
    (first,), (again,), (other,) = (
        mixed.generate(prompts, [16], step=1, draw=draw) for draw in (0, 0, 1)
    )
    assert first == again != other
    assert first[-1] == other[-1]


def test_an_offline_completion_ends_with_the_real_end_token_and_has_no_log_probs(table):
    (usable,) = table.reader().read(table.sample(1, offline=[RIGHT]))
    assert usable.completion.token_ids == [0, 3, 1, table.END]
    assert usable.completion.logprobs is None
    assert usable.completion.finish_reason == "offline"
    assert usable.in_answer == [False, True, False, False]
    assert usable.score.value == 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A" * 8, "too_long"),
        ("dunno", "score_no_answer"),
        ("", "empty"),
        (f"<|pad|>{RIGHT}", "control_text"),
    ],
)
def test_a_trajectory_that_cannot_stand_in_a_group_is_refused_by_sample(table, text, reason):
    reader = table.reader()
    policy = table.Policy()
    sample = table.sample(1, offline=[text])
    for step in (1, 2):  # counted once, however often it is met
        (group,) = MixedSampler(policy, reader, REPLACE, seed=0).generate(
            [table.prompt(sample)], [4], step=step
        )
        assert [c.source for c in group] == [Source.policy] * 4
    assert reader.refused == {"s1#0": reason}
    assert reader.metrics() == {"offline/refused": 1.0, f"offline/refused/{reason}": 1.0}
    resumed = table.reader()
    resumed.load_state(reader.state())
    assert resumed.metrics() == reader.metrics()


def test_a_prompt_that_the_engine_refused_has_no_group_at_all(table):
    class RefusesTheFirst(table.Policy):
        def generate(self, prompts, group_sizes, **which):
            return [[], *super().generate(prompts[1:], group_sizes[1:], **which)]

    prompts = [table.prompt(table.sample(i, offline=[RIGHT])) for i in (1, 4)]
    groups = MixedSampler(RefusesTheFirst(), table.reader(), REPLACE, seed=0).generate(
        prompts, [4, 4], step=1
    )
    assert [len(group) for group in groups] == [0, 4]


def test_a_hidden_gold_answer_makes_a_trajectory_unscorable(table):
    sample = replace(table.sample(1, offline=[RIGHT]), answer=None)
    reader = table.reader()
    assert reader.read(sample) == []
    assert reader.refused == {"s1#0": "score_error"}


def test_the_longest_trajectory_that_fits_counts_its_end_token(table):
    assert len(table.reader(max_tokens=4).read(table.sample(1, offline=[RIGHT]))) == 1
    assert table.reader(max_tokens=3).read(table.sample(1, offline=[RIGHT])) == []


def test_which_of_several_trajectories_is_taken_depends_on_step_and_seed_alone(table):
    sample = table.sample(1, offline=[f"<answer>{letter}</answer>" for letter in "ABC"])
    reader = table.reader()

    def texts(seed):
        chosen = [reader.choose(sample, seed=seed, step=step) for step in range(30)]
        return [one.completion.text for one in chosen if one is not None]

    assert texts(0) == texts(0)
    assert len(set(texts(0))) == 3
    assert texts(0) != texts(1)


def test_seeds_are_the_same_in_every_process_and_differ_by_sample():
    assert stable_hash(0, 1, "a") == 530165454
    assert len({stable_hash(0, 1, f"s{i}") for i in range(1000)}) == 1000
    assert all(0 <= stable_hash(0, i) < 2**31 for i in range(1000))


# Several trajectories, and behaviour log-probs


LETTERS = [f"<answer>{letter}</answer>" for letter in "ABC"]


@pytest.mark.parametrize(
    ("mode", "num_offline", "num_fresh", "num_mixed"),
    [
        (MixingMode.replace, 1, 3, 1),
        (MixingMode.replace, 2, 2, 2),
        (MixingMode.replace, 3, 1, 3),
        (MixingMode.append, 1, 4, 1),
        (MixingMode.append, 2, 4, 2),
        # no more than the sample has
        (MixingMode.append, 5, 4, 3),
    ],
)
def test_several_trajectories_take_slots_or_come_on_top(
    table, mode, num_offline, num_fresh, num_mixed
):
    prompts = [table.prompt(table.sample(1, offline=LETTERS)), table.prompt(table.sample(2))]
    config = MixingConfig(mode=mode, num_offline=num_offline)
    mixed = MixedSampler(table.Policy(), table.reader(), config, seed=0)
    group, without = mixed.generate(prompts, [4, 4], step=1)
    assert [c.source for c in group] == [Source.policy] * num_fresh + [Source.offline] * num_mixed
    assert len({c.text for c in group[num_fresh:]}) == num_mixed
    assert [c.source for c in without] == [Source.policy] * 4


def test_several_begin_with_the_one_that_would_be_taken_alone(table):
    sample, reader = table.sample(1, offline=LETTERS), table.reader()
    for step in range(9):
        several = reader.choose_several(sample, 2, 0, step)
        assert several[0] == reader.choose(sample, seed=0, step=step)
    assert reader.choose_several(table.sample(1), 2, 0, 1) == []


def with_logprobs(table, *logprobs: float) -> Sample:
    """`<answer>B</answer>` is three tokens."""
    return replace(table.sample(1), offline=(Trajectory(text=RIGHT, logprobs=tuple(logprobs)),))


def test_behaviour_log_probs_reach_the_tokens(table):
    (whole,) = table.reader().read(with_logprobs(table, -1.0, -2.0, -3.0, -4.0))
    assert whole.completion.logprobs == [-1.0, -2.0, -3.0, -4.0]
    # Without one for the end token, which many do not keep, that one is unknown.
    (open_end,) = table.reader().read(with_logprobs(table, -1.0, -2.0, -3.0))
    assert open_end.completion.token_ids == whole.completion.token_ids
    text, end = open_end.completion.segments
    assert text.logprobs == (-1.0, -2.0, -3.0)
    assert end.logprobs is None and end.token_ids == (table.END,)
    assert open_end.in_answer == whole.in_answer


@pytest.mark.parametrize(
    ("logprobs", "reason"),
    [
        ((-1.0, -2.0), "logprobs_of_other_tokens"),
        ((-1.0,) * 5, "logprobs_of_other_tokens"),
        ((-1.0, 0.5, -1.0), "logprobs_invalid"),
        ((-1.0, math.nan, -1.0), "logprobs_invalid"),
        ((-1.0, -math.inf, -1.0), "logprobs_invalid"),
    ],
)
def test_log_probs_that_cannot_be_those_of_the_tokens_refuse_the_trajectory(
    table, logprobs, reason
):
    reader = table.reader()
    assert reader.read(with_logprobs(table, *logprobs)) == []
    assert reader.refused == {"s1#0": reason}


# Gated


def experience_of(table, texts: list[str], *, offline: list[str]) -> Experience:
    sample = table.sample(1, offline=offline)
    completions = tuple(replace(table.Policy()._completion(0, 0.0), text=text) for text in texts)
    values = [float(text == RIGHT) for text in texts]
    return Experience(
        prompt=table.prompt(sample),
        group=Group(
            sample=sample,
            completions=completions,
            scores=tuple(Score(value=v, parts={"accuracy": v}) for v in values),
        ),
    )


def gate(table, **fields) -> OfflineGate:
    return OfflineGate(table.reader(), MixingConfig(mode=MixingMode.gated, **fields), seed=0)


def test_only_poor_groups_are_given_offline_completions_and_they_keep_their_scores(table):
    fair = experience_of(table, [RIGHT, WRONG, RIGHT, WRONG], offline=[RIGHT])
    poor = experience_of(table, [RIGHT, WRONG, WRONG, WRONG], offline=[RIGHT])
    bare = experience_of(table, [WRONG] * 4, offline=[])
    refused = experience_of(table, [WRONG] * 4, offline=["dunno"])
    gated = gate(table, accuracy_below=0.5)([fair, poor, bare, refused], step=1)
    assert (gated.num_poor, gated.num_mixed) == (3, 1)
    first, second, third, fourth = gated.experiences
    assert first is fair and third is bare and fourth is refused
    assert second.group.completions[:3] == poor.group.completions[:3]
    assert second.group.scores[:3] == poor.group.scores[:3]
    offline = second.group.completions[3]
    assert offline.source is Source.offline and offline.text == RIGHT
    # The score is the reader's, equal to what a second reward pass would say.
    from easyvideor1.rewards import RewardConfig
    from easyvideor1.train.scorer import score_completions

    (again,) = score_completions([(second.group.sample, offline)], RewardConfig())
    assert second.group.scores[3] == again and again.value == 1.0


def test_which_completions_make_way_does_not_depend_on_their_rewards(table):
    for texts in ([RIGHT, WRONG, WRONG, WRONG], [WRONG, WRONG, WRONG, RIGHT]):
        poor = experience_of(table, texts, offline=LETTERS)
        (mixed,) = gate(table, num_offline=2)([poor], step=1).experiences
        assert mixed.group.completions[:2] == poor.group.completions[:2]
        assert [c.source for c in mixed.group.completions[2:]] == [Source.offline] * 2


def test_a_score_without_accuracy_cannot_be_gated(table):
    poor = experience_of(table, [WRONG], offline=[RIGHT])
    unknown = replace(poor, group=replace(poor.group, scores=(Score(value=0.0, parts={"f": 1.0}),)))
    with pytest.raises(UserError, match=r"s1: mixing=gated reads the part accuracy.* has f"):
        gate(table)([unknown], step=1)


# The config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_offline": 0}, "num_offline"),
        ({"accuracy_below": 0.0}, "accuracy_below"),
        ({"accuracy_below": 1.5}, "accuracy_below"),
    ],
)
def test_settings_without_meaning_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        MixingConfig(mode=MixingMode.gated, **fields)


def config_of(group_size: int, **mixing) -> TrainConfig:
    return TrainConfig(
        output_dir="", rollout=RolloutConfig(group_size=group_size), mixing=MixingConfig(**mixing)
    )


@pytest.mark.parametrize("mode", [MixingMode.replace, MixingMode.gated])
def test_a_group_keeps_sampled_completions(mode):
    assert config_of(4, mode=mode, num_offline=3).mixing.num_offline == 3
    with pytest.raises(UserError, match=r"leaves 0 sampled completions of rollout.group_size=4"):
        config_of(4, mode=mode, num_offline=4)
    assert config_of(4, mode=MixingMode.append, num_offline=4).mixing.num_offline == 4
