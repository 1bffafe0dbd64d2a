"""Fixtures that several packages' tests share: outputs apart, a tiny model, toy data."""

from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

from easyvideor1.evaluate import fast_start
from easyvideor1.preprocess.config import ToyboxConfig
from easyvideor1.schema import environment
from tests.live_engine import LiveEngine

# Before any test module imports torch, vllm or ray.
environment.prepare()


@pytest.fixture(scope="session", autouse=True)
def outputs_apart(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """`outputs/` of this process and of commands it starts is a temporary folder."""
    folder = tmp_path_factory.mktemp("outputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVR_OUTPUTS", str(folder))
        yield folder


@pytest.fixture(scope="session")
def tiny_model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a random Qwen3-VL of the size that the demo trains."""
    from easyvideor1.preprocess.config import TinyModelConfig
    from easyvideor1.preprocess.families import tiny

    folder = tmp_path_factory.mktemp("models") / "tiny_qwen3_vl"
    tiny.build(TinyModelConfig(), folder)
    return str(folder)


@pytest.fixture(scope="session")
def sharp_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """By family: a tiny model whose answers are far from equally likely; built when asked for."""
    from tests.train.policy_cases import build_sharp_model

    folder = tmp_path_factory.mktemp("models")

    @cache
    def built(family: str) -> Path:
        build_sharp_model(folder / family, family)
        return folder / family

    return built


@pytest.fixture(scope="session")
def toybox_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small toybox: clips/, train.jsonl and validation.jsonl."""
    from easyvideor1.preprocess import toybox

    folder = tmp_path_factory.mktemp("toybox")
    toybox.build(
        ToyboxConfig(train_clips=24, train_events=6, validation_clips=12, validation_events=6),
        folder,
    )
    return folder


def pytest_collection_finish(session: pytest.Session) -> None:
    """The engine's process imports vLLM while the tests before it run."""
    if any("engine" in getattr(item, "fixturenames", ()) for item in session.items):
        fast_start.begin()


@pytest.fixture(scope="session")
def session_engine(tiny_model_path: str) -> Generator[LiveEngine]:
    """One vLLM engine for the whole session; tests ask for `engine`."""
    live = LiveEngine(tiny_model_path)
    yield live
    live.stop()


@pytest.fixture
def engine(session_engine: LiveEngine) -> Generator[LiveEngine]:
    """A running engine with the weights of `tiny_model_path`, which a test may replace."""
    yield session_engine
    session_engine.restore_weights()
