"""Loading, generating and storing overlap within limits, and every question ends somewhere."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from easyvideor1.evaluate.config import PipelineConfig, SamplingSettings
from easyvideor1.evaluate.engine_request import (
    EngineDiedError,
    EngineRequest,
    EngineResult,
    RequestFailedError,
    RequestRefusedError,
)
from easyvideor1.evaluate.pipeline import GREY, Pipeline, Question, questions_of
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.errors import DecodeError
from easyvideor1.schema.records import (
    Completion,
    Media,
    MediaKind,
    Prediction,
    PredictionStatus,
    ProblemType,
    Sample,
    Segment,
)
from tests.clips import video

CLIP = video(4)


class WordEngine:
    """Answers with the id of the request after a moment; tells what it was asked and when."""

    def __init__(self, seconds: float = 0.0):
        self.seconds = seconds
        self.requests: list[EngineRequest] = []
        self.at_once = self.most_at_once = 0

    async def generate(self, request: EngineRequest) -> EngineResult:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        self.fail(request)
        segment = Segment(token_ids=(1, 2))
        cut = "long" in request.request_id
        completion = Completion(
            segments=(segment,),
            text=f"answer to {request.request_id}",
            finish_reason="length" if cut else "stop",
        )
        return EngineResult(
            prompt_token_ids=[0] * 10, completions=[completion], seconds=self.seconds
        )

    def fail(self, request: EngineRequest) -> None:
        """What some requests meet instead of an answer."""
        if "refused" in request.request_id:
            raise RequestRefusedError("too long")
        if "broken" in request.request_id:
            raise RequestFailedError("something gave way")
        if "deadly" in request.request_id:
            raise EngineDiedError("the engine died")


def question(name: str, video: str | None = None) -> Question:
    media = (Media(kind=MediaKind.video, path=f"{video or name}.mp4"),)
    sample = Sample(
        id=name, problem="?", answer="A", problem_type=ProblemType.open_ended, media=media
    )
    return Question(sample=sample, prompt_token_ids=[1], settings=SamplingSettings())


def answer(
    questions: list[Question],
    engine: WordEngine,
    *,
    load: Callable[[Sample], list[Clip]] = lambda sample: [CLIP],
    store: Callable[[list[Prediction]], None] | None = None,
    blank_frames: bool = False,
    **limits: int,
) -> dict[str, Prediction]:
    """Run a pipeline; the stored predictions by sample."""
    stored: list[Prediction] = []

    async def run() -> None:
        pipeline = Pipeline(
            engine,
            load,
            store or stored.extend,
            fingerprint="f",
            config=PipelineConfig(**limits),
            blank_frames=blank_frames,
        )
        try:
            await pipeline.run(questions)
        except EngineDiedError:
            stored.append(prediction_of_the_end)

    asyncio.run(run())
    assert len({p.key for p in stored}) == len(stored), "no sample twice"
    return {prediction.sample_id: prediction for prediction in stored}


prediction_of_the_end = Prediction(
    fingerprint="f", sample_id="(engine died)", status=PredictionStatus.generate_failed
)


def test_every_question_ends_with_a_status() -> None:
    def load(sample: Sample) -> list[Clip]:
        if sample.id == "lost":
            raise DecodeError("lost.mp4", "no video stream")
        return [CLIP]

    names = ["fine", "long", "refused", "broken", "lost"]
    stored = answer([question(name) for name in names], WordEngine(), load=load)
    assert {name: prediction.status.value for name, prediction in stored.items()} == {
        "fine": "ok",
        "long": "truncated",
        "refused": "refused",
        "broken": "generate_failed",
        "lost": "load_failed",
    }
    assert stored["fine"].text == "answer to fine#0" and stored["fine"].prompt_tokens == 10
    assert "no video stream" in stored["lost"].error and not stored["lost"].media
    (seen,) = stored["fine"].media
    assert seen["key"] == CLIP.key and (seen["height"], seen["width"]) == CLIP.shape[2:]
    assert seen["frame_indices"] == list(CLIP.metadata.frame_indices)


def test_questions_about_one_video_load_it_once_and_go_together() -> None:
    loads: Counter[str] = Counter()

    def load(sample: Sample) -> list[Clip]:
        loads[sample.media[0].path] += 1
        return [CLIP]

    engine = WordEngine()
    questions = [question(f"{number}", video=f"{number % 4}") for number in range(20)]
    stored = answer(questions, engine, load=load, load_workers=1)
    assert len(stored) == 20 and set(loads.values()) == {1}
    videos = [int(request.request_id.split("#")[0]) % 4 for request in engine.requests]
    assert videos == sorted(videos)


def test_loading_runs_while_the_engine_does() -> None:
    def load(sample: Sample) -> list[Clip]:
        time.sleep(0.02)
        return [CLIP]

    start = time.perf_counter()
    answer([question(f"{i}") for i in range(20)], WordEngine(0.02), load=load, load_workers=1)
    assert time.perf_counter() - start < 0.75 * 20 * 0.04


def test_loading_waits_while_too_many_bytes_are_under_way() -> None:
    engine = WordEngine(0.01)
    ahead: list[int] = []

    def load(sample: Sample) -> list[Clip]:
        ahead.append(len(ahead) + 1 - len(engine.requests))
        return [CLIP]

    limit = 3 * CLIP.frames.nbytes
    stored = answer(
        [question(f"{i}") for i in range(40)],
        engine,
        load=load,
        prefetch_bytes=limit,
        load_workers=2,
    )
    assert len(stored) == 40
    # Three clips fill the room, and each of two workers may have one more in hand.
    assert engine.most_at_once <= 3 + 2 and max(ahead) <= 3 + 2


def test_no_more_requests_than_allowed_are_with_the_engine() -> None:
    engine = WordEngine(0.005)
    answer([question(f"{i}") for i in range(30)], engine, max_requests=4)
    assert engine.most_at_once == 4


def test_what_was_answered_before_the_engine_died_is_kept() -> None:
    questions = [question("first"), question("second"), question("deadly"), question("never")]
    stored = answer(questions, WordEngine(0.001), load_workers=1, max_requests=1)
    assert set(stored) == {"first", "second", "(engine died)"}


def test_a_store_that_fails_ends_the_run() -> None:
    def store(predictions: list[Prediction]) -> None:
        raise OSError("no space left on device")

    engine = WordEngine(0.01)
    with pytest.raises(OSError, match="no space left"):
        answer([question(f"{i}") for i in range(500)], engine, store=store, max_requests=2)
    assert len(engine.requests) < 100


def test_a_blind_run_shows_grey_frames_under_other_keys_and_records_the_real_ones() -> None:
    engine = WordEngine()
    stored = answer([question("a")], engine, blank_frames=True)
    (clip,) = engine.requests[0].clips
    assert clip.shape == CLIP.shape and np.all(clip.frames == GREY)
    assert clip.key != CLIP.key, "the engine caches media by key"
    assert clip.metadata == CLIP.metadata
    assert stored["a"].media[0]["key"] == CLIP.key


def test_seeds_follow_from_the_sample_not_from_the_order() -> None:
    samples = [question(name).sample for name in "abc"]
    settings = SamplingSettings(temperature=1.0)

    def seeds(samples: list[Sample], seed: int = 0) -> dict[tuple[str, int], Any]:
        questions = questions_of(samples, lambda _: [1], settings, repeats=2, seed=seed)
        return {(q.sample.id, q.repeat): q.settings.seed for q in questions}

    assert seeds(samples) == seeds(samples[::-1])
    assert len(set(seeds(samples).values())) == 6
    assert not set(seeds(samples).values()) & set(seeds(samples, seed=1).values())
    greedy = questions_of(
        samples, lambda _: [1], SamplingSettings(temperature=0), repeats=1, seed=0
    )
    assert {q.settings.seed for q in greedy} == {None}
