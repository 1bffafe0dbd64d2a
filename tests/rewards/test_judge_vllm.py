"""The judge against vLLM's own OpenAI server with a tiny random model on whatever this host has."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from easyvideor1.rewards import RewardConfig, score_many
from easyvideor1.rewards.config import JudgeConfig, OnFailure
from easyvideor1.rewards.judge import Grade, Judge, NoVerdictError, Pair
from easyvideor1.rewards.registry import ScorerUnavailableError
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import ProblemType, Sample
from tests.vllm_server import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GRADE = Grade("Which colour?", "red", "It is red.")


@pytest.fixture(scope="module")
def base_url(tiny_model_path: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with serving(tiny_model_path, log, "judge") as url:
        yield url


def judge(base_url: str, **settings: Any) -> Judge:
    given: dict[str, Any] = {"base_url": base_url, "model": "judge", "cache": None}
    return Judge(JudgeConfig(**(given | {"timeout_s": 300, "max_tokens": 64} | settings)))


def test_a_schema_makes_even_a_random_model_give_verdicts(base_url: str):
    assert judge(base_url).ask(GRADE) in {grade / 10 for grade in range(11)}
    assert judge(base_url).ask(Pair("Which colour?", "red", "blue")) in {0.0, 0.5, 1.0}


def test_a_random_model_without_a_schema_gives_none(base_url: str):
    with pytest.raises(NoVerdictError):
        judge(base_url, structured_output=False).ask(GRADE)


def test_answers_of_a_batch_are_judged_at_the_same_time(base_url: str, tmp_path: Path):
    graded = [
        (Sample(id=f"q{index}", problem="Which colour?", answer=None,
                problem_type=ProblemType.preference), f"<answer>colour {index}</answer>")
        for index in range(24)
    ]  # fmt: skip
    config = RewardConfig(
        judge=JudgeConfig(
            base_url=base_url, model="judge", timeout_s=300, max_tokens=64, concurrency=8,
            cache=str(tmp_path / "verdicts.sqlite"),
        )
    )  # fmt: skip
    scores = score_many(graded, config)
    assert {score.status.value for score in scores} == {"ok"}
    config.judge.base_url = "http://127.0.0.1:1/v1"  # nobody there: all come from the cache
    assert score_many(graded, config) == scores


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"model": "another"}, "NotFoundError"), ({"max_tokens": 100_000}, "BadRequestError")],
)
def test_a_request_that_the_server_refuses_follows_the_policy(
    base_url: str, settings: dict, reason: str
):
    with pytest.raises(UserError, match=reason):
        judge(base_url, **settings).ask(GRADE)
    with pytest.raises(ScorerUnavailableError, match=reason):
        judge(base_url, on_failure=OnFailure.status, **settings).ask(GRADE)
