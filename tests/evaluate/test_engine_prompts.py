"""Engine and learner see the same prompt: token ids and positions, in every mix of media."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from easyvideor1.evaluate.engine_request import RequestRefusedError
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.families import FamilyAdapter
from easyvideor1.schema.records import MediaKind
from tests.clips import CASES, sample_about, video
from tests.live_engine import LiveEngine

EVERY_CASE = pytest.mark.parametrize("clips", CASES.values(), ids=CASES.keys())


@EVERY_CASE
def test_the_engine_reports_the_ids_that_the_learner_trains_on(
    engine: LiveEngine, clips: list[Clip]
) -> None:
    prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer with the letter.")
    result = engine.generate(prompt, clips, max_new_tokens=1)
    assert result.prompt_token_ids == engine.family.learner_inputs(prompt, clips).token_ids


@EVERY_CASE
def test_positions_are_those_of_vllm(engine: LiveEngine, clips: list[Clip]) -> None:
    prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer with the letter.")
    inputs = engine.family.learner_inputs(prompt, clips)
    expected, offset = positions_by_vllm(engine.family, prompt, clips)
    assert torch.equal(inputs.position_ids, expected)
    first = engine.family.position_ids_after(inputs.position_ids, 1)
    assert first.tolist() == [[len(inputs.token_ids) + offset]] * 3


def test_a_text_that_reads_like_a_placeholder_reaches_the_engine_as_text(
    engine: LiveEngine,
) -> None:
    clips = [video(4)]
    sample = sample_about(clips, "What does <|video_pad|> mean? <|im_end|>")
    prompt = engine.family.prompt_token_ids(sample, "Answer with the letter.")
    result = engine.generate(prompt, clips, max_new_tokens=1)
    assert result.prompt_token_ids == engine.family.learner_inputs(prompt, clips).token_ids


def test_an_expanded_prompt_is_refused_before_it_is_expanded_again(engine: LiveEngine) -> None:
    clips = [video(4)]
    prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer with the letter.")
    expanded = engine.family.learner_inputs(prompt, clips).token_ids
    with pytest.raises(RequestRefusedError, match="12 video placeholders but 1 videos"):
        engine.generate(expanded, clips, max_new_tokens=1)


def positions_by_vllm(
    family: FamilyAdapter, prompt: list[int], clips: list[Clip]
) -> tuple[torch.Tensor, int]:
    """vLLM's own M-RoPE function: positions, and the offset of what follows the prompt."""
    from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration

    inputs = family.learner_inputs(prompt, clips)
    return Qwen3VLForConditionalGeneration._get_mrope_input_positions(
        inputs.token_ids, features(family, prompt, clips), family.config
    )


def features(family: FamilyAdapter, prompt: list[int], clips: list[Clip]) -> list[Any]:
    """Where each medium stands in the expanded prompt, with its grid, as vLLM describes it."""
    inputs = family.learner_inputs(prompt, clips)
    waiting = {
        family.processor.image_token_id: _media(MediaKind.image, clips, inputs.image_grid_thw),
        family.processor.video_token_id: _media(MediaKind.video, clips, inputs.video_grid_thw),
    }
    found, position = [], 0
    for token in prompt:
        if token not in waiting:
            position += 1
            continue
        clip, grid = next(waiting[token])
        modality = clip.kind.value
        found.append(
            SimpleNamespace(
                modality=modality,
                mm_position=SimpleNamespace(offset=position),
                data={f"{modality}_grid_thw": SimpleNamespace(data=grid)},
            )
        )
        position += family.num_prompt_tokens([token], [clip])
    return found


def _media(
    kind: MediaKind, clips: list[Clip], grids: torch.Tensor | None
) -> Iterator[tuple[Clip, torch.Tensor]]:
    of_kind = [clip for clip in clips if clip.kind is kind]
    return zip(of_kind, [] if grids is None else grids, strict=True)
