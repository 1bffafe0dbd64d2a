"""Rollouts: vLLM engines in Ray actors, and the sampler that spreads prompts over them.

All completions of a prompt come from one request, so that its prefix and its encoded media are
shared, and prompts about the same media go to the same engine. A prompt that an engine refuses is
named, counted and left out; an engine that dies is replaced where that can be (`recovery`), and
what it was asked is asked again.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from easyvideor1.evaluate.config import EngineConfig, SamplingSettings
from easyvideor1.schema import environment
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Completion, Sample
from easyvideor1.train.actors import ActorDiedError, Actors, log_to
from easyvideor1.train.config import RolloutConfig, Seeding, TrainConfig
from easyvideor1.train.interfaces import Prompt, SendWeights
from easyvideor1.train.memory import used_bytes
from easyvideor1.train.metrics import CacheMetrics
from easyvideor1.train.offline import stable_hash
from easyvideor1.train.publishing import engine_backend
from easyvideor1.train.recovery import Recovery
from easyvideor1.train.slots import Slots
from easyvideor1.train.stopping import Stop

if TYPE_CHECKING:
    from easyvideor1.evaluate.engine import Memory
    from easyvideor1.evaluate.engine_request import EngineRequest, EngineResult
    from easyvideor1.evaluate.weight_buckets import WeightBucket
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.store import ClipStore, LoadCounts
    from easyvideor1.train.token_tree import ClipLoader

log = logging.getLogger(__name__)

NUM_ENCODED_PROMPTS = 4  # of the greatest length, whose encoded media an engine keeps


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What an engine is asked about a prompt."""

    request_id: str
    """Unique among the requests in flight; names the prompt in messages."""
    prompt: Prompt
    settings: SamplingSettings
    """How many completions, and how they are drawn."""
    validation: bool
    """Show the clips on the budget of validation."""
    shuffle_seed: int | None = None
    """Show the frames of videos out of order; None: in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a prompt has no completions."""

    reason: str


Answer = list[Completion] | Refusal
"""To an `Ask`."""


class EngineActor:
    """One vLLM engine with the frames it is asked about, in a process of its own."""

    def __init__(self, log: Path, index: int):
        log_to(log)
        self._index = index

    async def start(self, config: TrainConfig) -> None:
        """Load model and clip stores. Apart from `__init__`, which Ray does not await."""
        from easyvideor1.evaluate import fast_start

        fast_start.begin()
        from easyvideor1.evaluate.engine import Engine
        from easyvideor1.preprocess.families import family_of
        from easyvideor1.train.inputs import open_store

        model, rollout = config.model, config.rollout
        family = family_of(config.model)
        # Frames are loaded here, once per engine, however many GPUs it has.
        self._stores: dict[bool, ClipStore] = {
            validation: open_store(config, family, validation=validation)
            for validation in (False, True)
        }
        self._slots = Slots(rollout.engine.max_num_seqs)
        self._engine: Engine = await Engine.start(
            model.path,
            engine_config(config, self._index),
            family,
            weight_transfer=engine_backend(config),
            sleep=rollout.colocated,
            deterministic=rollout.deterministic,
        )

    async def complete(self, ask: Ask) -> Answer:
        """The completions of one prompt; one that the engine fails on is asked once more."""
        from easyvideor1.evaluate.engine_request import RequestFailedError, RequestRefusedError

        async with self._slots.take(ask.settings.n):
            try:
                request = await self._request(ask)
            except UserError as error:
                return Refusal(reason=str(error))
            for again in (request, replace(request, request_id=f"{ask.request_id}, again")):
                try:
                    return (await self._engine.generate(again)).completions
                except RequestRefusedError as error:
                    return Refusal(reason=str(error))
                except RequestFailedError as error:
                    reason = str(error)
            return Refusal(reason=f"{reason}, twice")

    async def generate(self, request: "EngineRequest") -> "EngineResult":
        """What a benchmark asks, with its own frames; see `Engine.generate`."""
        return await self._engine.generate(request)

    async def complete_in_order(self, asks: Sequence[Ask]) -> list[Answer]:
        """The same for all prompts of a rollout, see `Engine.generate_in_order`."""
        from easyvideor1.evaluate.engine_request import RequestFailedError

        answers: dict[str, Answer] = {}
        requests: list[EngineRequest] = []
        for ask in asks:
            try:
                requests.append(await self._request(ask))
            except UserError as error:
                answers[ask.request_id] = Refusal(reason=str(error))
        results = await self._engine.generate_in_order(requests)
        failed = [at for at, result in enumerate(results) if isinstance(result, RequestFailedError)]
        if failed:  # the engine would stand still for none as well
            again = [
                replace(requests[at], request_id=f"{requests[at].request_id}, again")
                for at in failed
            ]
            for at, result in zip(failed, await self._engine.generate_in_order(again), strict=True):
                results[at] = result
        for request, result in zip(requests, results, strict=True):
            answers[request.request_id] = (
                Refusal(reason=str(result)) if isinstance(result, Exception) else result.completions
            )
        return [answers[ask.request_id] for ask in asks]

    async def _request(self, ask: Ask) -> "EngineRequest":
        store = self._stores[ask.validation]
        clips = await asyncio.to_thread(load_clips, store, ask.prompt.sample, ask.shuffle_seed)
        return _request(ask.request_id, ask.prompt, clips, ask.settings)

    async def answer_logprobs(
        self, request_id: str, prompt: Prompt, answer: Sequence[int]
    ) -> list[float]:
        """Log-probs of the tokens of a given answer, see `Engine.answer_logprobs`."""
        clips = await asyncio.to_thread(self._stores[False].load, prompt.sample)
        request = _request(request_id, prompt, clips, SamplingSettings())
        return await self._engine.answer_logprobs(request, answer)

    async def load_counts(self) -> "LoadCounts":
        """Clips loaded so far, and where they came from."""
        return self._stores[False].counts + self._stores[True].counts

    # New weights: the parts of `Engine.publish`, called by the sampler, a transfer or vLLM's client

    async def begin_publish(self) -> None:
        """Finish the requests in flight; later ones wait."""
        await self._engine.begin_publish()

    async def init_weight_transfer(self, init_info: dict[str, Any]) -> None:
        """Meet the trainer."""
        await self._engine.init_weight_transfer(init_info)

    async def start_weight_update(self) -> None:
        """Be ready for weights."""
        await self._engine.start_weight_update()

    async def load_bucket(self, bucket: "WeightBucket") -> None:
        """Load a part of them from shared memory."""
        await self._engine.load_bucket(bucket)

    async def close_buckets(self, kept: tuple[str, ...]) -> None:
        """Check that all have come."""
        await self._engine.close_buckets(kept)

    async def update_weights(self, update_info: Any) -> None:
        """Take a message of vLLM's transfer."""
        await self._engine.update_weights(update_info)

    async def finish_weight_update(self) -> None:
        """Put the weights in place."""
        await self._engine.finish_weight_update()

    async def finish_publish(self, version: int) -> None:
        """Answer with them."""
        await self._engine.finish_publish(version)

    # Memory for the learner

    async def sleep(self) -> None:
        """Give all GPU memory away."""
        await self._engine.sleep()

    async def wake(self, memory: "Memory") -> None:
        """Take a part of it back."""
        await self._engine.wake(memory)

    async def memory_bytes(self) -> int:
        """Memory in use, see `memory.used_bytes`."""
        return used_bytes()

    async def stop(self) -> None:
        """End the engine's own process."""
        await self._engine.stop()


def load_clips(store: "ClipLoader", sample: Sample, shuffle_seed: int | None) -> "list[Clip]":
    """The clips of a sample; with a seed, the frames of each video in an order of its own."""
    clips = store.load(sample)
    if shuffle_seed is None:
        return clips
    from easyvideor1.preprocess.shuffling import shuffled

    return [shuffled(clip, shuffle_seed + index) for index, clip in enumerate(clips)]


def _request(
    request_id: str, prompt: Prompt, clips: "list[Clip]", settings: SamplingSettings
) -> "EngineRequest":
    from easyvideor1.evaluate.engine_request import EngineRequest

    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=prompt.token_ids,
        clips=clips,
        settings=settings,
    )


class Publish(NamedTuple):
    """Weights that the engines have, and how they came."""

    send: SendWeights
    version: int


class RaySampler:
    """`interfaces.Sampler` over engine actors."""

    def __init__(
        self,
        engines: Actors,
        config: RolloutConfig,
        *,
        seed: int,
        recovery: Recovery | None = None,
        stop: Stop | None = None,
    ):
        """Bind the engines of a run.

        Args:
            engines: their actors.
            config: how they are asked.
            seed: of the run.
            recovery: replaces an engine that dies; None where its death ends the run.
            stop: over which a rollout is given up.
        """
        self.readings: dict[str, float] = {}
        """Memory at the arrows of the last hand-over, by metric; `HandOver` puts them here."""
        self._engines = engines
        self._config = config
        self._seed = seed
        self._recovery = recovery
        self._stop = stop
        self._publish: Publish | None = None
        self._seeds_requests = seeding(config) is Seeding.request
        self._num_refused = 0
        self._cache_metrics = CacheMetrics("rollout")

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_sizes: Sequence[int],
        *,
        step: int,
        draw: int = 0,
        shuffled_frames: bool = False,
    ) -> list[list[Completion]]:
        """Completions with the log-probs of the policy that sampled them; [] where refused."""
        # Each of these is a sample of its own of the same prompt.
        which = [*([f"draw {draw}"] if draw else []), *(["shuffled"] if shuffled_frames else [])]
        seeds = [stable_hash(self._seed, step, p.sample.id, *which) for p in prompts]
        settings = [
            replace(
                sampling_law(self._config),
                n=size,
                seed=seed if self._seeds_requests else None,
                logprobs=True,
            )
            for size, seed in zip(group_sizes, seeds, strict=True)
        ]
        return self._complete(
            prompts,
            settings,
            name=", ".join([f"step {step}", *which]),
            validation=False,
            shuffle_seeds=seeds if shuffled_frames else None,
        )

    def answer(
        self, prompts: Sequence[Prompt], *, validation: bool = True
    ) -> list[Completion | None]:
        """One greedy completion per prompt; None where refused."""
        greedy = SamplingSettings(max_new_tokens=self._config.max_new_tokens)
        if not validation:
            greedy = sampling_law(self._config)  # its penalties change what is likeliest
        greedy = replace(greedy, temperature=0.0)
        groups = self._complete(
            prompts,
            [greedy] * len(prompts),
            name="validation" if validation else "greedy",
            validation=validation,
        )
        return [group[0] if group else None for group in groups]

    async def request(self, request: "EngineRequest") -> "EngineResult":
        """What one engine makes of a request, whose media go to the same one each time.

        Raises:
            RequestRefusedError, RequestFailedError: as the engine.
            ActorDiedError: the engine is dead; `replace_engine` is the way on.
        """
        media = [clip.key for clip in request.clips] or [request.request_id]
        index = stable_hash(*media) % len(self._engines)
        return await self._engines.one(index, "generate", request)

    def replace_engine(self, death: ActorDiedError) -> None:
        """Start a dead engine anew, with the newest weights; raises where that cannot be."""
        self._restart([death.index], death)

    def publish(self, send: SendWeights, version: int) -> None:
        """Replace every engine's weights by what `send` brings; no request sees a mixture."""
        self._publish = Publish(send, version)
        try:
            self._bring(self._publish, self._engines)
        except ActorDiedError as death:
            # The others stand somewhere within the publish.
            self._restart(range(len(self._engines)), death)

    def sleep(self) -> None:
        """Give every engine's GPU memory away."""
        self._all("sleep")

    def wake(self, memory: "Memory") -> None:
        """Take a part of it back, in every engine."""
        self._all("wake", memory)

    def memory_bytes(self) -> list[int]:
        """Memory in use as each engine sees it."""
        return self._all("memory_bytes")

    def metrics(self) -> dict[str, float]:
        """What was refused and restarted so far; since the last call, hits in the frame cache."""
        counts = self._cache_metrics.since_last(self._all("load_counts"))
        metrics = {"rollout/refused": float(self._num_refused)}
        if self._recovery is not None:
            metrics["rollout/engine_restarts"] = float(self._recovery.num_restarts)
        return metrics | counts | self.readings

    def _all(self, method: str, *args: Any) -> list[Any]:
        """Call every engine; one that turns out to be dead is replaced first."""
        limit = self._config.timeout_s
        try:
            return self._engines.all(method, *args, timeout_s=limit)
        except ActorDiedError as death:
            self._restart([death.index], death)
            return self._engines.all(method, *args, timeout_s=limit)

    def _each(self, method: str, calls: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        """Call some engines; what a dead one was asked is asked again of another in its place."""
        limit = self._config.timeout_s
        if self._recovery is None:
            return self._engines.each(method, calls, timeout_s=limit)
        results: dict[int, Any] = {}
        while missing := [place for place in range(len(calls)) if place not in results]:
            asked = [calls[place] for place in missing]
            found = self._engines.settle(method, asked, timeout_s=limit, stop=self._stop)
            deaths = [result for result in found if isinstance(result, ActorDiedError)]
            results |= {
                place: result
                for place, result in zip(missing, found, strict=True)
                if not isinstance(result, ActorDiedError)
            }
            if deaths:
                self._restart(sorted({death.index for death in deaths}), deaths[0])
        return [results[place] for place in range(len(calls))]

    def _restart(self, indices: Sequence[int], death: ActorDiedError) -> None:
        """Replace engines and bring them the newest weights; one that dies over it once more."""
        if self._recovery is None:
            raise death
        while True:
            try:
                new = self._recovery.restart(indices, death)
                if self._publish is not None:
                    self._bring(self._publish, new, are_new=True)
            except ActorDiedError as again:
                death = again
            else:
                self._cache_metrics.forget(indices)
                return

    def _bring(self, publish: Publish, engines: Actors, *, are_new: bool = False) -> None:
        limit = self._config.timeout_s
        engines.all("begin_publish", timeout_s=limit)
        publish.send(engines, are_new=are_new)
        engines.all("finish_publish", publish.version, timeout_s=limit)

    def _complete(
        self,
        prompts: Sequence[Prompt],
        settings: Sequence[SamplingSettings],
        *,
        name: str,
        validation: bool,
        shuffle_seeds: Sequence[int] | None = None,
    ) -> list[list[Completion]]:
        engine_of = assign([prompt.sample for prompt in prompts], len(self._engines))
        seeds = shuffle_seeds or [None] * len(prompts)
        asks = [
            Ask(
                # The index keeps ids apart where a sample stands twice in a batch.
                request_id=f"{name}, {index}: {prompt.sample.id}",
                prompt=prompt,
                settings=wanted,
                validation=validation,
                shuffle_seed=seed,
            )
            for index, (prompt, wanted, seed) in enumerate(
                zip(prompts, settings, seeds, strict=True)
            )
        ]
        ask_all = self._in_order if self._config.deterministic else self._at_once
        return [
            self._without(prompt, answer) if isinstance(answer, Refusal) else answer
            for prompt, answer in zip(prompts, ask_all(asks, engine_of), strict=True)
        ]

    def _at_once(self, asks: Sequence[Ask], engine_of: Sequence[int]) -> list[Answer]:
        calls = [(engine, (ask,)) for engine, ask in zip(engine_of, asks, strict=True)]
        return self._each("complete", calls)

    def _in_order(self, asks: Sequence[Ask], engine_of: Sequence[int]) -> list[Answer]:
        of_engine: dict[int, list[Ask]] = {}
        for engine, ask in zip(engine_of, asks, strict=True):
            of_engine.setdefault(engine, []).append(ask)
        calls = [(engine, (theirs,)) for engine, theirs in of_engine.items()]
        answers = self._each("complete_in_order", calls)
        found = {
            ask.request_id: answer
            for theirs, answered in zip(of_engine.values(), answers, strict=True)
            for ask, answer in zip(theirs, answered, strict=True)
        }
        return [found[ask.request_id] for ask in asks]

    def _without(self, prompt: Prompt, refusal: Refusal) -> list[Completion]:
        self._num_refused += 1
        log.warning("sample %s is left out of the rollout: %s", prompt.sample.id, refusal.reason)
        return []


def sampling_law(config: RolloutConfig) -> SamplingSettings:
    """How one completion of a rollout is drawn, but for its seed."""
    return SamplingSettings(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        min_p=config.min_p,
        presence_penalty=config.presence_penalty,
        repetition_penalty=config.repetition_penalty,
        max_new_tokens=config.max_new_tokens,
    )


def seeding(config: RolloutConfig) -> Seeding:
    """What `rollout.seeding` means on this machine."""
    if config.seeding is not None:
        return config.seeding
    return Seeding.engine if environment.has_nvidia_gpu() else Seeding.request


def assign(samples: Sequence[Sample], num_engines: int) -> list[int]:
    """An engine per sample: those with the same media share one, the others take turns."""
    engines: dict[Any, int] = {}
    for index, sample in enumerate(samples):
        engines.setdefault(sample.media or index, len(engines) % num_engines)
    return [engines[sample.media or index] for index, sample in enumerate(samples)]


def engine_config(config: TrainConfig, index: int) -> EngineConfig:
    """The settings of one engine, with the lengths of this run and what its model needs.

    Args:
        config: of the run.
        index: of the engine; engines draw from different streams.
    """
    engine, rollout = config.rollout.engine, config.rollout
    longest = rollout.max_prompt_tokens + rollout.max_new_tokens
    return replace(
        engine,
        dtype=config.model.dtype if engine.dtype == "auto" else engine.dtype,
        max_model_len=engine.max_model_len or longest,
        encoder_cache_tokens=engine.encoder_cache_tokens
        or NUM_ENCODED_PROMPTS * rollout.max_prompt_tokens,
        trust_remote_code=engine.trust_remote_code or config.model.trust_remote_code,
        seed=stable_hash(config.seed, engine.seed, index),
    )
