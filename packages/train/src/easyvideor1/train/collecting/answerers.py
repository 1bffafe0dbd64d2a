"""Who answers: a checkpoint in an engine of our own, or a model behind an OpenAI-like endpoint.

Both are asked about the same frames, under the sampling law of `rollout`. Called by `command`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from easyvideor1.evaluate.shown_frames import data_uri
from easyvideor1.preprocess.families.base import closing_text
from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.placeholders import split_problem
from easyvideor1.schema.records import Completion, MediaKind, Sample, Segment, Source
from easyvideor1.train.config import EndpointConfig, RolloutConfig, TrainConfig
from easyvideor1.train.interfaces import Prompt
from easyvideor1.train.rollout import engine_config, sampling_law

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from easyvideor1.evaluate.engine import Engine
    from easyvideor1.preprocess.clip import Clip
    from easyvideor1.preprocess.families import FamilyAdapter


class NotAnsweredError(Exception):
    """There are no answers about this sample, for the reason given; others go on."""


class Answerer(Protocol):
    """Answers a prompt several times."""

    async def answer(
        self, prompt: Prompt, clips: "list[Clip]", *, count: int, seed: int
    ) -> list[Completion]:
        """Answers to a prompt about its clips.

        Raises:
            NotAnsweredError: this one cannot be answered.
            UserError: nothing can be answered.
        """
        ...


class EngineAnswerer:
    """A checkpoint in vLLM; its answers have the log-probs of the policy that sampled them."""

    def __init__(self, engine: "Engine", config: RolloutConfig):
        self._engine = engine
        self._config = config

    async def answer(
        self, prompt: Prompt, clips: "list[Clip]", *, count: int, seed: int
    ) -> list[Completion]:
        """See `Answerer`."""
        from easyvideor1.evaluate.engine_request import (
            EngineRequest,
            RequestFailedError,
            RequestRefusedError,
        )

        request = EngineRequest(
            request_id=prompt.sample.id,
            prompt_token_ids=prompt.token_ids,
            clips=clips,
            settings=replace(sampling_law(self._config), n=count, seed=seed, logprobs=True),
        )
        try:
            return (await self._engine.generate(request)).completions
        except (RequestRefusedError, RequestFailedError) as error:
            raise NotAnsweredError(str(error)) from error


class EndpointAnswerer:
    """A model behind an endpoint. It sees the frames as images, each with its time before it."""

    def __init__(
        self,
        client: "AsyncOpenAI",
        endpoint: EndpointConfig,
        rollout: RolloutConfig,
        reward: RewardConfig,
    ):
        self._client = client
        self._endpoint = endpoint
        self._rollout = rollout
        self._reward = reward

    async def answer(
        self, prompt: Prompt, clips: "list[Clip]", *, count: int, seed: int
    ) -> list[Completion]:
        """See `Answerer`."""
        from openai import (
            APIConnectionError,
            APITimeoutError,
            AuthenticationError,
            NotFoundError,
            OpenAIError,
            PermissionDeniedError,
        )

        content = await asyncio.to_thread(content_of, prompt.sample, clips, self._reward)
        messages: Any = [{"role": "user", "content": content}]
        try:
            reply = await self._client.chat.completions.create(
                model=self._endpoint.model or "",
                messages=messages,
                n=count,
                seed=seed,
                temperature=self._rollout.temperature,
                top_p=self._rollout.top_p,
                max_tokens=self._rollout.max_new_tokens,
            )
        except APITimeoutError as error:  # it is an APIConnectionError too
            raise NotAnsweredError(
                f"no answer within collect.endpoint.timeout_s={self._endpoint.timeout_s:g}, "
                f"asked {self._endpoint.max_retries + 1} times"
            ) from error
        except (NotFoundError, PermissionDeniedError) as error:
            raise UserError(
                f"{self._endpoint.base_url} does not let collect.endpoint.model="
                f"{self._endpoint.model} be asked: {error}"
            ) from error
        except (APIConnectionError, AuthenticationError) as error:
            raise UserError(
                f"collect.endpoint.base_url={self._endpoint.base_url} does not answer: {error}; "
                "what was collected is kept, and the same command goes on"
            ) from error
        except OpenAIError as error:
            raise NotAnsweredError(f"the endpoint refused it: {error}") from error
        return [
            Completion(
                segments=(Segment(token_ids=()),),
                text=choice.message.content or "",
                finish_reason=choice.finish_reason,
                source=Source.offline,
            )
            for choice in reply.choices
        ]


def content_of(sample: Sample, clips: "list[Clip]", reward: RewardConfig) -> list[dict[str, Any]]:
    """A sample as the content of a user's message: texts, and frames as PNG in data URLs."""
    waiting = iter(clips)
    content: list[dict[str, Any]] = []
    for piece in [*split_problem(sample), closing_text(sample, instruction(sample, reward))]:
        if isinstance(piece, str):
            content += [_text(piece)] if piece else []
            continue
        clip = next(waiting)
        for frame, time_s in zip(clip.frames, clip.metadata.timestamps_s, strict=True):
            if clip.kind is MediaKind.video:
                content.append(_text(f"<{time_s:.1f} seconds>"))
            content.append({"type": "image_url", "image_url": {"url": data_uri(frame, "png")}})
    return content


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@asynccontextmanager
async def open_answerer(config: TrainConfig, family: "FamilyAdapter") -> AsyncGenerator[Answerer]:
    """The endpoint if one is named, else an engine with `model.path`, which ends with the block."""
    endpoint = config.collect.endpoint
    if endpoint.base_url is not None:
        from openai import AsyncOpenAI

        key = os.environ[endpoint.api_key_env] if endpoint.api_key_env else "none"
        async with AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=key,
            timeout=endpoint.timeout_s,
            max_retries=endpoint.max_retries,
        ) as client:
            yield EndpointAnswerer(client, endpoint, config.rollout, config.reward)
        return
    from easyvideor1.evaluate.engine import Engine

    engine = await Engine.start(config.model.path, engine_config(config, 0), family)
    try:
        yield EngineAnswerer(engine, config.rollout)
    finally:
        await engine.stop()
