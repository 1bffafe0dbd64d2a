"""Every family's engine and learner look at the frames, and a video that is dropped is noticed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easyvideor1.preprocess.clip import Clip
from easyvideor1.schema.records import Completion
from easyvideor1.train.conformance.media import ALTERED, ALTERED_CASE
from easyvideor1.train.conformance.policy_checks import check_video_is_used
from easyvideor1.train.conformance.report import Check
from easyvideor1.train.interfaces import Prompt
from tests.clips import video
from tests.live_engine import LiveEngine
from tests.seams.cases import asked, learner_of, prompt_of


def altered_clips(factor: int) -> dict[str, Clip]:
    """A clip, and under the same words its frames backwards, grey, and another clip's."""
    clip = video(8, height=2 * factor, width=3 * factor, seed=1)
    frames = {
        ALTERED_CASE: clip.frames,
        "reversed": np.ascontiguousarray(clip.frames[::-1]),
        "blank": np.full_like(clip.frames, 127),
        "other": video(8, height=2 * factor, width=3 * factor, seed=2).frames,
    }
    # Each has a key of its own, as a file of its own has.
    return {name: replace(clip, frames=f, key=f"clip-{name}") for name, f in frames.items()}


class Sides:
    """Engine and learner on one checkpoint, asked for the log-probs of given answers."""

    def __init__(self, engine: LiveEngine, clips: dict[str, Clip]):
        self.engine, self.clips = engine, clips
        self.prompts = {
            name: prompt_of(engine.family, name, [clip]) for name, clip in clips.items()
        }
        self.learner = learner_of(
            Path(engine.model_path), {name: [clip] for name, clip in clips.items()}
        )

    def answer(self) -> Completion:
        name = ALTERED_CASE
        result = self.engine.generate(
            self.prompts[name].token_ids, [self.clips[name]], temperature=0.0, max_new_tokens=8
        )
        return result.completions[0]

    def of_engine(self, prompt: Prompt, answer: Completion) -> list[float]:
        clip = self.clips[prompt.sample.id]
        return self.engine.answer_logprobs(prompt.token_ids, [clip], answer.token_ids)

    def of_learner(self, prompt: Prompt, answer: Completion) -> list[float]:
        return self.learner.logprobs([asked(prompt, answer)])[0]

    def check(self) -> list[Check]:
        sides: dict[str, Callable[[Prompt, Completion], list[float]]] = {
            "engine": self.of_engine,
            "learner": self.of_learner,
        }
        return check_video_is_used(self.prompts, self.answer(), sides)


def test_other_frames_change_what_engine_and_learner_say(seam_engine: LiveEngine) -> None:
    checks = Sides(seam_engine, altered_clips(seam_engine.family.rules.factor)).check()
    assert len(checks) == 2 * len(ALTERED)
    assert [check for check in checks if not check.ok] == []


def test_a_video_that_is_silently_dropped_is_noticed(seam_engine: LiveEngine) -> None:
    """Both sides are handed the same grey frames whatever the sample shows."""
    clips = altered_clips(seam_engine.family.rules.factor)
    grey = clips["blank"]
    checks = Sides(seam_engine, dict.fromkeys(clips, grey)).check()
    assert [check.name for check in checks if check.ok] == []


def test_frames_that_only_the_engine_loses_are_noticed(
    seam_engine: LiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a cache in front of the engine confuses two videos."""
    clips = altered_clips(seam_engine.family.rules.factor)
    sides = Sides(seam_engine, clips)
    answer = sides.answer()
    one = sides.prompts[ALTERED_CASE]
    monkeypatch.setattr(sides, "of_engine", lambda _, given: Sides.of_engine(sides, one, given))
    checks = check_video_is_used(
        sides.prompts, answer, {"engine": sides.of_engine, "learner": sides.of_learner}
    )
    verdicts = {check.name.split()[0]: check.ok for check in checks}
    assert verdicts == {"engine": False, "learner": True}
