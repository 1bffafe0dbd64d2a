"""Publishing weights for a long time takes no memory, and every publish takes effect."""

import gc
from collections.abc import Generator
from statistics import fmean
from typing import Any

import psutil
import pytest
import torch

from easyvideor1.evaluate import engine_args
from easyvideor1.rewards import instruction
from tests.clips import CASES, sample_about
from tests.live_engine import LiveEngine
from tests.memory_files import memory_files

CLIPS = CASES["image and video"]
TOLERANCE = 0.05
SMALL_BUCKET = 512 * 1024
"""Bytes: the weights take several, the embedding is cut."""


@pytest.fixture(scope="module")
def weight_sets(tiny_model_path: str) -> list[dict[str, torch.Tensor]]:
    """The checkpoint with all matrices changed, in two ways."""
    sets = []
    for seed in (5, 6):
        model = load_model(tiny_model_path)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.add_(torch.randn_like(parameter) * 0.05)
        sets.append(model.state_dict())
    return sets


@pytest.fixture(scope="module")
def right_answers(tiny_model_path: str, weight_sets: Any) -> list[tuple[int, ...]]:
    """Greedy answers of both by plain transformers."""
    from easyvideor1.preprocess.families import load_family

    family = load_family(tiny_model_path)
    sample = sample_about(CLIPS)
    inputs = family.learner_inputs(family.prompt_token_ids(sample, instruction(sample)), CLIPS)
    ids = torch.tensor([inputs.token_ids])
    model, answers = load_model(tiny_model_path), []
    for weights in weight_sets:
        model.load_state_dict(weights)
        generated = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=inputs.mm_token_type_ids[None],
            pixel_values=inputs.pixel_values,
            image_grid_thw=inputs.image_grid_thw,
            pixel_values_videos=inputs.pixel_values_videos,
            video_grid_thw=inputs.video_grid_thw,
            do_sample=False,
            max_new_tokens=8,
            suppress_tokens=list(family.forbidden_token_ids),
        )
        answers.append(tuple(generated[0, ids.shape[1] :].tolist()))
    assert answers[0] != answers[1]
    return answers


def load_model(path: str) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()


class Memory:
    """Unique memory of this process and of an engine's, in MB, one reading per publish."""

    def __init__(self, engine: LiveEngine) -> None:
        assert engine.processes
        self._engine_processes = engine.processes
        self.readings: dict[str, list[float]] = {"driver": [], "engine": []}

    def read(self) -> None:
        gc.collect()
        self.readings["driver"].append(_driver_bytes() / 1e6)
        self.readings["engine"].append(sum(map(_uss, self._engine_processes)) / 1e6)

    def growth(self, process: str) -> float:
        """Mean of the last fifth of the readings over that of the second fifth: 41–50 over 11–20
        of 50.
        """
        readings, fifth = self.readings[process], len(self.readings[process]) // 5
        return fmean(readings[-fifth:]) / fmean(readings[fifth : 2 * fifth])


def _driver_bytes() -> int:
    # A file in memory counts for no process until one maps it.
    return _uss(psutil.Process()) + sum(memory_files().values())


def _uss(process: psutil.Process) -> int:
    return process.memory_full_info().uss


def publish_alternately(
    engine: LiveEngine, weight_sets: Any, right_answers: Any, count: int, keep: Any = None
) -> Memory:
    """Publish the two weight sets in turn; every greedy answer is that of the newest."""
    memory = Memory(engine)
    gc.collect()
    gc.freeze()  # a collection before each reading then looks at what came since
    sample = sample_about(CLIPS)
    prompt = engine.family.prompt_token_ids(sample, instruction(sample))
    for step in range(count):
        engine.publish(weight_sets[step % 2], max_bytes=SMALL_BUCKET)
        result = engine.generate(prompt, CLIPS, temperature=0.0, max_new_tokens=8)
        assert tuple(result.completions[0].token_ids) == right_answers[step % 2]
        if keep is not None:
            keep.extend(value.clone() for value in weight_sets[step % 2].values())
        memory.read()
    gc.unfreeze()
    return memory


@pytest.mark.parametrize("count", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_memory_is_flat_and_answers_follow_the_weights(
    engine: LiveEngine, weight_sets: Any, right_answers: Any, count: int
) -> None:
    memory = publish_alternately(engine, weight_sets, right_answers, count)
    growth = {process: memory.growth(process) for process in memory.readings}
    print({process: round(value, 4) for process, value in growth.items()})
    assert growth == pytest.approx({"driver": 1, "engine": 1}, abs=TOLERANCE), memory.readings


@pytest.fixture
def leaky_engine(tiny_model_path: str, monkeypatch: pytest.MonkeyPatch) -> Generator[LiveEngine]:
    monkeypatch.setattr(engine_args, "WORKER_EXTENSION", "tests.seams.leaky_worker.LeakyExtension")
    live = LiveEngine(tiny_model_path)
    yield live
    live.stop()


@pytest.mark.slow
def test_a_leak_in_the_driver_is_caught(
    engine: LiveEngine, weight_sets: Any, right_answers: Any
) -> None:
    memory = publish_alternately(engine, weight_sets, right_answers, 50, keep=[])
    assert memory.growth("driver") > 1 + TOLERANCE, memory.readings
    assert memory.growth("engine") == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.slow
def test_a_leak_in_the_engine_is_caught(
    leaky_engine: LiveEngine, weight_sets: Any, right_answers: Any
) -> None:
    memory = publish_alternately(leaky_engine, weight_sets, right_answers, 50)
    assert memory.growth("engine") > 1 + TOLERANCE, memory.readings
