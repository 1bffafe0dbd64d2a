"""The stream of prompts: its order, its position, and what it drops."""

from dataclasses import replace

import pytest

from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import UserError
from easyvideor1.train.data import TrainingData
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.left_out import Journal, LeftOut, Reason, UnusableSampleError
from tests.train.conftest import shuffled_order


def ids(prompts: list[Prompt]) -> list[str]:
    return [prompt.sample.id for prompt in prompts]


def open_data(table, samples, *, seed=0, order=None, prompt_of=None, left_out=None, **more):
    return TrainingData(
        samples,
        prompt_of or table.prompt,
        order=order or shuffled_order(samples, seed),
        left_out=left_out or table.left_out(),
        **more,
    )


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


def refusing(table, bad, reason):
    """Prompts of all samples but the bad ones."""

    def prompt_of(sample):
        if sample.id in bad:
            raise UnusableSampleError(reason, f"about {sample.id}")
        return table.prompt(sample)

    return prompt_of


def test_dropped_and_refused_samples_are_counted_once_and_apart(table, samples):
    def prompt_of(sample):
        dropping = refusing(table, {"s3"}, Reason.prompt_too_long)
        refusing(table, {"s1", "s4"}, Reason.not_decodable)(sample)
        return dropping(sample)

    data = open_data(table, samples, prompt_of=prompt_of)
    taken = ids(data.take(27))
    assert not {"s1", "s3", "s4"} & set(taken) and len(taken) == 27
    metrics = data.metrics()
    assert metrics["data/dropped"] == metrics["data/dropped/prompt_too_long"] == 1.0
    assert metrics["data/refused"] == metrics["data/refused/not_decodable"] == 2.0
    assert metrics["data/dropped_share"] == 1 / 12
    assert metrics["data/refused_share"] == 2 / 12
    resumed = open_data(table, samples, prompt_of=prompt_of)
    resumed.load_state(data.state())
    assert resumed.metrics() == metrics


def test_a_sample_that_was_put_right_is_taken_again(table, samples):
    bad = {"s1"}
    data = open_data(table, samples, prompt_of=refusing(table, bad, Reason.not_cached))
    data.take(12)
    assert data.metrics()["data/refused"] == 1.0
    bad.clear()
    assert "s1" in ids(data.take(24))
    assert data.metrics()["data/refused"] == 0.0


@pytest.mark.parametrize("reason", ["refused_by_engine", "refused_by_learner"])
def test_what_an_engine_or_the_learner_refused_is_not_taken_again(table, samples, reason):
    data = open_data(table, samples)
    (prompt, *_) = data.take(12)
    data.refuse({prompt.sample.id: "its frames are damaged"}, Reason(reason))
    assert prompt.sample.id not in ids(data.take(22))
    assert data.metrics()[f"data/refused/{reason}"] == 1.0


def test_too_large_a_share_of_refused_samples_ends_the_run(table):
    samples = [table.sample(i) for i in range(100)]
    bad = {f"s{i}" for i in range(0, 100, 8)}  # 13 %
    data = open_data(table, samples, prompt_of=refusing(table, bad, Reason.not_decodable))
    taken = []
    with pytest.raises(UserError) as caught:
        while True:
            taken += data.take(1)
    assert data.num_drawn >= 50, "a few samples say nothing about the others"
    assert len(taken) < 100
    text = str(caught.value)
    assert f"of {data.num_drawn} samples" in text and "data.max_refused_share=0.1" in text
    (line,) = [line for line in text.splitlines() if line.startswith("  not_decodable")]
    assert sum(f"s{i}" in line for i in range(0, 100, 8)) >= 5
    assert "the first: about s" in text

    enough = open_data(
        table,
        samples,
        prompt_of=refusing(table, bad, Reason.not_decodable),
        left_out=table.left_out(max_share=0.2),
    )
    assert len(enough.take(200)) == 200
    long = open_data(table, samples, prompt_of=refusing(table, bad, Reason.prompt_too_long))
    assert len(long.take(200)) == 200, "being long is no fault"


def test_a_sample_is_told_once_also_in_a_continued_run(table, samples, tmp_path, capsys):
    path = tmp_path / "data_report.jsonl"
    for _ in range(2):
        left_out = LeftOut("data", max_share=0.1, journal=Journal(path, "training"))
        prompt_of = refusing(table, {"s1"}, Reason.placeholders)
        open_data(table, samples, prompt_of=prompt_of, left_out=left_out).take(33)
    assert jsonl.read(path) == [
        {"set": "training", "id": "s1", "reason": "placeholders", "detail": "about s1"}
    ]
    assert capsys.readouterr().out.count("training sample 's1': placeholders: about s1") == 1


def test_rescaled_samples_and_control_text_are_counted_once(table, samples):
    def prompt_of(sample):
        return replace(
            table.prompt(sample),
            rescaled="video.max_pixels 8 -> 4" if sample.id == "s2" else "",
            has_control_text=sample.id in ("s2", "s5"),
        )

    data = open_data(table, samples, prompt_of=prompt_of)
    data.take(36)
    assert data.metrics()["data/rescaled"] == 1.0
    assert data.metrics()["data/control_text"] == 2.0


def test_samples_outside_the_selection_are_passed_over_uncounted(table, samples):
    data = open_data(table, samples, usable=lambda sample: bool(sample.offline))
    assert all(prompt.sample.offline for prompt in data.take(12))
    assert data.metrics()["data/dropped"] == data.metrics()["data/refused"] == 0.0
    assert data.num_drawn == 6, "every second sample has a trajectory"


def test_an_epoch_without_a_usable_sample_ends_with_the_reasons(table, samples):
    every = {sample.id for sample in samples}
    prompt_of = refusing(table, every, Reason.prompt_too_long)
    with pytest.raises(UserError, match=r"no usable sample among 12:\n  prompt_too_long +12  s"):
        open_data(table, samples, prompt_of=prompt_of).take(1)
    with pytest.raises(UserError, match="there are no samples"):
        open_data(table, []).take(1)
