"""The one generation path: vLLM's AsyncLLM behind `generate` and `publish`.

Evaluation and training rollouts both use it, also inside a Ray actor. It owns how requests reach
vLLM and what comes back. vLLM changes the process it lives in: it seeds the global generators and,
on a CPU, may replace `torch.set_num_threads` and `torch.accelerator` functions by no-ops; so a
learner never shares a process with an engine.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from easyvideor1.evaluate import fast_start, quiet
from easyvideor1.evaluate.agreement import disagreement, too_large_medium
from easyvideor1.evaluate.config import EngineConfig, SamplingSettings
from easyvideor1.evaluate.engine_request import (
    EngineDiedError,
    EngineRequest,
    EngineResult,
    RequestFailedError,
    RequestRefusedError,
)
from easyvideor1.evaluate.gate import Gate
from easyvideor1.schema.records import Completion, Segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from vllm import SamplingParams
    from vllm.config import VllmConfig
    from vllm.inputs import EngineInput
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.output_processor import RequestOutputCollector

    from easyvideor1.evaluate.weight_buckets import WeightBucket
    from easyvideor1.preprocess.families import FamilyAdapter

T = TypeVar("T")

FORBIDDEN_BIAS = -100.0
"""Added to the logits of tokens that may not be sampled; vLLM's lowest bias. exp(-100) is 4e-44."""
BROKEN_OFF = ("error", "abort")
"""Reasons of vLLM to finish that are no end of an answer."""
Memory = Literal["weights", "kv_cache"]
"""What wakes at a time after `sleep`."""
LAST_ERRORS_S = 1.0
"""Time for a dead engine's errors to reach the requests that wait for it."""


class Engine:
    """A running vLLM engine with one model.

    Example:
        engine = await Engine.start(path, EngineConfig(), load_family(path))
        result = await engine.generate(request)
        await engine.stop()
    """

    def __init__(self, llm: "AsyncLLM", family: "FamilyAdapter", max_medium_tokens: int):
        self.version = 0
        """Of the weights: 0 is the checkpoint, then whatever was published last."""
        self._llm = llm
        self._family = family
        self._max_medium_tokens = max_medium_tokens
        self._bias = {token: FORBIDDEN_BIAS for token in family.forbidden_token_ids}
        self._gate = Gate()
        self._weights_defined = True
        self._asleep: set[Memory] = set()

    @classmethod
    async def start(
        cls,
        model_path: str,
        config: EngineConfig,
        family: "FamilyAdapter",
        *,
        weight_transfer: str | None = None,
        sleep: bool = False,
        deterministic: bool = False,
    ) -> "Engine":
        """Load the model and start the engine process; it ends with this one.

        Args:
            model_path: folder or hub id.
            config: of the engine.
            family: adapter of the same model.
            weight_transfer: how new weights will come: `weights.BACKEND` for `publish`, or one of
                vLLM's backends; None where the checkpoint's stay.
            sleep: whether `sleep` will be used.
            deterministic: for `generate_in_order`: what a step computes does not depend on when the
                one before it ended.

        Raises:
            UserError: for settings that this machine cannot serve.
        """
        fast_start.use_fork_server()
        from vllm.logger import configure_logging_if_needed
        from vllm.v1.engine.async_llm import AsyncLLM

        from easyvideor1.evaluate import engine_args

        args = engine_args.engine_args(
            model_path,
            config,
            family,
            weight_transfer=weight_transfer,
            sleep=sleep,
            deterministic=deterministic,
        )
        configure_logging_if_needed(args.create_logging_config())
        quiet.silence_expected_warnings()
        vllm_config = args.create_engine_config()
        max_medium_tokens = _max_medium_tokens(vllm_config)
        if config.encoder_cache_tokens is not None:
            # vLLM 0.32 has no argument for it, and sets it to the tokens of one step.
            vllm_config.scheduler_config.encoder_cache_size = config.encoder_cache_tokens
        llm = AsyncLLM.from_vllm_config(vllm_config, disable_log_stats=True)
        return cls(llm, family, max_medium_tokens)

    async def generate(self, request: EngineRequest) -> EngineResult:
        """Answer one request; waits while weights are being published.

        Raises:
            RequestRefusedError: the request cannot be answered as it is.
            RequestFailedError: the engine failed on it.
            EngineDiedError: there is no engine any more, or none with defined weights.
        """
        start = time.perf_counter()
        output = await self._answered(request, self._sampling_params(request.settings))
        return self._result(output, since=start)

    async def generate_in_order(
        self, requests: Sequence[EngineRequest]
    ) -> list[EngineResult | RequestRefusedError | RequestFailedError]:
        """Answer requests so that nothing but them, their order and the weights has a say.

        All of them wait in the engine before its first step, and every cache is empty: each step
        then computes the same requests side by side, which decides how sums are rounded. No other
        request may be in flight. Their frames are in memory all at once.

        Returns:
            Per request its answer, or why it has none.

        Raises:
            EngineDiedError: as `generate`.
        """
        from vllm.v1.engine.output_processor import RequestOutputCollector

        async with self._gate.request():
            self._check_weights()
            start = time.perf_counter()
            await self._while_alive(self._llm.pause_generation(mode="keep", clear_cache=True))
            try:
                queued = [await _caught(self._queue(request)) for request in requests]
            finally:
                await self._while_alive(self._llm.resume_generation())
            return [
                await _caught(self._queued_answer(request, outputs, since=start))
                if isinstance(outputs, RequestOutputCollector)
                else outputs
                for request, outputs in zip(requests, queued, strict=True)
            ]

    async def _queue(self, request: EngineRequest) -> "RequestOutputCollector":
        """Where the answer to `request` will come, once the engine has it."""
        with _told(request):
            prompt = await self._render(request)
            params = self._sampling_params(request.settings)
            return await self._while_alive(
                self._llm.add_request(request.request_id, prompt, params)
            )

    async def _queued_answer(
        self, request: EngineRequest, outputs: "RequestOutputCollector", *, since: float
    ) -> EngineResult:
        with _told(request):
            output = await self._while_alive(outputs.get())
        return self._result(_whole(request, output), since=since)

    def _result(self, output: "RequestOutput", *, since: float) -> EngineResult:
        outputs = sorted(output.outputs, key=lambda completion: completion.index)
        return EngineResult(
            prompt_token_ids=list(output.prompt_token_ids or []),
            completions=[_completion(completion, self.version) for completion in outputs],
            seconds=time.perf_counter() - since,
        )

    async def answer_logprobs(self, request: EngineRequest, answer: Sequence[int]) -> list[float]:
        """Log-probs of the tokens of a given answer; `settings` of the request play no part.

        At temperature 1 and over all ids, those that may not be sampled included.

        Raises:
            RequestRefusedError, RequestFailedError, EngineDiedError: as `generate`.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        asked = replace(request, prompt_token_ids=[*request.prompt_token_ids, *answer])
        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        output = await self._answered(asked, params)
        told = (output.prompt_logprobs or [])[-len(answer) :]
        return [float(at[token].logprob) for token, at in zip(answer, told, strict=True) if at]

    async def _answered(self, request: EngineRequest, params: "SamplingParams") -> "RequestOutput":
        """The engine's whole answer; raises as `generate`."""
        async with self._gate.request():
            self._check_weights()
            with _told(request):
                prompt = await self._render(request)
                output = await self._while_alive(self._final_output(prompt, params, request))
        return _whole(request, output)

    def _check_weights(self) -> None:
        if not self._weights_defined:
            raise EngineDiedError("the weights are undefined since a publish failed")

    async def _render(self, request: EngineRequest) -> "EngineInput":
        """The prompt with its media processed, off the event loop, as the learner will see it."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        try:
            _refuse(request, too_large_medium(self._family, request.clips, self._max_medium_tokens))
            # In a thread: it reads the frames, from a cache file that may not be in memory yet.
            inputs = await asyncio.to_thread(
                self._family.engine_inputs,
                request.prompt_token_ids,
                request.clips,
                sample_id=request.request_id,
            )
            prompt = parse_model_prompt(self._llm.model_config, inputs)
            (rendered,) = await self._llm.renderer.render_cmpl_async([prompt])
            reason = disagreement(self._family, request.prompt_token_ids, request.clips, rendered)
            if reason is not None:
                self._forget_media(rendered)
            _refuse(request, reason)
        except RequestRefusedError:
            raise
        # Processors meet odd media with any kind of error; it is this request's alone.
        except Exception as error:
            raise RequestRefusedError(_reason(request, error)) from error
        return rendered

    def _forget_media(self, rendered: Any) -> None:
        """Media of a refused prompt are never sent, which vLLM's cache on this side cannot know."""
        cache = self._llm.renderer.mm_processor_cache
        if cache is not None:
            for hashes in (rendered.get("mm_hashes") or {}).values():
                for mm_hash in hashes:
                    cache.invalidate(mm_hash)

    async def _final_output(
        self, prompt: "EngineInput", params: "SamplingParams", request: EngineRequest
    ) -> "RequestOutput":
        final: RequestOutput | None = None
        async for output in self._llm.generate(prompt, params, request.request_id):
            final = output
        assert final is not None and final.finished
        return final

    def _sampling_params(self, settings: SamplingSettings) -> "SamplingParams":
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=settings.n,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            min_p=settings.min_p,
            seed=settings.seed,
            presence_penalty=settings.presence_penalty,
            repetition_penalty=settings.repetition_penalty,
            max_tokens=settings.max_new_tokens,
            stop_token_ids=list(self._family.eos_token_ids),
            logit_bias=self._bias or None,
            logprobs=0 if settings.logprobs else None,
            # With another kind the last output of n > 1 holds only the answers that ended last.
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    # New weights

    async def publish(
        self, buckets: "Iterable[WeightBucket]", version: int, *, kept: Sequence[str] = ()
    ) -> None:
        """Replace the weights. Requests in flight finish with the old ones, later ones wait.

        All caches made by the old weights go: prefix, encoder and processed media. If it raises,
        the weights are undefined: requests fail until another publish succeeds. Across processes
        its parts are called one by one: `begin_publish`, `load_bucket`, `finish_publish`.

        Args:
            buckets: of `weight_buckets.write_buckets`.
            version: above that of the last publish; stamped on every completion.
            kept: name prefixes of parts that are not in the buckets and stay as they are.

        Raises:
            EngineDiedError: there is no engine any more.
        """
        await self.begin_publish()
        try:
            await self.start_weight_update()
            for bucket in buckets:
                await self.load_bucket(bucket)
            await self.close_buckets(kept)
            await self.finish_weight_update()
            await self.finish_publish(version)
        except BaseException:
            await self._gate.open()
            raise

    async def begin_publish(self) -> None:
        """Wait for the requests in flight and keep later ones out; drop every cache."""
        if self._llm.vllm_config.weight_transfer_config is None:
            raise ValueError("publish needs an engine started with weight_transfer")
        await self._gate.close()
        self._weights_defined = False
        # The pause clears all three caches, and the scheduler's view of them, in one call.
        await self._while_alive(self._llm.pause_generation(mode="wait", clear_cache=True))

    async def start_weight_update(self) -> None:
        """Make the workers ready for the weights."""
        await self._while_alive(self._llm.start_weight_update())

    async def load_bucket(self, bucket: "WeightBucket") -> None:
        """Load a part of the weights; on return the bucket may be freed."""
        from easyvideor1.evaluate import weights

        await self.update_weights(weights.bucket_update(bucket))

    async def close_buckets(self, kept: Sequence[str]) -> None:
        """Check that every parameter has come, but for the parts under the prefixes `kept`."""
        from easyvideor1.evaluate import weights

        await self.update_weights(weights.closing_update(kept))

    async def update_weights(self, update_info: Any) -> None:
        """Pass one message of the weight-transfer backend to the workers."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        request = WeightTransferUpdateRequest(update_info=update_info)
        await self._while_alive(self._llm.update_weights(request))

    async def finish_weight_update(self) -> None:
        """Put the weights in place."""
        await self._while_alive(self._llm.finish_weight_update())

    async def finish_publish(self, version: int) -> None:
        """The weights are complete: let requests in, unless the engine is still asleep."""
        await self._while_alive(self._llm.update_weight_version(str(version)))
        self.version = version
        self._weights_defined = True
        if not self._asleep:
            await self._while_alive(self._llm.resume_generation())
            await self._gate.open()

    async def init_weight_transfer(self, init_info: dict[str, Any]) -> None:
        """Introduce a trainer to the workers, where the backend needs that."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        request = WeightTransferInitRequest(init_info=init_info)
        await self._while_alive(self._llm.init_weight_transfer_engine(request))

    # Memory for others

    async def sleep(self) -> None:
        """Give all GPU memory away, weights included; requests wait until it is awake again.

        Level 2: level 1 would keep a copy of the weights in host memory, which the next publish
        overwrites.
        """
        await self._gate.close()
        self._weights_defined = False
        await self._while_alive(self._llm.sleep(level=2, mode="wait"))
        self._asleep = {"weights", "kv_cache"}

    async def wake(self, memory: Memory) -> None:
        """Take memory back: the weights' before a publish, the KV cache's after it."""
        await self._while_alive(self._llm.wake_up([memory]))
        self._asleep.discard(memory)
        if not self._asleep:
            await self._reset_caches()
            await self._gate.open()

    async def _reset_caches(self) -> None:
        """Forget what lay in memory that was given away."""
        await self._while_alive(self._llm.reset_prefix_cache())
        await self._while_alive(self._llm.reset_mm_cache())
        await self._while_alive(self._llm.reset_encoder_cache())

    async def _while_alive(self, work: "Coroutine[Any, Any, T]") -> T:
        """The result of `work`, or `EngineDiedError` once the engine is dead.

        vLLM lets a call wait for ever when the engine dies just before it is queued: by then the
        task that hands out answers and errors has ended.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.create_task(work)
        handler = self._llm.output_handler
        assert handler is not None
        try:
            await asyncio.wait({task, handler}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({task}, timeout=LAST_ERRORS_S)
            if not task.done():
                raise EngineDiedError("the engine's process has ended")
            return task.result()
        except EngineDeadError as error:
            raise EngineDiedError("the engine's process has ended") from error
        finally:
            task.cancel()

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache has room for."""
        cache = self._llm.vllm_config.cache_config
        return (cache.num_gpu_blocks or 0) * cache.block_size

    async def stop(self) -> None:
        """End the engine process and free its memory."""
        import psutil

        # vLLM looks for the children of a process that may end just then.
        with suppress(psutil.NoSuchProcess):
            self._llm.shutdown()


@contextmanager
def _told(request: EngineRequest) -> "Generator[None]":
    """vLLM's errors about a request as ours."""
    from vllm.exceptions import VLLMClientError, VLLMServerError

    try:
        yield
    except VLLMClientError as error:
        raise RequestRefusedError(_reason(request, error)) from error
    except VLLMServerError as error:
        raise RequestFailedError(_reason(request, error.__cause__ or error)) from error


async def _caught(work: "Awaitable[T]") -> T | RequestRefusedError | RequestFailedError:
    """The result of `work`, or what is wrong with its request."""
    try:
        return await work
    except (RequestRefusedError, RequestFailedError) as error:
        return error


def _whole(request: EngineRequest, output: "RequestOutput") -> "RequestOutput":
    """`output`, unless an answer in it was broken off.

    vLLM ends a request so that it could not go on with, e.g. over a medium that one of its two
    caches has lost; what there is of the answer is not an answer.
    """
    reasons = [o.finish_reason for o in output.outputs if o.finish_reason in BROKEN_OFF]
    if reasons:
        raise RequestFailedError(
            f"request {request.request_id}: {len(reasons)} of {len(output.outputs)} answers "
            f"were broken off ({reasons[0]})"
        )
    return output


def _refuse(request: EngineRequest, reason: str | None) -> None:
    """Raise `RequestRefusedError` if there is a reason."""
    if reason is not None:
        raise RequestRefusedError(f"request {request.request_id}: {reason}")


def _reason(request: EngineRequest, error: BaseException) -> str:
    """One line; some of vLLM's messages print whole arrays."""
    first = (str(error).splitlines() or [""])[0]
    return f"request {request.request_id}: {type(error).__name__}: {first[:300]}"


def _max_medium_tokens(config: "VllmConfig") -> int:
    """The longest medium that one encoder run takes; the scheduler would put off a longer one for
    ever.
    """
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.encoder_budget import MultiModalBudget

    budget = MultiModalBudget(config, MULTIMODAL_REGISTRY)
    budget.reset_cache()
    return budget.get_encoder_budget()


def _completion(output: "CompletionOutput", version: int) -> Completion:
    token_ids = tuple(output.token_ids)
    logprobs = None
    if output.logprobs is not None:
        pairs: Sequence[tuple[int, Any]] = list(zip(token_ids, output.logprobs, strict=True))
        logprobs = tuple(float(at[token].logprob) for token, at in pairs)
    segment = Segment(token_ids=token_ids, logprobs=logprobs, policy_version=version)
    return Completion(
        segments=(segment,), text=output.text, finish_reason=output.finish_reason or "abort"
    )
