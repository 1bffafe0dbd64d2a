"""The toybox asks questions of all fifteen types; each of its gold answers has a reward of 1."""

import pytest

from easyvideor1.preprocess import toybox
from easyvideor1.preprocess.config import ToyboxConfig
from easyvideor1.rewards import RewardConfig, instruction, render_gold, score_many
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import ProblemType, Sample, ScoreStatus


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("toybox")
    config = ToyboxConfig(
        train_clips=4, train_events=4, validation_clips=0, validation_events=0, every_type_clips=4
    )
    toybox.build(config, folder)
    files = [folder / "every_type.jsonl", folder / "train.jsonl"]
    return list(read_samples(files))


def test_every_gold_answer_of_every_type_scores_1(samples: list[Sample]) -> None:
    assert {sample.problem_type for sample in samples} == set(ProblemType)
    assert all(instruction(sample) for sample in samples)
    answers = [(sample, f"As the video shows: {render_gold(sample)}") for sample in samples]
    for sample, score in zip(samples, score_many(answers, RewardConfig()), strict=True):
        assert score.status is ScoreStatus.ok, (sample.id, score)
        assert score.parts["accuracy"] == pytest.approx(1.0, abs=1e-9), (sample.id, score)
        assert score.value == pytest.approx(1.0, abs=1e-9), (sample.id, score)


def test_another_clips_gold_answer_scores_less(samples: list[Sample]) -> None:
    for kind in ProblemType:
        of_kind = [sample for sample in samples if sample.problem_type is kind]
        pairs = [
            (sample, render_gold(other))
            for sample in of_kind
            for other in of_kind
            if other.answer != sample.answer and other.options == sample.options
        ]
        assert pairs, kind
        assert all(score.parts["accuracy"] < 1 for score in score_many(pairs, RewardConfig())), kind
