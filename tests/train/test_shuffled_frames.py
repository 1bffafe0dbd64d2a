"""The control of T-GRPO reaches the engine: other pixels under another name, other log-probs.

Its first published implementation sampled the control from the ordered video, so that the reward
for looking at the order was vacuous (github.com/tulerfeng/Video-R1, issue 72).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from easyvideor1.evaluate.engine_request import EngineRequest
from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.shuffling import shuffled
from easyvideor1.train.config import RolloutConfig, Seeding
from easyvideor1.train.rollout import RaySampler
from tests.live_engine import LiveEngine
from tests.seams.engine_inputs import rendered
from tests.train.local_actors import LocalActors, LocalEngine
from tests.train.policy_cases import (
    CLIPS,
    INSTRUCTION,
    family_at,
    prompt_about,
    sample,
)

NAME = "other video"  # of six frames
CLIP = CLIPS[NAME][0]


def prompt_ids(engine: LiveEngine) -> list[int]:
    return engine.family.prompt_token_ids(sample(NAME), INSTRUCTION)


def test_the_prompt_stays_and_pixels_and_names_change(engine: LiveEngine) -> None:
    control = shuffled(CLIP, seed=1)
    ordered, other = (rendered(engine, prompt_ids(engine), [clip]) for clip in (CLIP, control))
    assert ordered.token_ids == other.token_ids
    (ordered_video,), (other_video,) = ordered.of("video"), other.of("video")
    pixels, other_pixels = (
        video.data["pixel_values_videos"].data for video in (ordered_video, other_video)
    )
    assert pixels.shape == other_pixels.shape
    assert not torch.equal(pixels, other_pixels)
    assert ordered.hashes != other.hashes
    assert ordered.hashes == rendered(engine, prompt_ids(engine), [CLIP]).hashes


def test_an_answer_has_other_log_probs_with_the_frames_shuffled(sharp_engine: LiveEngine) -> None:
    ids = prompt_ids(sharp_engine)
    result = sharp_engine.generate(ids, [CLIP], temperature=0.0, max_new_tokens=12)
    answer = result.completions[0].token_ids

    def logprobs(clip: Clip) -> torch.Tensor:
        return torch.tensor(sharp_engine.answer_logprobs(ids, [clip], answer))

    # The ordered clip is in all caches of the engine by now.
    ordered, again = logprobs(CLIP), logprobs(CLIP)
    noise = (again - ordered).abs().max()
    for seed in range(3):
        control = shuffled(CLIP, seed=seed)
        change = (logprobs(control) - ordered).abs().max()
        assert change > 1e-2 and change > 100 * noise
        # What a key of its own is for: under the old one the engine never sees the new frames.
        mixed_up = (logprobs(replace(control, key=CLIP.key)) - ordered).abs().max()
        assert mixed_up <= max(noise, torch.tensor(1e-5))


class Listening(LocalEngine):
    """Keeps the requests that reach the engine."""

    def __init__(self, live: LiveEngine):
        super().__init__(live)
        self.requests: list[EngineRequest] = []
        generate = live.engine.generate

        async def listen(request: EngineRequest) -> Any:
            self.requests.append(request)
            return await generate(request)

        self._engine = type("Ear", (), {"generate": staticmethod(listen)})()  # type: ignore[assignment]


def keys(requests: Sequence[EngineRequest]) -> list[str]:
    return [clip.key for request in requests for clip in request.clips]


def test_a_rollout_shows_videos_out_of_order_and_nothing_else(
    engine: LiveEngine, tiny_model_path: str
) -> None:
    family = family_at(Path(tiny_model_path))
    listening = Listening(engine)
    config = RolloutConfig(max_new_tokens=4, seeding=Seeding.request)
    sampler = RaySampler(LocalActors([listening], engine), config, seed=0)  # type: ignore[arg-type]
    names = ["text", "image and video", NAME]
    prompts = [prompt_about(family, sample(name), CLIPS[name]) for name in names]
    groups = sampler.generate(prompts, [2, 2, 2], step=1)
    ordered, listening.requests = listening.requests, []
    control = sampler.generate(prompts, [1, 1, 1], step=1, shuffled_frames=True)
    assert [len(group) for group in groups] == [2, 2, 2]
    assert [len(group) for group in control] == [1, 1, 1]
    picture, video, other_video = keys(ordered)
    shuffled_picture, shuffled_video, shuffled_other = keys(listening.requests)
    assert shuffled_picture == picture
    assert shuffled_video.startswith(video) and shuffled_video != video
    assert shuffled_other.startswith(other_video) and shuffled_other != other_video
    assert [r.prompt_token_ids for r in ordered] == [p.token_ids for p in prompts]
    assert [r.prompt_token_ids for r in listening.requests] == [p.token_ids for p in prompts]
