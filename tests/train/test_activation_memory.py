"""Reported activation memory is what the backward pass holds on to."""

import pytest
import torch
from torch import nn

from easyvideor1.train.activation_memory import ActivationMeter, peak_bytes
from tests.train.policy_cases import answer_ids, example, family_at, group, make_learner

MB = 1e6


def test_each_storage_counts_once_and_weights_do_not():
    """Worked by hand: a ReLU saves its output, a layer its input, which is the same tensor."""
    first, second = nn.Linear(100, 1000), nn.Linear(1000, 10)
    inputs = torch.randn(50, 100)
    meter = ActivationMeter()
    with meter.measure():
        loss = (second(first(inputs).relu()) ** 2).sum()
    assert meter.num_bytes == 4 * (50 * 100 + 50 * 1000 + 50 * 10)
    loss.backward()
    expected = torch.autograd.grad((second(first(inputs).relu()) ** 2).sum(), first.weight)[0]
    assert torch.equal(first.weight.grad, expected)


def texts(path, count: int) -> list:
    """Answers of one length to one question, which are sequences of one length."""
    family = family_at(path)
    return [example(family, "text", answer_ids(family, 30, seed=i)) for i in range(count)]


def activation_gb(path, count: int, **fields) -> float:
    metrics = make_learner(path, **fields).update(texts(path, count))
    return metrics["learner/activation_gb"]


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_a_doubled_batch_doubles_it_and_recomputing_lowers_it(sharp_models, family):
    path = sharp_models(family)
    once, twice = activation_gb(path, 4), activation_gb(path, 8)
    assert once > 1e-3
    assert twice == pytest.approx(2 * once, rel=0.1)
    recomputed = activation_gb(path, 8, activation_checkpointing=True)
    assert 0 < recomputed < 0.5 * twice


def test_only_the_first_micro_batch_is_measured(sharp_model_path):
    whole = activation_gb(sharp_model_path, 2)
    cut = activation_gb(sharp_model_path, 8, micro_batch_tokens=2 * sequence(sharp_model_path))
    assert cut == pytest.approx(whole, rel=1e-6)


def sequence(path) -> int:
    [one] = texts(path, 1)
    return one.prompt.num_tokens + len(one.completion.token_ids)


def test_the_peak_of_the_process_grows_with_what_it_holds(sharp_model_path):
    metrics = make_learner(sharp_model_path).update(
        group(family_at(sharp_model_path), "video", (4,))
    )
    before = peak_bytes(torch.device("cpu"))
    assert metrics["learner/peak_memory_gb"] == pytest.approx(before / 1e9, rel=0.05)
    held = torch.ones(int(before / 4) + int(100 * MB))  # as much again and more, in float32
    assert peak_bytes(torch.device("cpu")) > before + 50 * MB
    del held
