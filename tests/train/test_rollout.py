"""How prompts are spread over engines, how they are asked, and what becomes of refused ones."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from easyvideor1.evaluate.config import SamplingSettings
from easyvideor1.evaluate.engine_request import (
    EngineDiedError,
    EngineResult,
    RequestFailedError,
    RequestRefusedError,
)
from easyvideor1.preprocess.errors import MissingClipError
from easyvideor1.preprocess.store import LoadCounts
from easyvideor1.schema.records import Completion, Media, MediaKind, Segment
from easyvideor1.train.config import RolloutConfig, Seeding
from easyvideor1.train.rollout import (
    Ask,
    EngineActor,
    RaySampler,
    Refusal,
    assign,
    engine_config,
    load_clips,
)
from easyvideor1.train.slots import NUM_PREPARED, Slots
from tests.clips import image, video


class Recorder:
    """Stands where the engine actors are; answers with what it was asked."""

    def __init__(self, num_engines, refused=()):
        self.num_engines = num_engines
        self.refused = refused
        self.calls = []

    def __len__(self):
        return self.num_engines

    def each(self, method, calls, *, timeout_s):
        self.calls += [(method, engine, *args) for engine, args in calls]
        return [
            Refusal(reason="8 tokens against 9")
            if ask.prompt.sample.id in self.refused
            else [ask.request_id]
            for _, (ask,) in calls
        ]

    def all(self, method, *, timeout_s):
        assert method == "load_counts"
        return [LoadCounts() for _ in range(self.num_engines)]


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
        return [asked.settings for _, _, asked in engines.calls]

    settings = ask(0, 1)
    assert [one.n for one in settings] == [4, 3, 4]
    assert all(one.logprobs and one.top_p == 1.0 and one.top_k == -1 for one in settings)
    seeds = [one.seed for one in settings]
    assert len(set(seeds)) == 3
    assert seeds == [one.seed for one in ask(0, 1)]
    assert not set(seeds) & {one.seed for one in ask(0, 2)}
    assert not set(seeds) & {one.seed for one in ask(1, 1)}


def test_another_draw_and_the_control_have_seeds_of_their_own(prompts):
    def ask(**which):
        engines = Recorder(1)
        sampler = RaySampler(engines, RolloutConfig(), seed=0)
        sampler.generate(prompts, [4] * 3, step=1, **which)
        return engines.calls

    calls = [ask(), ask(draw=1), ask(draw=2), ask(shuffled_frames=True)]
    seeds = [asked.settings.seed for asks in calls for _, _, asked in asks]
    assert len(set(seeds)) == 12
    names = [asked.request_id for asks in calls for _, _, asked in asks]
    assert len(set(names)) == 12 and names[-1] == "step 1, shuffled, 2: s2"
    shuffle_seeds = [asked.shuffle_seed for asks in calls for _, _, asked in asks]
    assert shuffle_seeds[:9] == [None] * 9 and len(set(shuffle_seeds[9:])) == 3


def test_a_completion_is_drawn_as_the_rollout_group_says(prompts):
    engines = Recorder(1)
    law = {"temperature": 0.9, "top_p": 0.8, "top_k": 5, "min_p": 0.1}
    penalties = {"presence_penalty": 0.5, "repetition_penalty": 1.1}
    config = RolloutConfig(**law, **penalties, max_new_tokens=7, seeding=Seeding.engine)
    sampler = RaySampler(engines, config, seed=0)
    sampler.generate(prompts[:1], [4], step=1)
    sampler.answer(prompts[:1], validation=False)
    (_, _, sampled), (_, _, greedy) = engines.calls
    drawn = SamplingSettings(**law, **penalties, max_new_tokens=7, n=4, logprobs=True)
    assert sampled.settings == drawn
    assert greedy.settings == replace(drawn, temperature=0.0, n=1, logprobs=False)
    assert greedy.validation is False


def test_with_a_seed_the_frames_of_every_video_are_shuffled_apart(table):
    class Held:
        def load(self, sample):
            return [image(seed=1), video(8, seed=2), video(8, seed=2)]

    ordered = load_clips(Held(), table.sample(1), None)
    picture, *videos = load_clips(Held(), table.sample(1), 5)
    assert picture.key == ordered[0].key
    assert len({clip.key for clip in [*videos, ordered[1]]}) == 3


def test_an_engine_is_given_what_fills_it_and_a_few_prompts_more():
    async def most_at_once(count):
        slots, taken, most = Slots(64), 0, 0

        async def ask():
            nonlocal taken, most
            async with slots.take(count):
                taken += 1
                most = max(most, taken)
                await asyncio.sleep(0)
                taken -= 1

        await asyncio.gather(*(ask() for _ in range(200)))
        return most

    assert asyncio.run(most_at_once(8)) == 8 + NUM_PREPARED
    assert asyncio.run(most_at_once(1)) == 64 + NUM_PREPARED
    assert asyncio.run(most_at_once(5)) == 13 + NUM_PREPARED
    assert asyncio.run(most_at_once(100)) == 1 + NUM_PREPARED


def test_a_failed_prompt_gives_its_slot_back(prompts):
    slots = Slots(1)

    async def fail_often():
        for _ in range(20):
            with pytest.raises(EngineDiedError):
                async with slots.take(8):
                    raise EngineDiedError("gone")

    asyncio.run(asyncio.wait_for(fail_often(), timeout=10))


def test_the_engines_own_seed_leaves_requests_without_one(prompts):
    engines = Recorder(1)
    RaySampler(engines, RolloutConfig(seeding=Seeding.engine), seed=0).generate(
        prompts, [4] * 3, step=1
    )
    assert [asked.settings.seed for _, _, asked in engines.calls] == [None] * 3


def test_engines_and_runs_draw_from_streams_of_their_own(table, tmp_path):
    config = table.config(tmp_path, steps=1)
    seeds = [engine_config(config, index).seed for index in range(3)]
    assert len(set(seeds)) == 3
    assert seeds == [engine_config(config, index).seed for index in range(3)]
    config.seed = 1
    other_run = [engine_config(config, index).seed for index in range(3)]
    config.rollout.engine.seed = 1
    other_engine_seed = [engine_config(config, index).seed for index in range(3)]
    assert len({*seeds, *other_run, *other_engine_seed}) == 9


def test_a_refused_prompt_is_named_counted_and_left_out(prompts, caplog):
    sampler = RaySampler(Recorder(2, refused={"s1"}), RolloutConfig(), seed=0)
    groups = sampler.generate(prompts, [4] * 3, step=1)
    assert [len(group) for group in groups] == [1, 0, 1]
    assert "sample s1 is left out of the rollout: 8 tokens against 9" in caplog.text
    assert sampler.metrics()["rollout/refused"] == 1
    assert sampler.answer(prompts)[1] is None
    assert sampler.metrics()["rollout/refused"] == 2


class FailingEngine:
    """Raises what it is told to, one error per request, then answers."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.request_ids = []

    async def generate(self, request):
        self.request_ids.append(request.request_id)
        if self.errors:
            raise self.errors.pop(0)
        completion = Completion(segments=(Segment(token_ids=(1,)),), text="a", finish_reason="stop")
        return EngineResult(prompt_token_ids=[1], completions=[completion], seconds=0.0)


class Clips:
    def __init__(self, error=None):
        self.error = error

    def load(self, sample):
        if self.error:
            raise self.error
        return []


def complete(prompt, engine, clips=None):
    """What an engine's actor makes of one prompt."""
    actor: Any = object.__new__(EngineActor)
    actor._engine, actor._stores = engine, {False: clips or Clips()}
    actor._slots = Slots(1)
    ask = Ask(request_id="s0", prompt=prompt, settings=SamplingSettings(), validation=False)
    return asyncio.run(actor.complete(ask))


def test_a_failed_request_is_asked_once_more_under_another_name(prompts):
    engine = FailingEngine(RequestFailedError("out of luck"))
    completions = complete(prompts[0], engine)
    assert isinstance(completions, list) and [c.text for c in completions] == ["a"]
    assert len(set(engine.request_ids)) == 2
    engine = FailingEngine(RequestFailedError("first"), RequestFailedError("second"))
    assert complete(prompts[0], engine) == Refusal(reason="second, twice")


def test_a_refused_request_is_not_repeated_and_a_dead_engine_is_no_refusal(prompts):
    engine = FailingEngine(RequestRefusedError("too long"))
    assert complete(prompts[0], engine) == Refusal(reason="too long")
    assert len(engine.request_ids) == 1
    with pytest.raises(EngineDiedError):
        complete(prompts[0], FailingEngine(EngineDiedError("gone")))


def test_a_prompt_whose_clip_is_missing_is_refused(prompts):
    error = MissingClipError("s0", "a.mp4", "cache", "made with other settings")
    engine = FailingEngine()
    assert complete(prompts[0], engine, Clips(error)) == Refusal(reason=str(error))
    assert not engine.request_ids


def test_validation_is_greedy_and_on_its_own_budget(prompts):
    engines = Recorder(2)
    answers = RaySampler(engines, RolloutConfig(), seed=0).answer(prompts)
    assert len(answers) == 3
    for _, _, asked in engines.calls:
        assert asked.settings == SamplingSettings(temperature=0.0, max_new_tokens=1_024)
        assert asked.validation is True and asked.shuffle_seed is None


def test_a_sample_that_stands_twice_in_a_batch_gets_two_request_ids(prompts):
    engines = Recorder(1)
    ids = RaySampler(engines, RolloutConfig(), seed=0).answer([prompts[0], prompts[0]])
    assert len(set(ids)) == 2


def test_an_engine_holds_the_longest_prompt_with_its_answer(table, tmp_path):
    config = table.config(tmp_path, steps=1)
    config.rollout = RolloutConfig(max_prompt_tokens=100, max_new_tokens=20)
    config.model.dtype = "float32"
    assert engine_config(config, 0).max_model_len == 120
    assert engine_config(config, 0).encoder_cache_tokens == 400
    assert engine_config(config, 0).dtype == "float32"
    config.rollout.engine.max_model_len = 300
    config.rollout.engine.encoder_cache_tokens = 150
    config.rollout.engine.dtype = "bfloat16"
    assert engine_config(config, 0).max_model_len == 300
    assert engine_config(config, 0).encoder_cache_tokens == 150
    assert engine_config(config, 0).dtype == "bfloat16"
