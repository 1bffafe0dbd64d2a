"""The one generation path: vLLM's AsyncLLM behind `generate` and `publish`.

Evaluation and training rollouts both use it, also inside a Ray actor. It owns how requests reach
vLLM (unexpanded prompt, pre-sized frames, forbidden tokens, seeds) and what comes back (the
expanded prompt, completions with log-probs of the sampling policy). vLLM changes the process it
lives in: it seeds the global generators and, on a CPU, may replace `torch.set_num_threads` and
`torch.accelerator` functions by no-ops; so a learner never shares a process with an engine.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from easyvideor1.evaluate import fast_start, quiet
from easyvideor1.evaluate.config import EngineConfig, SamplingSettings
from easyvideor1.schema import environment
from easyvideor1.schema.records import Completion, Segment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.inputs import EngineInput
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

    from easyvideor1.evaluate.weights import WeightManifest
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families import FamilyAdapter

T = TypeVar("T")

FORBIDDEN_BIAS = -100.0
"""Added to the logits of tokens that may not be sampled; vLLM's lowest bias. exp(-100) is 4e-44."""
BROKEN_OFF = ("error", "abort")
"""Reasons of vLLM to finish that are no end of an answer."""
LAST_ERRORS_S = 1.0
"""Time for a dead engine's errors to reach the requests that wait for it."""


class RequestRefusedError(Exception):
    """The engine took this request for invalid (too long, media that do not fit); others go on."""


class RequestFailedError(Exception):
    """The engine failed on this request and lives."""


class EngineDiedError(Exception):
    """The engine process has ended; every request from now on fails. Start a new engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRequest:
    """One prompt to be answered `settings.n` times."""

    request_id: str
    """Unique among the requests in flight."""
    prompt_token_ids: list[int]
    """Unexpanded: one placeholder per medium. The engine puts in the media tokens."""
    clips: "list[Clip]"
    """One per medium, in the order of the placeholders."""
    settings: SamplingSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineResult:
    prompt_token_ids: list[int]
    """Expanded: as the model saw it."""
    completions: list[Completion]
    """[n] each one segment, stamped with the version of the weights."""
    seconds: float
    """From the call to the last token, waiting included."""


class Engine:
    """A running vLLM engine with one model.

    Example:
        engine = await Engine.start(path, EngineConfig(), load_family(path))
        result = await engine.generate(request)
        await engine.stop()
    """

    def __init__(self, llm: "AsyncLLM", family: "FamilyAdapter", weight_updates: bool):
        self.version = 0
        """Of the weights: 0 is the checkpoint, then whatever was published last."""
        self._llm = llm
        self._family = family
        self._weight_updates = weight_updates
        self._bias = {token: FORBIDDEN_BIAS for token in family.forbidden_token_ids}
        self._gate = _Gate()
        self._weights_defined = True

    @classmethod
    async def start(
        cls,
        model_path: str,
        config: EngineConfig,
        family: "FamilyAdapter",
        *,
        weight_updates: bool = False,
    ) -> "Engine":
        """Load the model and start the engine process; it ends with this one.

        Args:
            model_path: folder or hub id.
            config: of the engine.
            family: adapter of the same model.
            weight_updates: whether `publish` will be used.
        """
        fast_start.use_fork_server()
        from vllm.logger import configure_logging_if_needed
        from vllm.v1.engine.async_llm import AsyncLLM

        args = _engine_args(model_path, config, family, weight_updates)
        configure_logging_if_needed(args.create_logging_config())
        quiet.silence_expected_warnings()
        llm = AsyncLLM.from_engine_args(args)
        return cls(llm, family, weight_updates)

    async def generate(self, request: EngineRequest) -> EngineResult:
        """Answer one request; waits while weights are being published.

        Raises:
            RequestRefusedError: the request cannot be answered as it is.
            RequestFailedError: the engine failed on it.
            EngineDiedError: there is no engine any more, or none with defined weights.
        """
        start = time.perf_counter()
        output = await self._answered(request, self._sampling_params(request.settings))
        outputs = sorted(output.outputs, key=lambda completion: completion.index)
        return EngineResult(
            prompt_token_ids=list(output.prompt_token_ids or []),
            completions=[_completion(completion, self.version) for completion in outputs],
            seconds=time.perf_counter() - start,
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
        from vllm.exceptions import VLLMClientError, VLLMServerError

        async with self._gate.request():
            if not self._weights_defined:
                raise EngineDiedError("the weights are undefined since a publish failed")
            try:
                prompt = await self._render(request)
                output = await self._while_alive(self._final_output(prompt, params, request))
            except VLLMClientError as error:
                raise RequestRefusedError(_reason(request, error)) from error
            except VLLMServerError as error:
                raise RequestFailedError(_reason(request, error.__cause__ or error)) from error
        # vLLM ends a request so that it could not go on with, e.g. over a medium that one of its
        # two caches has lost; what there is of the answer is not an answer.
        reasons = [o.finish_reason for o in output.outputs if o.finish_reason in BROKEN_OFF]
        if reasons:
            raise RequestFailedError(
                f"request {request.request_id}: {len(reasons)} of {len(output.outputs)} answers "
                f"were broken off ({reasons[0]})"
            )
        return output

    async def _render(self, request: EngineRequest) -> "EngineInput":
        """The prompt with its media processed, off the event loop."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        try:
            # In a thread: it reads the frames, from a cache file that may not be in memory yet.
            inputs = await asyncio.to_thread(
                self._family.engine_inputs,
                request.prompt_token_ids,
                request.clips,
                sample_id=request.request_id,
            )
            prompt = parse_model_prompt(self._llm.model_config, inputs)
            (rendered,) = await self._llm.renderer.render_cmpl_async([prompt])
        # Processors meet odd media with any kind of error; it is this request's alone.
        except Exception as error:
            raise RequestRefusedError(_reason(request, error)) from error
        return rendered

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

    async def publish(self, manifest: "WeightManifest") -> None:
        """Replace the weights. Requests in flight finish with the old ones, later ones wait.

        All caches made by the old weights go: prefix, encoder and processed media. If it raises,
        the weights are undefined: requests fail until another publish succeeds.

        Raises:
            EngineDiedError: there is no engine any more.
        """
        if not self._weight_updates:
            raise ValueError("publish needs an engine started with weight_updates=True")
        async with self._gate.closed():
            self._weights_defined = False
            await self._while_alive(self._replace_weights(manifest))
            self.version = manifest.version
            self._weights_defined = True

    async def _replace_weights(self, manifest: "WeightManifest") -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        from easyvideor1.evaluate import weights

        # The pause clears all three caches, and the scheduler's view of them, in one call.
        await self._llm.pause_generation(mode="wait", clear_cache=True)
        await self._llm.start_weight_update()
        update = weights.update_request(manifest)
        await self._llm.update_weights(WeightTransferUpdateRequest(update_info=update))
        await self._llm.finish_weight_update(str(manifest.version))
        await self._llm.resume_generation()

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

    async def stop(self) -> None:
        """End the engine process and free its memory."""
        self._llm.shutdown()


def _reason(request: EngineRequest, error: BaseException) -> str:
    """One line; some of vLLM's messages print whole arrays."""
    first = (str(error).splitlines() or [""])[0]
    return f"request {request.request_id}: {type(error).__name__}: {first[:300]}"


class _Gate:
    """Lets any number of requests in, or one publish and no request.

    vLLM's own pause does not cover a request that is still being preprocessed in this process: it
    would meet a media cache that was cleared on one side only.
    """

    def __init__(self) -> None:
        self._requests = 0
        self._closed = False
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def request(self) -> "AsyncGenerator[None]":
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._requests += 1
        try:
            yield
        finally:
            async with self._changed:
                self._requests -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def closed(self) -> "AsyncGenerator[None]":
        """Wait for the requests inside, keep later ones out."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._closed)
            self._closed = True
            await self._changed.wait_for(lambda: self._requests == 0)
        try:
            yield
        finally:
            async with self._changed:
                self._closed = False
                self._changed.notify_all()


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


def _engine_args(
    model_path: str, config: EngineConfig, family: "FamilyAdapter", weight_updates: bool
) -> "AsyncEngineArgs":
    from vllm import AsyncEngineArgs
    from vllm.config import WeightTransferConfig

    from easyvideor1.evaluate import weights

    gpu = environment.has_nvidia_gpu()
    # vLLM's linear attention has a CPU kernel for bfloat16 alone.
    dtype = "bfloat16" if gpu or family.has_linear_attention else "float32"
    settings: dict[str, Any] = {
        "model": model_path,
        "trust_remote_code": config.trust_remote_code,
        "dtype": dtype if config.dtype == "auto" else config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "tensor_parallel_size": config.tensor_parallel_size,
        "seed": config.seed,
        "enforce_eager": not gpu if config.enforce_eager is None else config.enforce_eager,
        "mm_processor_cache_gb": config.media_cache_gb,
        "enable_prefix_caching": True,
        # Log-probs of the policy that sampled: after temperature and the forbidden tokens.
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": "easyvideor1.evaluate.worker.WorkerExtension",
        "disable_log_stats": True,
    }
    if weight_updates:
        settings["weight_transfer_config"] = WeightTransferConfig(backend=weights.BACKEND)
    if gpu:
        settings["gpu_memory_utilization"] = config.gpu_memory_utilization
    else:
        settings |= {
            "distributed_executor_backend": "uni",
            "kv_cache_memory_bytes": config.kv_cache_bytes,
            # A seeded request whose prefill is cut in two crashes the CPU engine; recurrent states
            # can only be cached where prefills are cut.
            "enable_chunked_prefill": False,
            "enable_prefix_caching": not family.has_linear_attention,
            "skip_mm_profiling": True,
            "use_tqdm_on_load": False,
        }
    return AsyncEngineArgs(**settings)
