"""The stream of prompts: its order, its position, and what it drops."""

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.train.data import TrainingData, UnusableSampleError
from easyvideor1.train.interfaces import Prompt


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.sample.id for prompt in prompts]


def open_data(table, samples, *, seed=0, prompt_of=None, **more):
    return TrainingData(samples, prompt_of or table.prompt, seed=seed, max_prompt_tokens=10, **more)


def test_each_epoch_has_every_sample_once_in_another_order(table, samples):
    data = open_data(table, samples)
    first, second = ids(data.take(12)), ids(data.take(12))
    assert sorted(first) == sorted(second) == sorted(s.id for s in samples)
    assert first != second
    assert data.metrics()["data/epoch"] == 2.0


def test_the_order_depends_on_the_seed_alone(table, samples):
    assert ids(open_data(table, samples).take(30)) == ids(open_data(table, samples).take(30))
    assert ids(open_data(table, samples).take(12)) != ids(
        open_data(table, samples, seed=1).take(12)
    )


def test_a_stream_continues_from_its_state(table, samples):
    straight = open_data(table, samples)
    expected = ids(straight.take(20))[7:]
    first = open_data(table, samples)
    first.take(7)
    resumed = open_data(table, samples)
    resumed.load_state(first.state())
    assert ids(resumed.take(13)) == expected


def test_a_state_of_other_files_is_refused(table, samples):
    state = open_data(table, samples).state()
    with pytest.raises(UserError, match="12 samples, the files now hold 11"):
        open_data(table, samples[:11]).load_state(state)


def test_prompts_that_are_too_long_are_dropped_and_counted_once(table, samples):
    def prompt_of(sample):
        length = 11 if sample.id == "s3" else 10
        return Prompt(sample=sample, token_ids=[1], num_tokens=length, num_patches=0)

    data = open_data(table, samples, prompt_of=prompt_of)
    taken = ids(data.take(33))
    assert "s3" not in taken and len(taken) == 33
    assert data.metrics()["data/dropped/prompt_too_long"] == 1.0


def test_a_sample_that_cannot_be_asked_is_dropped_with_its_reason(table, samples):
    def prompt_of(sample):
        if sample.id == "s1":
            raise UnusableSampleError("media_failed")
        return table.prompt(sample)

    data = open_data(table, samples, prompt_of=prompt_of)
    data.take(12)
    assert data.metrics()["data/dropped/media_failed"] == 1.0
    assert data.state()["dropped"] == {"s1": "media_failed"}


def test_samples_outside_the_selection_are_passed_over_uncounted(table, samples):
    data = open_data(table, samples, usable=lambda sample: bool(sample.offline))
    assert all(prompt.sample.offline for prompt in data.take(12))
    assert data.metrics()["data/dropped"] == 0.0


def test_an_epoch_without_a_usable_sample_ends_with_the_reasons(table, samples):
    def prompt_of(sample):
        return Prompt(sample=sample, token_ids=[1], num_tokens=99, num_patches=0)

    with pytest.raises(UserError, match="no usable sample among 12 \\(12 prompt_too_long"):
        open_data(table, samples, prompt_of=prompt_of).take(1)
    with pytest.raises(UserError, match="there are no samples"):
        open_data(table, []).take(1)
