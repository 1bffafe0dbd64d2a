"""A prompt that engine and learner would read differently is refused by name, with both numbers."""

from typing import Any

import pytest

from easyvideor1.evaluate.agreement import too_large_medium
from easyvideor1.evaluate.engine_request import RequestRefusedError
from tests.clips import CASES, image, sample_about, video
from tests.live_engine import LiveEngine


class Misreading:
    """A family adapter but for what is given by name."""

    def __init__(self, family: Any, **wrong: Any):
        self._family = family
        self.__dict__ |= wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)


def refusal(engine: LiveEngine, clips: Any) -> str:
    prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer.")
    with pytest.raises(RequestRefusedError) as error:
        engine.generate(prompt, clips, max_new_tokens=1)
    return str(error.value)


def test_other_tokens_are_refused_with_both_lengths(
    engine: LiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, clips = engine.family, [video(4, seed=81)]
    prompt = family.prompt_token_ids(sample_about(clips), "Answer.")
    right = family.expanded_token_ids(prompt, clips)

    def one_more(*arguments: Any) -> list[int]:
        return [*family.expanded_token_ids(*arguments), 7]

    def another(*arguments: Any) -> list[int]:
        ids = family.expanded_token_ids(*arguments)
        return [*ids[:3], ids[3] + 1, *ids[4:]]

    for wrong, told in (
        (one_more, f"{len(right)} tokens in the engine and {len(right) + 1} for the learner"),
        (another, f"the first difference is at 3: {right[3]} against {right[3] + 1}"),
    ):
        misreading = Misreading(family, expanded_token_ids=wrong)
        monkeypatch.setattr(engine.engine, "_family", misreading)
        assert told in refusal(engine, clips)


@pytest.mark.parametrize("kind", ["image", "video"])
def test_another_grid_is_refused_with_both_grids(
    engine: LiveEngine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    seed = {"image": 82, "video": 84}[kind]  # a medium in vLLM's cache was compared before
    clips = [image(seed=seed), video(4, seed=seed)]
    family = engine.family

    def turned(clip: Any) -> tuple[int, int, int]:
        time, height, width = family.patch_grid(clip)
        return (time, width, height + 2) if clip.kind.value == kind else (time, height, width)

    monkeypatch.setattr(engine.engine, "_family", Misreading(family, patch_grid=turned))
    grids = {"image": ("(1, 4, 4)", "(1, 4, 6)"), "video": ("(2, 4, 6)", "(2, 6, 6)")}
    theirs, ours = grids[kind]
    told = f"the patch grid of {kind} 1 is {theirs} in the engine and {ours} for the learner"
    assert told in refusal(engine, clips)
    assert told in refusal(engine, clips)
    monkeypatch.undo()
    # Nor does vLLM take the media of the refused prompts for sent.
    prompt = family.prompt_token_ids(sample_about(clips), "Answer.")
    assert engine.generate(prompt, clips, max_new_tokens=1).completions


def test_every_kind_of_prompt_is_read_alike(engine: LiveEngine) -> None:
    for clips in CASES.values():
        prompt = engine.family.prompt_token_ids(sample_about(clips), "Answer.")
        result = engine.generate(prompt, clips, max_new_tokens=1)
        assert result.prompt_token_ids == engine.family.expanded_token_ids(prompt, clips)


def test_a_medium_beyond_the_encoder_is_refused_before_it_is_processed(
    engine: LiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clips = [image(seed=83), video(4, seed=83)]  # 4 and 12 vision tokens
    assert too_large_medium(engine.family, clips, 12) is None
    monkeypatch.setattr(engine.engine, "_max_medium_tokens", 11)
    told = refusal(engine, clips)
    assert "medium 2 has 12 vision tokens, the engine encodes at most 11 at once" in told
    assert "engine.max_num_batched_tokens" in told
