"""A model behind an OpenAI-compatible endpoint that grades answers and compares pairs of them.

A pair is asked about in both orders, and is a tie unless both name the same answer. Verdicts are
kept in a cache on disk. Requests run in threads, beside the processes that score other answers.
Called by `scoring` and `batch`; what is said to the judge is in `judge_prompts`.
"""

import hashlib
import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from easyvideor1.rewards import judge_prompts
from easyvideor1.rewards.config import JudgeConfig, OnFailure
from easyvideor1.rewards.judge_prompts import Call, NoVerdictError
from easyvideor1.rewards.registry import ScorerUnavailableError
from easyvideor1.rewards.verdict_cache import VerdictCache
from easyvideor1.schema.conf import resolve_output
from easyvideor1.schema.errors import UserError

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["Grade", "Judge", "NoVerdictError", "Pair", "Request", "Ruling", "judge_of"]

CONNECT_TIMEOUT_S = 10.0
"""Of the question whether there is an endpoint at all."""


@dataclass(frozen=True, slots=True)
class Grade:
    """How good is an answer? The verdict is a grade from 0 to 1."""

    question: str
    gold: str
    """What a right answer says; empty where there is no such text."""
    answer: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Which of two answers is better? The verdict is 1 for the first, 0.5 for a tie, else 0."""

    question: str
    first: str
    second: str


Request = Grade | Pair


class Ruling:
    """A verdict to come."""

    def __init__(self, calls: "list[Future[float]]"):
        self._calls = calls

    def verdict(self) -> float:
        """The verdict, when it is there.

        Raises:
            NoVerdictError: the judge gave none.
            ScorerUnavailableError: it cannot be reached and `judge.on_failure` is `status`.
            UserError: the same where it is `error`; and for settings that cannot be.
        """
        given = [call.result() for call in self._calls]
        if len(given) == 1:
            return given[0]
        forward, backward = given[0], 1 - given[1]
        return forward if forward == backward else 0.5

    def cancel(self) -> None:
        """Do not ask what has not been asked yet."""
        for call in self._calls:
            call.cancel()


class Judge:
    """One judge under one configuration."""

    def __init__(self, config: JudgeConfig):
        """Settings are checked, nothing is sent.

        Raises:
            UserError: a setting is missing.
        """
        for name in ("base_url", "model"):
            if not getattr(config, name):
                raise UserError(
                    f"reward.judge.{name} is not set, and there are answers that a judge decides; "
                    "set reward.judge.base_url and reward.judge.model"
                )
        if config.api_key_env is not None and not os.environ.get(config.api_key_env):
            raise UserError(
                f"reward.judge.api_key_env={config.api_key_env}: this environment variable is not "
                "set"
            )
        self._config = config
        self._cache = None if config.cache is None else VerdictCache(resolve_output(config.cache))
        self._versions = {
            kind: judge_prompts.version(kind, config) for kind in ("grade", "compare")
        }
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="judge")
        self._running: dict[str, Future[float]] = {}
        self._running_lock = threading.RLock()  # a call that is done at once forgets itself here
        self._is_connected = False
        self._connect_lock = threading.Lock()

    def ask(self, request: Request) -> float:
        """The verdict on one request; raises what `Ruling.verdict` does."""
        return self.submit(request).verdict()

    def submit(self, request: Request) -> Ruling:
        """Ask in the background. The same question is asked once, however often it comes."""
        if isinstance(request, Grade):
            texts = {"question": request.question, "gold": request.gold, "answer": request.answer}
            calls = [Call("grade", {name: text for name, text in texts.items() if text})]
        else:
            orders = (request.first, request.second), (request.second, request.first)
            calls = [
                Call("compare", {"question": request.question, "answer_a": a, "answer_b": b})
                for a, b in orders
            ]
        return Ruling([self._begin(call) for call in calls])

    def _begin(self, call: Call) -> "Future[float]":
        key = self._key(call)
        with self._running_lock:
            running = self._running.get(key)
            if running is None or running.cancelled():
                running = self._running[key] = self._threads.submit(self._decide, call, key)
                running.add_done_callback(lambda _: self._forget(key))
        return running

    def _forget(self, key: str) -> None:
        with self._running_lock:
            self._running.pop(key, None)

    def _key(self, call: Call) -> str:
        parts = [self._config.model, call.kind, self._versions[call.kind], call.texts]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _decide(self, call: Call, key: str) -> float:
        """The verdict from the cache, or from the endpoint."""
        text = judge_prompts.prompt(call, self._config)
        if self._cache is not None and (known := self._cache.get(key)) is not None:
            return known
        verdict = judge_prompts.read_verdict(call.kind, self._reply(call.kind, text))
        if self._cache is not None:
            self._cache.put(key, verdict, judge=str(self._config.model))
        return verdict

    def _reply(self, kind: str, text: str) -> str:
        from openai import OpenAIError

        self._connect()
        config = self._config
        shape: dict[str, Any] = {}
        if config.structured_output:
            shape["response_format"] = judge_prompts.response_format(kind)
        try:
            completion = self._client.chat.completions.create(
                model=str(config.model),
                messages=[{"role": "user", "content": text}],
                temperature=config.temperature,
                max_tokens=config.max_tokens,
                **shape,
            )
        except OpenAIError as error:
            reason = self._reason(error)
            if config.on_failure is OnFailure.error:
                raise UserError(f"{reason}; set reward.judge.on_failure=status to go on") from None
            raise ScorerUnavailableError(reason) from None
        choice = completion.choices[0] if completion.choices else None
        reply = choice.message.content if choice else None
        if choice is None or not reply:
            raise NoVerdictError("the reply is empty")
        if choice.finish_reason == "length":
            raise NoVerdictError("the reply was cut off at reward.judge.max_tokens")
        return reply

    def _reason(self, error: Exception) -> str:
        text = " ".join(str(error).split())
        return f"the judge at {self._config.base_url} failed: {type(error).__name__}: {text[:300]}"

    def _connect(self) -> None:
        """Make sure, before the first request, that there is an endpoint and that it takes the key.

        Raises:
            UserError: there is none, or it does not.
        """
        from openai import APIConnectionError, APIStatusError, OpenAIError

        with self._connect_lock:
            if self._is_connected:
                return
            try:
                self._client.with_options(timeout=CONNECT_TIMEOUT_S).models.list()
            except APIConnectionError as error:
                raise UserError(
                    f"{self._reason(error)}; check reward.judge.base_url, and that it runs"
                ) from None
            except APIStatusError as error:
                if error.status_code in (401, 403):
                    raise UserError(f"{self._reason(error)}; check the key") from None
            except OpenAIError:
                pass  # an endpoint of another shape: it answers
            self._is_connected = True

    @cached_property
    def _client(self) -> "OpenAI":
        from openai import OpenAI

        config = self._config
        key = os.environ[config.api_key_env] if config.api_key_env else "none"
        return OpenAI(
            base_url=config.base_url,
            api_key=key,
            timeout=config.timeout_s,
            max_retries=config.max_retries,
        )


_judges: dict[str, Judge] = {}
_judges_lock = threading.Lock()


def judge_of(config: JudgeConfig) -> Judge:
    """The judge of this process for a configuration.

    Raises:
        UserError: a setting is missing.
    """
    key = repr(config)
    with _judges_lock:
        if key not in _judges:
            _judges[key] = Judge(config)
        return _judges[key]
