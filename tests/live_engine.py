"""One engine that many tests share, driven from ordinary test functions."""

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import psutil

from easyvideor1.evaluate.config import EngineConfig, SamplingSettings
from easyvideor1.evaluate.engine import Engine
from easyvideor1.evaluate.engine_request import EngineRequest, EngineResult
from easyvideor1.evaluate.weight_buckets import BUCKET_BYTES, write_buckets
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.families import FamilyAdapter, load_family

T = TypeVar("T")

MAX_MODEL_LEN = 2_048
KV_CACHE_BYTES = 64 * 1024**2


class LiveEngine:
    """A started `Engine` with its family and an event loop of its own.

    Example:
        result = engine.generate(prompt_token_ids, clips, temperature=0.0, max_new_tokens=8)
        engine.publish(model.state_dict())
    """

    def __init__(self, model_path: str):
        self.model_path = model_path
        self.family: FamilyAdapter = load_family(model_path)
        self._runner = asyncio.Runner()
        self._request_ids = itertools.count()
        from easyvideor1.evaluate import weights

        config = EngineConfig(max_model_len=MAX_MODEL_LEN, kv_cache_bytes=KV_CACHE_BYTES)
        before = set(psutil.Process().children(recursive=True))
        self.engine: Engine = self.run(
            Engine.start(model_path, config, self.family, weight_transfer=weights.BACKEND)
        )
        started = set(psutil.Process().children(recursive=True)) - before
        self.processes = [p for p in started if "EngineCore" in " ".join(p.cmdline())]
        """Where the model is, for tests that measure or kill it."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def request(
        self, prompt_token_ids: list[int], clips: Sequence[Clip], **settings: Any
    ) -> EngineRequest:
        return EngineRequest(
            request_id=f"test-{next(self._request_ids)}",
            prompt_token_ids=prompt_token_ids,
            clips=list(clips),
            settings=SamplingSettings(**settings),
        )

    def generate(
        self, prompt_token_ids: list[int], clips: Sequence[Clip], **settings: Any
    ) -> EngineResult:
        request = self.request(prompt_token_ids, clips, **settings)
        return self.run(self.engine.generate(request))

    def answer_logprobs(
        self, prompt_token_ids: list[int], clips: Sequence[Clip], answer: Sequence[int]
    ) -> list[float]:
        request = self.request(prompt_token_ids, clips)
        return self.run(self.engine.answer_logprobs(request, answer))

    def publish(
        self,
        state_dict: dict[str, Any],
        *,
        kept: Sequence[str] = (),
        max_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Replace the weights by the items of a state dict, as the next version.

        `kept`: name prefixes that are left out and stay as they are.
        """
        items = [item for item in state_dict.items() if not item[0].startswith(tuple(kept))]
        buckets = write_buckets(items, max_bytes=max_bytes)
        self.run(self.engine.publish(buckets, self.engine.version + 1, kept=kept))

    def restore_weights(self) -> None:
        """Publish the checkpoint's own weights, if a test has published others."""
        if self.engine.version == self._restored_version:
            return
        from transformers import AutoModelForImageTextToText

        model = AutoModelForImageTextToText.from_pretrained(self.model_path)
        self.publish(model.state_dict())
        self._restored_version = self.engine.version

    _restored_version = 0

    def stop(self) -> None:
        self.run(self.engine.stop())
        self._runner.close()
