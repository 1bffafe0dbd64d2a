"""Collecting trajectories: who answers, what is kept, and what training makes of it."""

import asyncio
import base64
import io
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from PIL import Image

from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.schema import jsonl
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.readers import read_samples
from easyvideor1.schema.records import Media, MediaKind, Trajectory
from easyvideor1.train.collecting import command
from easyvideor1.train.collecting.answerers import (
    EndpointAnswerer,
    EngineAnswerer,
    NotAnsweredError,
    content_of,
)
from easyvideor1.train.collecting.journal import Journal, ScoredAnswer, chosen
from easyvideor1.train.config import CollectConfig, EndpointConfig, RolloutConfig
from tests.live_engine import LiveEngine
from tests.rewards.judge_server import completion, scripted_server
from tests.train.policy_cases import CLIPS, family_at, prompt_about, sample
from tests.train.run_process import RunProcess, started
from tests.vllm_server import serving

NAMES = ("text", "image", "video")


def answer(text: str, score: float | None = 1.0, num_tokens: int | None = 5, whole: bool = True):
    return ScoredAnswer(text=text, score=score, num_tokens=num_tokens, is_whole=whole)


def test_the_best_and_then_the_shortest_whole_answers_are_kept_once_each():
    answers = [
        answer("long", num_tokens=9),
        answer("poor", 0.5),
        answer("short", num_tokens=3),
        answer("short", num_tokens=3),
        answer("cut", num_tokens=1, whole=False),
        answer("unscored", None),
        answer("best", 1.1, num_tokens=20),
    ]
    kept = [a.text for a in chosen(answers, CollectConfig(keep=9))]
    assert kept == ["best", "short", "long"]
    assert [a.text for a in chosen(answers, CollectConfig(keep=2))] == kept[:2]
    assert [a.text for a in chosen(answers, CollectConfig(keep=9, min_score=0.5))][-1] == "poor"
    untold = [answer("a longer text", num_tokens=None), answer("a text", num_tokens=None)]
    assert [a.text for a in chosen(untold, CollectConfig())] == ["a text"]


def test_a_journal_keeps_all_and_another_bar_needs_no_new_answers(table, tmp_path):
    samples = [table.sample(index, offline=["mine"] if index == 0 else []) for index in range(4)]
    journal = Journal(tmp_path, {"model": "a"})
    journal.add(samples[0], [answer("good"), answer("poor", 0.2)])
    journal.add(samples[1], [answer("poor", 0.2)])
    journal.fail(samples[2], "too long")
    again = Journal(tmp_path, {"model": "a"})
    assert [again.is_done(about) for about in samples] == [True, True, False, False]

    counts = again.conclude(samples, CollectConfig(), "teacher")
    assert counts == {
        **{"samples": 4, "answers": 3, "kept": 1, "samples_with_kept": 1},
        **{"failed": 1, "not_asked": 1, "truncated": 0},
    }
    assert json.loads((tmp_path / "summary.json").read_text()) == counts
    first, *others = read_samples(tmp_path / "samples.jsonl", cache_dir=tmp_path / "cache")
    assert [(t.text, t.source) for t in first.offline] == [("mine", "offline"), ("good", "teacher")]
    assert [other.offline for other in others] == [(), (), ()]
    lower = again.conclude(samples, CollectConfig(min_score=0.1, keep=2), "teacher")
    assert lower["kept"] == 3

    with pytest.raises(UserError, match=r"differing: model \('a' there, 'b' now\)"):
        Journal(tmp_path, {"model": "b"})


def test_a_sample_that_was_another_question_then_is_asked_anew(table, tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"one")
    shown = replace(
        table.sample(0), problem="<image>?", media=(Media(kind=MediaKind.image, path=str(picture)),)
    )
    journal = Journal(tmp_path / "collected", {})
    journal.add(shown, [answer("good")])
    same = replace(shown, offline=(Trajectory(text="mine"),), pass_rate=0.5, source="x")
    assert Journal(tmp_path / "collected", {}).is_done(same)
    for changed in (
        replace(shown, problem="<image>??"),
        replace(shown, answer="B"),
        replace(shown, options=("red", "blue")),
        replace(shown, extra={"tests": ["1"]}),
    ):
        assert not journal.is_done(changed)
    picture.write_bytes(b"two")
    assert not journal.is_done(shown)
    assert journal.conclude([shown], CollectConfig(), "teacher") == {"samples": 1, "not_asked": 1}
    journal.add(shown, [answer("better")])
    counts = Journal(tmp_path / "collected", {}).conclude([shown], CollectConfig(), "teacher")
    assert counts["kept"] == 1
    (written,) = read_samples(tmp_path / "collected/samples.jsonl", cache_dir=tmp_path / "cache")
    assert [t.text for t in written.offline] == ["better"]


def test_the_protocol_knows_a_checkpoint_by_its_weights(tiny_model_path, table, tmp_path):
    config = table.config(tmp_path, steps=1)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        shutil.copytree(tiny_model_path, folder)

    def asked(folder: Path) -> Any:
        config.model.path = str(folder)
        return command.protocol_of(config)["asked"]

    before = asked(here)
    assert before == asked(there)
    weights = here / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    assert asked(here) != before


class Store:
    def load(self, about):
        return CLIPS[about.id]


class Prompter:
    """As `inputs.Prompter`, about clips in memory."""

    def __init__(self, family: Any):
        self.family, self.store = family, Store()

    def __call__(self, about):
        told = instruction(about, RewardConfig())
        return prompt_about(self.family, about, CLIPS[about.id], told)


def collector(table, tmp_path, answerer, family, journal, **settings: Any) -> Any:
    config = table.config(tmp_path, steps=1)
    config.collect = CollectConfig(**settings)
    return command.Collector(config, answerer, journal, Prompter(family), family)  # type: ignore[arg-type]


def test_an_engines_answers_are_seeded_and_have_the_log_probs_of_their_tokens(
    engine: LiveEngine, tiny_model_path, table, tmp_path
):
    family = family_at(Path(tiny_model_path))
    rollout = RolloutConfig(max_new_tokens=12)
    answerer = EngineAnswerer(engine.engine, rollout)
    journal = Journal(tmp_path / "collected", {})
    one = collector(table, tmp_path, answerer, family, journal, answers=3)
    prompt = one._prompter(sample("video"))

    def completions(seed: int) -> Any:
        return engine.run(answerer.answer(prompt, CLIPS["video"], count=3, seed=seed))

    assert [c.token_ids for c in completions(1)] == [c.token_ids for c in completions(1)]
    assert [c.token_ids for c in completions(1)] != [c.token_ids for c in completions(2)]

    # Tokens that come back from the text keep their log-probs, others would be those of others.
    (whole, *_) = completions(1)
    ids = [*family.text_token_ids("Red it is."), family.eos_token_ids[0]]
    segment = replace(whole.segments[0], token_ids=tuple(ids), logprobs=(-0.5,) * len(ids))
    kept = replace(whole, segments=(segment,), text="Red it is.", finish_reason="stop")
    assert one._logprobs(kept) == (-0.5,) * len(ids)
    assert one._logprobs(replace(kept, text="Red it  is.")) is None

    class Bar:
        def update(self):
            pass

    engine.run(one.work(iter([sample(name) for name in NAMES]), Bar()))  # type: ignore[arg-type]
    rows = jsonl.read(tmp_path / "collected" / "answers.jsonl")
    assert [row["id"] for row in rows] == list(NAMES)
    assert all(len(row["answers"]) == 3 for row in rows)


def test_an_endpoint_is_shown_every_frame_with_its_time_and_no_pixel_changed(tiny_model_path):
    about = replace(sample("image and video"), options=("red", "blue"))
    picture, clip = CLIPS["image and video"]
    content = content_of(about, [picture, clip], RewardConfig())
    shown = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    frames = []
    for url in shown:
        head, _, data = url.partition(",")
        assert head == "data:image/png;base64"
        frames.append(np.array(Image.open(io.BytesIO(base64.b64decode(data)))).transpose(2, 0, 1))
    assert np.array_equal(np.stack(frames), np.concatenate([picture.frames, clip.frames]))
    texts = [part["text"] for part in content if part["type"] == "text"]
    assert texts[:4] == [f"<{time_s:.1f} seconds>" for time_s in clip.metadata.timestamps_s]
    assert texts[4] == about.problem
    assert texts[5].startswith("\nA. red\nB. blue\n") and texts[5].endswith(
        instruction(about, RewardConfig())
    )


def ask(base_url: str, family: Any, *, timeout_s: float = 600.0) -> list[Any]:
    endpoint = EndpointConfig(
        base_url=base_url, model="teacher", timeout_s=timeout_s, max_retries=0
    )

    async def asked() -> list[Any]:
        async with AsyncOpenAI(
            base_url=base_url, api_key="none", max_retries=0, timeout=timeout_s
        ) as client:
            rollout = RolloutConfig(max_new_tokens=16)
            answerer = EndpointAnswerer(client, endpoint, rollout, RewardConfig())
            prompt = prompt_about(family, sample("video"), CLIPS["video"])
            return await answerer.answer(prompt, CLIPS["video"], count=2, seed=3)

    return asyncio.run(asked())


def test_a_request_that_an_endpoint_refuses_fails_alone_and_none_without_an_endpoint(
    tiny_model_path,
):
    family = family_at(Path(tiny_model_path))
    with scripted_server(lambda _: completion("<answer>A</answer>")) as server:
        (answered,) = ask(server.base_url, family)
        assert (answered.text, answered.finish_reason) == ("<answer>A</answer>", "stop")
        (request,) = server.requests
        law = {"n": 2, "seed": 3, "temperature": 1.0, "top_p": 1.0, "max_tokens": 16}
        assert law.items() <= request.items() and request["model"] == "teacher"
        gone = server.base_url
    refused = pytest.raises(NotAnsweredError, match=r"the endpoint refused it: .*400")
    with scripted_server(lambda _: 400) as server, refused:
        ask(server.base_url, family)
    with scripted_server(lambda _: 401) as server, pytest.raises(UserError, match="does not answ"):
        ask(server.base_url, family)
    for status in (403, 404):
        unknown = pytest.raises(UserError, match=r"not let collect\.endpoint\.model=teacher be")
        with scripted_server(lambda _, status=status: status) as server, unknown:
            ask(server.base_url, family)
    released = threading.Event()
    late = pytest.raises(
        NotAnsweredError, match=r"within collect\.endpoint\.timeout_s=0\.2, asked 1"
    )
    with scripted_server(lambda _: completion("A") if released.wait(60) else 500) as server:
        with late:
            ask(server.base_url, family, timeout_s=0.2)
        released.set()
    with pytest.raises(UserError, match=rf"base_url={gone} does not answer"):
        ask(gone, family)


def test_settings_of_an_endpoint_are_checked_before_anything_starts(monkeypatch):
    with pytest.raises(UserError, match=r"collect\.endpoint\.model is not"):
        EndpointConfig(base_url="http://127.0.0.1:1/v1")
    monkeypatch.delenv("A_KEY", raising=False)
    with pytest.raises(UserError, match="A_KEY: this environment variable is not set"):
        EndpointConfig(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="A_KEY")
    with pytest.raises(UserError, match=r"collect\.keep must be at least 1"):
        CollectConfig(keep=0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_vllms_own_server_answers_about_frames(tiny_model_path, tmp_path):
    family = family_at(Path(tiny_model_path))
    with serving(tiny_model_path, tmp_path / "server.log", "teacher") as base_url:
        first, again = ask(base_url, family), ask(base_url, family)
    assert [a.text for a in first] == [a.text for a in again] and len(first) == 2
    assert {a.finish_reason for a in first} <= {"stop", "length"}


def evr_train(outputs: Path, *overrides: str) -> RunProcess:
    """The command, after it has ended well."""
    with started(list(overrides), outputs) as run:
        assert run.end() == 0, run.output[-2000:]
    return run


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_a_checkpoint_collects_is_what_training_mixes_in(
    tiny_model_path, toybox_dir, tmp_path
):
    """A warm-started model answers, a second start asks nothing, good answers are trained on."""
    data = f"data.train=[{toybox_dir / 'train.jsonl'}]"
    common = ["data.validation=[]", "data.toybox=null", "tracking.mlflow=false"]
    small = ["rollout.batch_size=16", "rollout.group_size=4", "rollout.max_new_tokens=32"]
    evr_train(
        tmp_path / "teacher",
        *common,
        data,
        f"model.path={tiny_model_path}",
        "model.build=null",
        "train.steps=0",
        "train.warm_start.steps=40",
        "train.warm_start.batch_size=16",
        "train.warm_start.optimizer.lr=2e-3",
    )
    model = [f"model.path={tmp_path / 'teacher' / 'run' / 'export'}", "model.build=null"]
    collecting = ["job=collect", "collect.answers=4", "collect.min_score=0.9"]

    evr_train(tmp_path / "collected", *common, *small, *model, *collecting, data)
    folder = tmp_path / "collected" / "run" / "trajectories"
    answered = (folder / "answers.jsonl").read_bytes()
    rows = jsonl.read(folder / "answers.jsonl")
    assert len(rows) == len({row["id"] for row in rows}) == 81
    second = evr_train(
        tmp_path / "collected", *common, *small, *model, *collecting, data, "collect.keep=2"
    )
    assert "81 of 81 samples are answered" in second.output
    assert (folder / "answers.jsonl").read_bytes() == answered

    samples = read_samples(folder / "samples.jsonl", cache_dir=tmp_path / "cache")
    collected = [t for s in samples for t in s.offline if t.source == "export"]
    assert len(collected) > 10
    assert sum(t.logprobs is not None for t in collected) > len(collected) / 2
    evr_train(
        tmp_path / "mixed",
        *common,
        *small,
        *model,
        f"data.train=[{folder / 'samples.jsonl'}]",
        "mixing=replace",
        "algorithm.offline.behaviour_logprobs=true",
        "train.steps=1",
    )
    (step,) = [
        row
        for row in jsonl.read(tmp_path / "mixed" / "run" / "metrics.jsonl")
        if row["step"] == 1 and "reward/mean" in row
    ]
    assert step["offline/share"] > 0 and step["reward/offline"] >= 0.9
    # The policy that answered is the one that is trained: pi / mu is 1 where mu is known.
    assert step["learner/offline_ratio"] == pytest.approx(1.0, abs=1e-3)
