"""The engine answers as the model does, whatever else it is asked, before and after a publish."""

import asyncio
import functools
from typing import Any

import psutil
import pytest
import torch

from easyvideor1.evaluate.config import EngineConfig
from easyvideor1.evaluate.engine import Engine
from easyvideor1.evaluate.engine_request import (
    EngineDiedError,
    EngineResult,
    RequestRefusedError,
)
from easyvideor1.evaluate.weight_buckets import write_buckets
from easyvideor1.preprocess.clip import Clip
from easyvideor1.rewards import instruction
from tests.clips import CASES, image, sample_about, video
from tests.live_engine import LiveEngine


def prompt(engine: LiveEngine, clips: list[Clip]) -> list[int]:
    sample = sample_about(clips)
    return engine.family.prompt_token_ids(sample, instruction(sample))


def load_model(path: str) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def model(tiny_model_path: str) -> Any:
    """The same checkpoint in transformers."""
    return load_model(tiny_model_path)


@torch.no_grad()
def logits_after(
    engine: LiveEngine, model: Any, clips: list[Clip], answer: tuple[int, ...]
) -> torch.Tensor:
    """[L, vocabulary] logits that predict each token of the answer, without the forbidden ones."""
    inputs = engine.family.learner_inputs(prompt(engine, clips), clips)
    after = engine.family.position_ids_after(inputs.position_ids, len(answer))
    media = {
        name: getattr(inputs, name)
        for name in ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
    }
    output = model(
        input_ids=torch.tensor([[*inputs.token_ids, *answer]]),
        position_ids=torch.cat([inputs.position_ids, after], dim=1)[:, None],
        mm_token_type_ids=torch.nn.functional.pad(inputs.mm_token_type_ids, (0, len(answer)))[None],
        **media,
    )
    logits = output.logits[0, len(inputs.token_ids) - 1 : -1].float()
    logits[:, list(engine.family.forbidden_token_ids)] = -torch.inf
    return logits


def assert_greedy(engine: LiveEngine, model: Any, clips: list[Clip]) -> None:
    """The engine's greedy answer and its log-probs are those of `model`."""
    result = engine.generate(
        prompt(engine, clips), clips, temperature=0.0, max_new_tokens=16, logprobs=True
    )
    (completion,) = result.completions
    answer = tuple(completion.token_ids)
    logits = logits_after(engine, model, clips, answer)
    assert tuple(logits.argmax(-1).tolist()) == answer
    assert_logprobs(logits, answer, completion.logprobs)


def assert_logprobs(logits: torch.Tensor, answer: tuple[int, ...], logprobs: Any) -> None:
    expected = logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(logprobs), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["text", "video", "image and video"])
def test_greedy_answers_are_the_models(engine: LiveEngine, model: Any, name: str) -> None:
    assert_greedy(engine, model, CASES[name])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_policy_that_sampled(
    engine: LiveEngine, model: Any, temperature: float
) -> None:
    clips = CASES["video"]
    result = engine.generate(
        prompt(engine, clips),
        clips,
        temperature=temperature,
        n=4,
        seed=3,
        max_new_tokens=24,
        logprobs=True,
    )
    assert len(result.completions) == 4
    for completion in result.completions:
        answer = tuple(completion.token_ids)
        logits = logits_after(engine, model, clips, answer) / temperature
        assert_logprobs(logits, answer, completion.logprobs)


RESHAPING: list[dict[str, Any]] = [
    {"top_p": 0.6},
    {"top_k": 20},
    {"min_p": 0.5},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.3},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 200, "min_p": 0.1, "repetition_penalty": 1.1},
]


def reshape(
    logits: torch.Tensor, prompt_ids: list[int], answer: tuple[int, ...], settings: dict[str, Any]
) -> torch.Tensor:
    """[L, vocabulary] logits of the distribution that each token of the answer was drawn from."""
    law = {"temperature": 1.0, "top_p": 1.0, "top_k": len(logits[0]), "min_p": 0.0} | settings
    rows = []
    for position, row in enumerate(logits):
        written = list(answer[:position])
        seen = sorted({*prompt_ids, *written})
        repetition = law.get("repetition_penalty", 1.0)
        row = row.clone()
        row[seen] = torch.where(row[seen] > 0, row[seen] / repetition, row[seen] * repetition)
        row[sorted({*written})] -= law.get("presence_penalty", 0.0)
        row = row / law["temperature"]
        probabilities = row.softmax(-1)
        row[probabilities < law["min_p"] * probabilities.max()] = -torch.inf
        row[row < row.topk(law["top_k"]).values[-1]] = -torch.inf
        ordered, ids = row.softmax(-1).sort(descending=True)
        # A token stays while those before it have less than top_p.
        row[ids[ordered.cumsum(-1) - ordered >= law["top_p"]]] = -torch.inf
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("settings", RESHAPING, ids=lambda settings: "-".join(settings))
def test_logprobs_are_those_of_what_a_reshaped_policy_is_drawn_from(
    engine: LiveEngine, model: Any, settings: dict[str, Any]
) -> None:
    clips = CASES["video"]
    result = engine.generate(
        prompt(engine, clips), clips, n=2, seed=3, max_new_tokens=12, logprobs=True, **settings
    )
    for completion in result.completions:
        answer = tuple(completion.token_ids)
        policy = logits_after(engine, model, clips, answer)
        drawn_from = reshape(policy, result.prompt_token_ids, answer, settings)
        assert_logprobs(drawn_from, answer, completion.logprobs)
        # They are not those of the policy, by far more than the tolerance: no correction may be
        # computed from them.
        plain = (policy / settings.get("temperature", 1.0)).log_softmax(-1)
        of_policy = plain.gather(-1, torch.tensor(answer)[:, None])[:, 0]
        assert (torch.tensor(completion.logprobs) - of_policy).abs().max() > 1e-3


def test_forbidden_tokens_are_never_sampled(engine: LiveEngine) -> None:
    clips, forbidden = CASES["video"], engine.family.forbidden_token_ids
    result = engine.generate(
        prompt(engine, clips), clips, temperature=1.5, n=32, seed=1, max_new_tokens=128
    )
    sampled = [token for completion in result.completions for token in completion.token_ids]
    # The model is random: were they allowed, about so many would be among the tokens.
    assert len(sampled) * len(forbidden) / len(engine.family.tokenizer) > 10
    assert not set(sampled) & set(forbidden)


def test_a_seed_gives_the_same_answers_whatever_else_is_asked(engine: LiveEngine) -> None:
    clips, others = [video(4, seed=20)], [video(6, seed=21)]
    ask = functools.partial(
        engine.request, prompt(engine, clips), clips, n=3, seed=7, max_new_tokens=12
    )

    async def beside_others() -> Any:
        noise = engine.request(prompt(engine, others), others, n=5, max_new_tokens=24)
        answers = await asyncio.gather(engine.engine.generate(noise), engine.engine.generate(ask()))
        return answers[1]

    alone = engine.run(engine.engine.generate(ask()))
    together = engine.run(beside_others())
    ids = [completion.token_ids for completion in alone.completions]
    assert ids == [completion.token_ids for completion in together.completions]
    assert len({tuple(answer) for answer in ids}) == 3


def test_requests_in_order_are_answered_as_each_alone_and_a_refused_one_fails_alone(
    engine: LiveEngine,
) -> None:
    settings: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": 8, "n": 2, "seed": 5}
    asked = [(prompt(engine, CASES[name]), CASES[name]) for name in ("text", "video", "image")]
    alone = [engine.generate(ids, clips, **settings) for ids, clips in asked]
    too_long = ([*asked[0][0] * 200], [])
    requests = [engine.request(ids, clips, **settings) for ids, clips in [*asked, too_long]]

    *together, refusal = engine.run(engine.engine.generate_in_order(requests))
    assert isinstance(refusal, RequestRefusedError)
    for one, other in zip(alone, together, strict=True):
        assert isinstance(other, EngineResult)
        assert one.prompt_token_ids == other.prompt_token_ids
        assert [c.token_ids for c in one.completions] == [c.token_ids for c in other.completions]
    assert engine.generate(*asked[0], **settings).completions == alone[0].completions


def test_requests_in_order_give_the_same_log_probs_to_the_last_bit(engine: LiveEngine) -> None:
    """Whatever was asked before: with caches, less would be computed and rounded otherwise."""
    names = ["video", "text", "image and video", "two videos"]
    asked = [(prompt(engine, CASES[name]), CASES[name]) for name in names if name in CASES]

    def logprobs() -> list[Any]:
        requests = [
            engine.request(
                ids, clips, temperature=1.0, max_new_tokens=8, n=3, seed=7, logprobs=True
            )
            for ids, clips in asked
        ]
        results = engine.run(engine.engine.generate_in_order(requests))
        return [c.logprobs for result in results for c in result.completions]  # type: ignore[union-attr]

    first = logprobs()
    engine.generate(*asked[0], temperature=0.0, max_new_tokens=4)
    assert logprobs() == first


def test_a_stopped_answer_keeps_its_end_token_and_a_cut_one_says_so(engine: LiveEngine) -> None:
    clips = [image(seed=30)]
    ids = prompt(engine, clips)
    result = engine.generate(ids, clips, n=64, seed=5, temperature=1.5, max_new_tokens=200)
    reasons = {completion.finish_reason for completion in result.completions}
    assert reasons == {"stop", "length"}
    for completion in result.completions:
        ended = completion.token_ids[-1] in engine.family.eos_token_ids
        assert ended == (completion.finish_reason == "stop")
        assert "<|im_end|>" not in completion.text
        assert ended or len(completion.token_ids) == 200


def test_a_request_that_does_not_fit_fails_alone(engine: LiveEngine) -> None:
    clips = [video(4, seed=22)]
    good = prompt(engine, clips)
    too_long = good + good * 60

    async def ask_all() -> list[Any]:
        requests = [
            engine.request(too_long, clips * 61, max_new_tokens=2),
            engine.request(good, [], max_new_tokens=2),
            engine.request(good, clips, max_new_tokens=2),
        ]
        calls = [engine.engine.generate(request) for request in requests]
        return await asyncio.gather(*calls, return_exceptions=True)

    long, without_media, answered = engine.run(ask_all())
    assert isinstance(long, RequestRefusedError) and "2048" in str(long)
    assert isinstance(without_media, RequestRefusedError)
    assert "1 video placeholders but 0 videos" in str(without_media)
    assert len(answered.completions) == 1


def test_published_weights_answer_and_nothing_of_the_old_ones_is_left(
    engine: LiveEngine, tiny_model_path: str
) -> None:
    # The prompt and its video are in all of the engine's caches when the weights change, first all
    # of them and then the vision tower alone.
    clips = CASES["video"]
    other = load_model(tiny_model_path)
    start = engine.engine.version
    for step, part in enumerate(("", "visual"), start=1):
        assert_greedy(engine, other if step > 1 else load_model(tiny_model_path), clips)
        torch.manual_seed(step)
        with torch.no_grad():
            for name, parameter in other.named_parameters():
                if part in name and parameter.ndim > 1:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        engine.publish(other.state_dict())
        assert engine.engine.version == start + step
        assert_greedy(engine, other, clips)


def test_requests_in_flight_keep_the_old_version(engine: LiveEngine, model: Any) -> None:
    clips = [video(4, seed=23)]
    ids = prompt(engine, clips)
    old = engine.engine.version
    buckets = write_buckets(model.state_dict().items())

    async def publish_amid_requests() -> tuple[Any, Any]:
        early = asyncio.create_task(
            engine.engine.generate(engine.request(ids, clips, n=4, seed=1, max_new_tokens=64))
        )
        await asyncio.sleep(0.02)
        publishing = asyncio.create_task(engine.engine.publish(buckets, old + 1))
        await asyncio.sleep(0)
        late = asyncio.create_task(
            engine.engine.generate(engine.request(ids, clips, max_new_tokens=4))
        )
        await publishing
        return await early, await late

    early, late = engine.run(publish_amid_requests())
    assert {c.segments[0].policy_version for c in early.completions} == {old}
    assert late.completions[0].segments[0].policy_version == old + 1


def test_incomplete_weights_are_refused_until_complete_ones_come(
    engine: LiveEngine, model: Any
) -> None:
    clips = [video(4, seed=24)]
    state = model.state_dict()
    without_head = {name: value for name, value in state.items() if name != "lm_head.weight"}
    with pytest.raises(Exception, match=r"lack 1 of .* parameters.*lm_head"):
        engine.publish(without_head)
    with pytest.raises(EngineDiedError, match="undefined"):
        engine.generate(prompt(engine, clips), clips, max_new_tokens=1)
    engine.publish(state)
    assert_greedy(engine, model, clips)


@pytest.mark.parametrize("moment", ["before the request", "amid the request"])
def test_an_engine_that_dies_is_told_from_a_request_that_fails(
    tiny_model_path: str, engine: LiveEngine, model: Any, moment: str
) -> None:
    before = set(psutil.Process().children(recursive=True))
    clips = [video(4, seed=25)]
    buckets = write_buckets(model.state_dict().items())
    request = engine.request(prompt(engine, clips), clips, n=8, max_new_tokens=400, seed=1)

    from easyvideor1.evaluate import weights

    async def kill_and_ask() -> None:
        config = EngineConfig(max_model_len=1024, kv_cache_bytes=16 * 1024**2)
        second = await Engine.start(
            tiny_model_path, config, engine.family, weight_transfer=weights.BACKEND
        )
        started = set(psutil.Process().children(recursive=True)) - before
        answering = asyncio.create_task(second.generate(request))
        if moment == "amid the request":
            await asyncio.sleep(0.2)
        for process in started:
            if "EngineCore" in " ".join(process.cmdline()):
                process.kill()
        try:
            with pytest.raises(EngineDiedError):
                await asyncio.wait_for(answering, timeout=60)
            with pytest.raises(EngineDiedError):
                await asyncio.wait_for(second.generate(request), timeout=60)
            with pytest.raises(EngineDiedError):
                await asyncio.wait_for(second.publish(buckets, 1), timeout=60)
        finally:
            await second.stop()

    engine.run(kill_and_ask())
