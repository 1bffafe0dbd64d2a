"""How prompts are spread over engines, and with which settings they are asked."""

from dataclasses import replace

import pytest

from easyvideor1.schema.records import Media, MediaKind
from easyvideor1.train.config import RolloutConfig
from easyvideor1.train.rollout import RaySampler, assign, engine_config


class Recorder:
    """Stands where the engine actors are; answers with what it was asked."""

    def __init__(self, num_engines):
        self.num_engines = num_engines
        self.calls = []

    def __len__(self):
        return self.num_engines

    def each(self, method, calls, *, timeout_s):
        self.calls += [(method, engine, *args) for engine, args in calls]
        return [[request_id] for _, (request_id, *_) in calls]


@pytest.fixture
def prompts(table):
    return [table.prompt(table.sample(index)) for index in range(3)]


def test_samples_about_the_same_media_share_an_engine(table):
    def about(index, path):
        media = (Media(kind=MediaKind.video, path=path),) if path else ()
        return replace(table.sample(index), media=media)

    samples = [about(i, p) for i, p in enumerate(["a", "b", "a", None, None, "b", "c"])]
    assert assign(samples, 2) == [0, 1, 0, 0, 1, 1, 0]
    assert assign(samples, 1) == [0] * 7


def test_a_prompt_is_one_request_with_a_seed_of_its_own(prompts):
    def ask(seed, step):
        engines = Recorder(1)
        RaySampler(engines, RolloutConfig(), seed=seed).generate(prompts, [4, 3, 4], step=step)
        return [settings for _, _, _, _, settings, _ in engines.calls]

    settings = ask(0, 1)
    assert [one.n for one in settings] == [4, 3, 4]
    assert all(one.logprobs and one.top_p == 1.0 and one.top_k == -1 for one in settings)
    seeds = [one.seed for one in settings]
    assert len(set(seeds)) == 3
    assert seeds == [one.seed for one in ask(0, 1)]
    assert not set(seeds) & {one.seed for one in ask(0, 2)}
    assert not set(seeds) & {one.seed for one in ask(1, 1)}


def test_validation_is_greedy_and_on_its_own_budget(prompts):
    engines = Recorder(2)
    answers = RaySampler(engines, RolloutConfig(), seed=0).answer(prompts)
    assert len(answers) == 3
    for _, _, _, _, settings, validation in engines.calls:
        assert settings.temperature == 0.0 and settings.n == 1
        assert validation is True


def test_a_sample_that_stands_twice_in_a_batch_gets_two_request_ids(prompts):
    engines = Recorder(1)
    ids = RaySampler(engines, RolloutConfig(), seed=0).answer([prompts[0], prompts[0]])
    assert len(set(ids)) == 2


def test_an_engine_holds_the_longest_prompt_with_its_answer(table, tmp_path):
    config = table.config(tmp_path, steps=1)
    config.rollout = RolloutConfig(max_prompt_tokens=100, max_new_tokens=20)
    config.model.dtype = "float32"
    assert engine_config(config).max_model_len == 120
    assert engine_config(config).dtype == "float32"
    config.rollout.engine.max_model_len = 300
    config.rollout.engine.dtype = "bfloat16"
    assert engine_config(config).max_model_len == 300
    assert engine_config(config).dtype == "bfloat16"
