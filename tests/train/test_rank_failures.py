"""A rank that fails ends the run: with its number and its sample, and without leaving a process."""

import json
from pathlib import Path

import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.train.actors import ActorFailedError
from easyvideor1.train.failures import RankFailedError, SampleFailedError, at_samples, on_rank
from tests.train.faulty_rank import FAULT, FaultyRank
from tests.train.policy_cases import family_at, group
from tests.train.ray_ranks import learner_on_two_ranks
from tests.train.run_process import started
from tests.train.test_real_run import composed


def test_an_error_carries_its_samples_and_then_its_rank():
    with pytest.raises(RankFailedError) as caught, on_rank(3), at_samples(["a", "b"]):
        raise ZeroDivisionError("by hand")
    error = caught.value
    assert (error.rank, error.sample_ids) == (3, ("a", "b"))
    assert str(error) == "rank 3 at samples a, b: ZeroDivisionError('by hand')"
    assert isinstance(error.__cause__, SampleFailedError)
    with pytest.raises(RankFailedError, match=r"^rank 0: KeyError\('x'\)$"), on_rank(0):
        raise KeyError("x")
    named = pytest.raises(RankFailedError, match="samples a, b, c and 2 more: ")
    with named, on_rank(0), at_samples(list("abcde")):
        raise KeyError("x")


def test_an_input_error_stays_one_and_carries_the_rank():
    named = pytest.raises(UserError, match=r"^learner rank 2: sample a: too long$")
    with named, on_rank(2), at_samples(["a"]):
        raise UserError("sample a: too long")


@pytest.mark.timeout(300)
def test_an_error_of_a_rank_reaches_the_driver_with_rank_and_sample(
    tiny_model_path, toybox_dir, tmp_path, monkeypatch
):
    monkeypatch.setenv(FAULT, "raise")
    config = composed(
        tiny_model_path, toybox_dir, tmp_path, "learner.ranks=2", "learner.timeout_s=120"
    )
    family = family_at(Path(tiny_model_path))
    # The longer group goes to rank 0; rank 1 gets the other one, and fails.
    examples = [*group(family, "text", (9, 9)), *group(family, "other text", (3, 3))]
    logs = tmp_path / "logs"
    failing = pytest.raises(ActorFailedError)
    with learner_on_two_ranks(FaultyRank, config, logs) as learner, failing as error:
        learner.update(examples)
    assert "learner: update failed on rank 1 at sample other text: OSError(5" in str(error.value)
    trace = (logs / "failures.log").read_text()
    assert "the disk is gone" in trace and "faulty_rank.py" in trace


EXPECTED = {
    "raise": ["update failed on rank 1 at sample", "the disk is gone"],
    "die": ["learner: process 1 of 2 died during update"],
    "hang": ["update took longer than 20 s in process 0, 1 of 2", "learner.timeout_s"],
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", EXPECTED)
def test_the_command_ends_with_a_reason_and_leaves_no_process(
    fault, tiny_model_path, toybox_dir, tmp_path
):
    overrides = [
        f"model.path={tiny_model_path}",
        "model.build=null",
        "data.toybox=null",
        f"data.train=[{toybox_dir / 'train.jsonl'}]",
        "data.validation=[]",
        "rollout.batch_size=4",
        "rollout.group_size=2",
        "rollout.max_new_tokens=8",
        "learner.ranks=2",
        "learner.timeout_s=20",
        "train.steps=1",
        "tracking.mlflow=false",
    ]
    faulty = ("-m", "tests.train.faulty_rank")
    with started(overrides, tmp_path, program=faulty, **{FAULT: fault}) as run:
        assert run.end() == 2
        assert run.left_over() == []

    paragraph = run.last_words
    assert paragraph.startswith("evr-train: learner: "), run.output[-3000:]
    for words in EXPECTED[fault]:
        assert words in paragraph
    if fault == "raise":
        rows = (toybox_dir / "train.jsonl").read_text().splitlines()
        assert any(f"at sample {json.loads(row)['id']}: " in paragraph for row in rows)
