"""Offline trajectories in a group, and the trajectories that are refused."""

import pytest

from easyvideor1.schema.records import Source
from easyvideor1.train.mixing import ReplaceSampler
from easyvideor1.train.offline import stable_hash

RIGHT = "<answer>B</answer>"


def test_an_offline_trajectory_takes_one_slot_and_one_less_is_generated(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT])), table.prompt(table.sample(2))]
    mixed = ReplaceSampler(table.Policy(), table.reader(), seed=0)
    with_offline, without = mixed.generate(prompts, [4, 4], step=1)
    assert [c.source for c in with_offline] == [Source.policy] * 3 + [Source.offline]
    assert [c.source for c in without] == [Source.policy] * 4
    assert with_offline[-1].text == RIGHT


def test_nothing_is_mixed_into_the_control_or_a_greedy_answer(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT]))]
    mixed = ReplaceSampler(table.Policy(), table.reader(), seed=0)
    (control,) = mixed.generate(prompts, [4], step=1, shuffled_frames=True)
    assert [c.source for c in control] == [Source.policy] * 4
    (greedy,) = mixed.answer(prompts, validation=False)
    assert greedy is not None and greedy.source is Source.policy


def test_another_draw_of_a_step_samples_the_fresh_completions_anew(table):
    prompts = [table.prompt(table.sample(1, offline=[RIGHT]))]
    mixed = ReplaceSampler(table.Policy(), table.reader(), seed=0)
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
    ],
)
def test_a_trajectory_that_cannot_stand_in_a_group_is_refused_by_sample(table, text, reason):
    reader = table.reader()
    policy = table.Policy()
    sample = table.sample(1, offline=[text])
    for step in (1, 2):  # counted once, however often it is met
        (group,) = ReplaceSampler(policy, reader, seed=0).generate(
            [table.prompt(sample)], [4], step=step
        )
        assert [c.source for c in group] == [Source.policy] * 4
    assert reader.refused == {"s1#0": reason}
    assert reader.metrics() == {
        "offline/refused": 1.0,
        f"offline/refused/{reason}": 1.0,
        "offline/control_text": 0.0,
    }


def test_a_prompt_that_the_engine_refused_has_no_group_at_all(table):
    class RefusesTheFirst(table.Policy):
        def generate(self, prompts, group_sizes, **which):
            return [[], *super().generate(prompts[1:], group_sizes[1:], **which)]

    prompts = [table.prompt(table.sample(i, offline=[RIGHT])) for i in (1, 4)]
    groups = ReplaceSampler(RefusesTheFirst(), table.reader(), seed=0).generate(
        prompts, [4, 4], step=1
    )
    assert [len(group) for group in groups] == [0, 4]


def test_control_text_in_a_trajectory_is_kept_and_counted_once(table):
    reader = table.reader()
    sample = table.sample(1, offline=[f"<|pad|>{RIGHT}"])
    for _ in range(2):
        (usable,) = reader.read(sample)
        assert usable.in_answer == [False, False, True, False, False]
    assert reader.metrics() == {"offline/refused": 0.0, "offline/control_text": 1.0}
    resumed = table.reader()
    resumed.load_state(reader.state())
    assert resumed.metrics() == reader.metrics()


def test_a_hidden_gold_answer_makes_a_trajectory_unscorable(table):
    from dataclasses import replace

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
