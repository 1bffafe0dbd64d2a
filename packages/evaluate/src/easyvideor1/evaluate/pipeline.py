"""Load frames, generate and store at the same time, each limited by what it costs.

Loading runs ahead of the engine until a number of decoded bytes is waiting; questions about the
same media go to the engine together, so that its prefix and encoder caches serve them all; what the
engine has answered is written down in batches while it goes on. Every question ends as a
`Prediction` with a status. Only the end of the engine ends the run.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from easyvideor1.evaluate.config import PipelineConfig, SamplingSettings
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, Prediction, PredictionStatus, Sample

if TYPE_CHECKING:
    from easyvideor1.evaluate.engine_request import EngineRequest, EngineResult
    from easyvideor1.preprocess.clip import Clip

GREY = 128
"""Of blanked frames: the middle of the range, which the processors map to about zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One answer to get."""

    sample: Sample
    prompt_token_ids: list[int]
    """Unexpanded."""
    settings: SamplingSettings
    repeat: int = 0


class Generator(Protocol):
    """What the pipeline needs of an engine."""

    async def generate(self, request: "EngineRequest") -> "EngineResult": ...


class Pipeline:
    """Answers questions; one run per object.

    Args:
        engine: generates.
        load: the clips of a sample, in order. Called in threads.
        store: takes finished predictions and returns when they are kept. Called in a thread.
        fingerprint: of the protocol, stamped on every prediction.
        config: limits.
        blank_frames: show grey instead of the frames.
    """

    def __init__(
        self,
        engine: Generator,
        load: "Callable[[Sample], list[Clip]]",
        store: Callable[[list[Prediction]], None],
        *,
        fingerprint: str,
        config: PipelineConfig,
        blank_frames: bool = False,
    ):
        self._engine = engine
        self._load = load
        self._store = store
        self._fingerprint = fingerprint
        self._config = config
        self._blank_frames = blank_frames
        self._room = _ByteBudget(config.prefetch_bytes)
        self._slots = asyncio.Semaphore(config.max_requests)
        self._finished: asyncio.Queue[Prediction | None] = asyncio.Queue()

    async def run(self, questions: Iterable[Question]) -> None:
        """Answer all questions.

        Raises:
            EngineDiedError: what was answered until then is stored.
        """
        pool = ThreadPoolExecutor(self._config.load_workers, thread_name_prefix="evr-load")
        answering = asyncio.create_task(self._answer_all(questions, pool))
        storing = asyncio.create_task(self._store_finished())
        try:
            # Storing ends first only by failing: then more answers are of no use.
            await asyncio.wait({answering, storing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answering.cancel()
            pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.gather(answering, return_exceptions=True)
            self._finished.put_nowait(None)
            await storing
        await answering

    async def _answer_all(self, questions: Iterable[Question], pool: ThreadPoolExecutor) -> None:
        groups = iter(group_by_media(questions))
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._config.load_workers):
                    tasks.create_task(self._feed(groups, tasks, pool))
        except* Exception as errors:
            raise errors.exceptions[0] from None

    async def _feed(
        self,
        groups: "Iterable[list[Question]]",
        tasks: asyncio.TaskGroup,
        pool: ThreadPoolExecutor,
    ) -> None:
        """Load one group after another and hand it on; several of these share `groups`."""
        loop = asyncio.get_running_loop()
        for group in groups:
            await self._room.wait()
            try:
                clips = await loop.run_in_executor(pool, self._load, group[0].sample)
            except UserError as error:
                for question in group:
                    self._finish(question, PredictionStatus.load_failed, error=str(error))
                continue
            num_bytes = sum(clip.frames.nbytes for clip in clips)
            self._room.take(num_bytes)
            tasks.create_task(self._answer_group(group, clips, num_bytes))

    async def _answer_group(
        self, group: list[Question], clips: "list[Clip]", num_bytes: int
    ) -> None:
        media = tuple(media_seen(clip) for clip in clips)
        if self._blank_frames:
            clips = [blank(clip) for clip in clips]
        try:
            async with asyncio.TaskGroup() as tasks:
                for question in group:
                    tasks.create_task(self._answer(question, clips, media))
        except* Exception as errors:
            raise errors.exceptions[0] from None
        finally:
            self._room.give_back(num_bytes)

    async def _answer(
        self, question: Question, clips: "list[Clip]", media: tuple[dict[str, Any], ...]
    ) -> None:
        from easyvideor1.evaluate.engine_request import (
            EngineRequest,
            RequestFailedError,
            RequestRefusedError,
        )

        request = EngineRequest(
            request_id=f"{question.sample.id}#{question.repeat}",
            prompt_token_ids=question.prompt_token_ids,
            clips=clips,
            settings=question.settings,
        )
        try:
            async with self._slots:
                result = await self._engine.generate(request)
        except RequestRefusedError as error:
            self._finish(question, PredictionStatus.refused, error=str(error), media=media)
            return
        except RequestFailedError as error:
            self._finish(question, PredictionStatus.generate_failed, error=str(error), media=media)
            return
        (completion,) = result.completions
        truncated = completion.finish_reason == "length"
        self._finish(
            question,
            PredictionStatus.truncated if truncated else PredictionStatus.ok,
            text=completion.text,
            token_ids=tuple(completion.token_ids),
            finish_reason=completion.finish_reason,
            prompt_tokens=len(result.prompt_token_ids),
            seconds=result.seconds,
            media=media,
        )

    def _finish(self, question: Question, status: PredictionStatus, **fields: Any) -> None:
        prediction = Prediction(
            fingerprint=self._fingerprint,
            sample_id=question.sample.id,
            repeat=question.repeat,
            status=status,
            **fields,
        )
        self._finished.put_nowait(prediction)

    async def _store_finished(self) -> None:
        """Write what is finished, as much at a time as has come up since the last write."""
        ended = False
        while not ended:
            waiting = [await self._finished.get()]
            while not self._finished.empty():
                waiting.append(self._finished.get_nowait())
            batch = [prediction for prediction in waiting if prediction is not None]
            ended = len(batch) < len(waiting)
            if batch:
                await asyncio.to_thread(self._store, batch)


class _ByteBudget:
    """Lets loading go on while fewer than `limit` bytes wait for their answers.

    What a clip costs is known once it is loaded, so each worker may overshoot by one group.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._used = 0
        self._below = asyncio.Event()
        self._below.set()

    async def wait(self) -> None:
        await self._below.wait()

    def take(self, num_bytes: int) -> None:
        self._used += num_bytes
        if self._used >= self._limit:
            self._below.clear()

    def give_back(self, num_bytes: int) -> None:
        self._used -= num_bytes
        if self._used < self._limit:
            self._below.set()


def group_by_media(questions: Iterable[Question]) -> list[list[Question]]:
    """Questions about the same media together, in order of their first one."""
    groups: dict[tuple[Media, ...], list[Question]] = {}
    for question in questions:
        groups.setdefault(question.sample.media, []).append(question)
    return list(groups.values())


def media_seen(clip: "Clip") -> dict[str, Any]:
    """What a prediction keeps about a medium; timestamps are indices over `source_fps`."""
    num_frames, _, height, width = clip.shape
    metadata = clip.metadata
    return {
        "key": clip.key,
        "frame_indices": list(metadata.frame_indices),
        "source_fps": metadata.source_fps,
        "frames": num_frames,
        "height": height,
        "width": width,
        "decoder": f"{metadata.decoder} {metadata.decoder_version}",
    }


def blank(clip: "Clip") -> "Clip":
    """Grey frames of the same number, size and times; another key, for the engine caches by it."""
    import numpy as np

    frames = np.full(clip.shape, GREY, np.uint8)
    return dataclasses.replace(clip, frames=frames, key=f"{clip.key}-blank")


def request_seed(seed: int, sample_id: str, repeat: int) -> int:
    """The seed of one answer: the same whatever else is asked, and in whichever order."""
    import hashlib

    text = f"{seed}/{sample_id}/{repeat}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def settings_for(
    settings: SamplingSettings, *, seed: int, sample: Sample, repeat: int
) -> SamplingSettings:
    """Generation settings of one answer; greedy ones need no seed."""
    if settings.temperature == 0:
        return settings
    return dataclasses.replace(settings, seed=request_seed(seed, sample.id, repeat))


def questions_of(
    samples: Sequence[Sample],
    prompt: "Callable[[Sample], list[int]]",
    settings: SamplingSettings,
    *,
    repeats: int,
    seed: int,
) -> list[Question]:
    """All answers a benchmark asks for.

    Args:
        samples: its questions.
        prompt: unexpanded token ids of a sample.
        settings: of generation.
        repeats: answers per question.
        seed: of the run.
    """
    return [
        Question(
            sample=sample,
            prompt_token_ids=token_ids,
            settings=settings_for(settings, seed=seed, sample=sample, repeat=repeat),
            repeat=repeat,
        )
        for sample in samples
        for token_ids in [prompt(sample)]
        for repeat in range(repeats)
    ]
