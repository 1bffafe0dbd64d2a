"""Rollouts: vLLM engines in Ray actors, and the sampler that spreads prompts over them.

All completions of a prompt come from one request, so that its prefix and its encoded media are
shared, and prompts about the same media go to the same engine. Seeds are derived from run seed,
step and sample id; what else an engine is asked does not change them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easyvideor1.evaluate.config import EngineConfig, SamplingSettings
from easyvideor1.schema.records import Completion, Sample
from easyvideor1.train.actors import Actors, log_to
from easyvideor1.train.config import RolloutConfig, TrainConfig
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.metrics import CacheMetrics
from easyvideor1.train.offline import stable_hash

if TYPE_CHECKING:
    from easyvideor1.evaluate.manifest import WeightManifest
    from easyvideor1.preprocess.store import ClipStore, LoadCounts

NUM_PREPARED = 4  # prompts whose frames are loaded while the engine is full


class EngineActor:
    """One vLLM engine with the frames it is asked about, in a process of its own."""

    def __init__(self, log: Path):
        log_to(log)

    async def start(self, config: TrainConfig) -> None:
        """Load model and clip stores. Apart from `__init__`, which Ray does not await."""
        from easyvideor1.evaluate import fast_start

        fast_start.begin()
        from easyvideor1.evaluate.engine import Engine
        from easyvideor1.preprocess.families import load_family
        from easyvideor1.train.inputs import open_store

        model, rollout = config.model, config.rollout
        family = load_family(model.path, trust_remote_code=model.trust_remote_code)
        self._stores: dict[bool, ClipStore] = {
            validation: open_store(config, family.rules, validation=validation)
            for validation in (False, True)
        }
        num_seqs = rollout.engine.max_num_seqs
        self._slots = {
            False: asyncio.Semaphore(-(-num_seqs // rollout.group_size) + NUM_PREPARED),
            True: asyncio.Semaphore(num_seqs + NUM_PREPARED),
        }
        self._engine: Engine = await Engine.start(
            model.path, engine_config(config), family, weight_updates=True
        )

    async def complete(
        self, request_id: str, prompt: Prompt, settings: SamplingSettings, validation: bool
    ) -> list[Completion]:
        """The completions of one prompt."""
        from easyvideor1.evaluate.engine import EngineRequest

        async with self._slots[validation]:
            clips = await asyncio.to_thread(self._stores[validation].load, prompt.sample)
            request = EngineRequest(
                request_id=request_id,
                prompt_token_ids=prompt.token_ids,
                clips=clips,
                settings=settings,
            )
            result = await self._engine.generate(request)
        return result.completions

    async def answer_logprobs(
        self, request_id: str, prompt: Prompt, answer: Sequence[int]
    ) -> list[float]:
        """Log-probs of the tokens of a given answer, see `Engine.answer_logprobs`."""
        from easyvideor1.evaluate.engine import EngineRequest

        clips = await asyncio.to_thread(self._stores[False].load, prompt.sample)
        request = EngineRequest(
            request_id=request_id,
            prompt_token_ids=prompt.token_ids,
            clips=clips,
            settings=SamplingSettings(),
        )
        return await self._engine.answer_logprobs(request, answer)

    async def load_counts(self) -> "LoadCounts":
        """Clips loaded so far, and where they came from."""
        return self._stores[False].counts + self._stores[True].counts

    async def publish(self, manifest: "WeightManifest") -> None:
        """Replace the engine's weights."""
        await self._engine.publish(manifest)

    async def stop(self) -> None:
        """End the engine's own process."""
        await self._engine.stop()


class RaySampler:
    """`interfaces.Sampler` over engine actors."""

    def __init__(self, engines: Actors, config: RolloutConfig, *, seed: int):
        self._engines = engines
        self._config = config
        self._seed = seed
        self._cache_metrics = CacheMetrics("rollout")

    def generate(
        self, prompts: Sequence[Prompt], group_sizes: Sequence[int], *, step: int
    ) -> list[list[Completion]]:
        """Completions with the log-probs of the policy that sampled them."""
        settings = [
            SamplingSettings(
                temperature=self._config.temperature,
                max_new_tokens=self._config.max_new_tokens,
                n=size,
                seed=stable_hash(self._seed, step, prompt.sample.id),
                logprobs=True,
            )
            for prompt, size in zip(prompts, group_sizes, strict=True)
        ]
        return self._complete(prompts, settings, name=f"step {step}", validation=False)

    def answer(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """One greedy completion per prompt."""
        greedy = SamplingSettings(temperature=0.0, max_new_tokens=self._config.max_new_tokens)
        groups = self._complete(
            prompts, [greedy] * len(prompts), name="validation", validation=True
        )
        return [group[0] for group in groups]

    def publish(self, manifest: "WeightManifest") -> None:
        """Hand new weights to every engine."""
        self._engines.all("publish", manifest, timeout_s=self._config.timeout_s)

    def metrics(self) -> dict[str, float]:
        """How often frames came from the cache since the last call."""
        counts = self._engines.all("load_counts", timeout_s=self._config.timeout_s)
        return self._cache_metrics.since_last(counts)

    def _complete(
        self,
        prompts: Sequence[Prompt],
        settings: Sequence[SamplingSettings],
        *,
        name: str,
        validation: bool,
    ) -> list[list[Completion]]:
        engine_of = assign([prompt.sample for prompt in prompts], len(self._engines))
        calls = [
            # The index keeps ids apart where a sample stands twice in a batch.
            (engine, (f"{name}, {index}: {prompt.sample.id}", prompt, wanted, validation))
            for index, (engine, prompt, wanted) in enumerate(
                zip(engine_of, prompts, settings, strict=True)
            )
        ]
        return self._engines.each("complete", calls, timeout_s=self._config.timeout_s)


def assign(samples: Sequence[Sample], num_engines: int) -> list[int]:
    """An engine per sample: those with the same media share one, the others take turns."""
    engines: dict[Any, int] = {}
    for index, sample in enumerate(samples):
        engines.setdefault(sample.media or index, len(engines) % num_engines)
    return [engines[sample.media or index] for index, sample in enumerate(samples)]


def engine_config(config: TrainConfig) -> EngineConfig:
    """The engine's settings with the lengths of this run and what its model needs."""
    engine, rollout = config.rollout.engine, config.rollout
    longest = rollout.max_prompt_tokens + rollout.max_new_tokens
    return replace(
        engine,
        dtype=config.model.dtype if engine.dtype == "auto" else engine.dtype,
        max_model_len=engine.max_model_len or longest,
        trust_remote_code=engine.trust_remote_code or config.model.trust_remote_code,
    )
