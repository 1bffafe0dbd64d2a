"""Engines and learner that take turns: the same training as apart, memory read at each arrow."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from easyvideor1.schema import jsonl
from easyvideor1.train import cli
from easyvideor1.train.algorithm_config import AlgorithmConfig, KlConfig, KlPlace
from easyvideor1.train.config import OptimizerConfig, RolloutConfig
from easyvideor1.train.hand_over import HandOver
from easyvideor1.train.interfaces import TrainExample
from easyvideor1.train.publishing import SharedMemoryTransfer
from easyvideor1.train.ray_learner import RayLearner
from easyvideor1.train.rollout import RaySampler
from easyvideor1.train.run_folder import RunFolder
from tests.live_engine import LiveEngine
from tests.train.local_actors import LocalActors, LocalEngine, LocalRank
from tests.train.policy_cases import (
    CLIPS,
    clips_for,
    family_at,
    make_learner,
    part_of,
    prompt_about,
    sample,
    without_memory,
)

ARROWS = (
    *("rollout", "sleep", "onload", "update", "offload"),
    *("wake_weights", "publish", "wake_kv_cache"),
)
BUCKET_BYTES = 512 * 1024


class Run:
    """Two steps of training on real parts, colocated or not."""

    def __init__(self, live: LiveEngine, path: Path, config: Any, colocated: bool, **learner: Any):
        config.rollout = RolloutConfig(
            colocated=colocated, group_size=2, max_new_tokens=6, publish_bucket_mb=1
        )
        self.family = family_at(path)
        rank = make_learner(path, optimizer=OptimizerConfig(lr=2e-3), **learner)
        self.engines = LocalActors([LocalEngine(live)], live)
        self.ranks = LocalActors([LocalRank(rank)], live)
        transfer = SharedMemoryTransfer(self.ranks, bucket_bytes=BUCKET_BYTES, timeout_s=60)  # type: ignore[arg-type]
        self.sampler = RaySampler(self.engines, config.rollout, seed=0)  # type: ignore[arg-type]
        learner_ = RayLearner(self.ranks, transfer, config)  # type: ignore[arg-type]
        learner_._version = live.engine.version  # the engine is older than this run
        self.learner = HandOver(learner_, self.sampler) if colocated else learner_
        clips = clips_for(self.family)
        self.prompts = [prompt_about(self.family, sample(name), clips[name]) for name in CLIPS]
        self.seen: list[Any] = []

    def step(self, number: int) -> None:
        groups = self.sampler.generate(self.prompts, [2] * len(self.prompts), step=number)
        examples = [
            TrainExample(
                prompt=prompt,
                completion=completion,
                advantages=[advantage] * len(completion.token_ids),
            )
            for prompt, group in zip(self.prompts, groups, strict=True)
            for completion, advantage in zip(group, (1.0, -1.0), strict=True)
        ]
        self.seen.append([(e.completion.token_ids, e.completion.logprobs) for e in examples])
        self.seen.append(without_memory(self.learner.update(examples)))
        self.learner.publish(self.sampler)

    def train(self) -> "Run":
        self.learner.publish(self.sampler)
        for number in (1, 2):
            self.step(number)
        self.seen.append(
            [answer and answer.token_ids for answer in self.sampler.answer(self.prompts)]
        )
        return self


def test_taking_turns_trains_as_apart_does(engine, sharp_model_path, table, tmp_path):
    config = table.config(tmp_path, steps=2)
    apart = Run(engine, sharp_model_path, config, colocated=False).train()
    together = Run(engine, sharp_model_path, config, colocated=True).train()
    assert together.seen == apart.seen
    assert not apart.sampler.readings
    readings = together.sampler.metrics()
    for arrow in ARROWS:
        # Of this process with torch in it, counted for the engine and for the rank.
        assert 0.2 < readings[f"hand_over/{arrow}_gb"] < 100
    assert len(readings) == len(ARROWS) + 1


def test_the_arrows_come_in_order_and_updates_in_a_row_are_one_turn(
    engine, sharp_model_path, table, tmp_path
):
    algorithm = AlgorithmConfig(kl=KlConfig(place=KlPlace.reward))
    config = table.config(tmp_path, steps=2)
    run = Run(engine, sharp_model_path, config, colocated=True, algorithm=algorithm)
    both: list[str] = []
    run.engines.calls = run.ranks.calls = both
    run.learner.publish(run.sampler)
    assert "wake" not in both and "offload" not in both
    both.clear()
    groups = run.sampler.generate(run.prompts[:1], [2], step=1)
    examples = [
        TrainExample(
            prompt=run.prompts[0],
            completion=completion,
            advantages=[1.0] * len(completion.token_ids),
        )
        for completion in groups[0]
    ]
    assert [len(d or []) for d in run.learner.divergences(examples)] == [
        len(e.advantages) for e in examples
    ]
    run.learner.update(examples, "sft")
    run.learner.update(examples, "sft")
    run.learner.publish(run.sampler)
    asked = ("memory_bytes", "load_counts", "cost_model", "next_bucket")
    told = [name for name in both if name not in asked]
    told = list(dict.fromkeys(name for name in told if name != "load_bucket"))
    assert both.count("sleep") == both.count("onload") == both.count("offload") == 1
    assert both.count("update") == both.count("wake") == 2
    # A bucket is asked for, loaded and only then the next is asked for.
    buckets = [name for name in both if name in ("next_bucket", "load_bucket")]
    assert buckets == ["next_bucket", "load_bucket"] * (len(buckets) // 2) + ["next_bucket"]
    assert len(buckets) > 5
    assert told == [
        "complete",
        "sleep",
        "onload",
        "divergences",
        "update",
        "offload",
        "wake",
        "begin_publish",
        "start_weight_update",
        "close_buckets",
        "finish_weight_update",
        "finish_publish",
    ]


def test_requests_wait_for_an_engine_that_sleeps(engine, sharp_model_path):
    weights = dict(make_learner(sharp_model_path).gather_weights())
    engine.publish(weights)
    prompt = family_at(sharp_model_path).prompt_token_ids(sample("video"), "Answer.")
    ask = engine.request(prompt, CLIPS["video"], temperature=0.0, max_new_tokens=4)
    before = engine.run(engine.engine.generate(ask)).completions[0].token_ids

    async def sleep_and_ask() -> Any:
        await engine.engine.sleep()
        answering = asyncio.create_task(engine.engine.generate(replace(ask, request_id="later")))
        await asyncio.sleep(0.2)
        assert not answering.done()
        await engine.engine.wake("weights")
        from easyvideor1.evaluate.weight_buckets import write_buckets

        await engine.engine.publish(write_buckets(weights.items()), engine.engine.version + 1)
        await asyncio.sleep(0.2)
        assert not answering.done()
        await engine.engine.wake("kv_cache")
        return await answering

    assert engine.run(sleep_and_ask()).completions[0].token_ids == before


@pytest.mark.parametrize("part", ["vision", "merger", "language"])
def test_frozen_parts_are_sent_once_and_the_answers_stay_right(
    engine, sharp_model_path, table, tmp_path, part
):
    """The engine's log-probs, which the learner compares with its own, tell a stale part."""
    config = table.config(tmp_path, steps=2)
    run = Run(engine, sharp_model_path, config, colocated=False, freeze=[part])
    run.learner.publish(run.sampler)
    prefixes = run.ranks.all("frozen", timeout_s=60)[0]
    assert prefixes
    for number in (1, 2):
        run.step(number)
        assert run.seen[-1]["learner/mismatch_max"] < 2e-3
        assert run.seen[-1]["learner/grad_norm"] > 0
    sent = dict(run.ranks._objects[0]._learner.gather_weights(prefixes))
    everything = dict(run.ranks._objects[0]._learner.gather_weights())
    kept = everything.keys() - sent.keys()
    assert kept == {name for name in everything if part_of(name) == part}


def test_offloading_moves_optimizer_and_weights_and_changes_nothing(sharp_model_path):
    """Between two devices as far as a CPU goes: the meta device stands for the other one."""
    from easyvideor1.train.offloading import move

    learner = make_learner(sharp_model_path, optimizer=OptimizerConfig(lr=1e-3))
    model, optimizer = learner.model, learner.optimizer
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    learner.offload()
    learner.onload()
    assert {id(p) for p in model.parameters()} >= held
    move([model], optimizer, torch.device("meta"))
    tensors = [*model.parameters(), *(p.grad for p in model.parameters() if p.grad is not None)]
    moments = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
    assert {tensor.device.type for tensor in [*tensors, *moments]} == {"meta"}
    assert {state["step"].device.type for state in optimizer.state.values()} == {"cpu"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_colocated_run_equals_one_apart(tiny_model_path, toybox_dir, tmp_path, monkeypatch):
    from tests.train.test_real_run import composed

    monkeypatch.setenv("EVR_OUTPUTS", str(tmp_path))
    rows = {}
    for colocated in ("false", "true"):
        config = composed(
            tiny_model_path,
            toybox_dir,
            tmp_path / colocated,
            f"rollout.colocated={colocated}",
            "train.steps=2",
            "train.warm_start.steps=1",
        )
        cli.run(config)
        folder = RunFolder(tmp_path / colocated / "run")
        rows[colocated] = [row for row in jsonl.read(folder.metrics) if "reward/mean" in row]
    assert [row["step"] for row in rows["true"]] == [1, 2]
    for apart, together in zip(rows["false"], rows["true"], strict=True):
        for name in ("reward/mean", "completion/tokens", "learner/loss", "learner/grad_norm"):
            assert together[name] == pytest.approx(apart[name], rel=1e-4, abs=1e-6), name
        assert together["learner/mismatch_max"] < 2e-3
        assert {f"hand_over/{arrow}_gb" for arrow in ARROWS} <= together.keys()
        assert not any(name.startswith("hand_over/") for name in apart)
