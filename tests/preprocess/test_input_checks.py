"""A prompt and clips that do not belong together are refused from shapes and metadata alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easyvideor1.preprocess.clip import Clip, ClipLike
from easyvideor1.preprocess.config import TinyModelConfig
from easyvideor1.preprocess.families import _ADAPTERS, FamilyAdapter, ModelInputError, load_family
from easyvideor1.preprocess.families.base import TokenBlock
from easyvideor1.preprocess.families.qwen3_vl import Qwen3VLFamily
from easyvideor1.preprocess.families.tiny import build
from easyvideor1.schema.records import MediaKind
from tests.clips import image, sample_about, video

INSTRUCTION = "Answer with the letter."


@pytest.fixture(scope="module")
def family_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FamilyAdapter]:
    folder = tmp_path_factory.mktemp("models")
    families: dict[str, FamilyAdapter] = {}

    def load(name: str) -> FamilyAdapter:
        if name not in families:
            build(TinyModelConfig(family=name), folder / name)
            families[name] = load_family(str(folder / name))
        return families[name]

    return load


@pytest.fixture(scope="module")
def family(family_of) -> FamilyAdapter:
    return family_of("qwen3_vl")


def checked(family: FamilyAdapter, clips: list[Clip]) -> None:
    prompt = family.prompt_token_ids(sample_about(clips), INSTRUCTION)
    family.check_inputs(prompt, clips, sample_id="s/1")


@pytest.mark.parametrize("name", sorted(_ADAPTERS))
def test_clips_as_they_come_from_the_cache_pass_in_every_family(family_of, name):
    family = family_of(name)
    side = 2 * family.rules.factor
    clips = [
        image(height=side, width=side),
        video(5, height=side, width=side, first_frame=301),
        video(4, height=side, width=side, fps=7.0),
    ]
    checked(family, clips)
    checked(family, [])


@pytest.mark.parametrize("name", sorted(_ADAPTERS))
def test_frames_of_another_factor_are_refused_in_every_family(family_of, name):
    family = family_of(name)
    side = 60 - family.rules.factor  # 32 for a factor of 28, 28 for one of 32
    with pytest.raises(
        ModelInputError, match=rf"'s/1': medium 1 is {side}x{side} .* {family.rules.factor}"
    ):
        checked(family, [video(4, height=side, width=side)])


def test_no_pixel_is_read(family):
    class Unreadable(np.ndarray):
        def __array_finalize__(self, obj: object) -> None: ...

        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("a pixel was read")

    clip = video(4)
    checked(family, [replace(clip, frames=clip.frames.view(Unreadable))])


def with_metadata(clip: Clip, **fields: object) -> Clip:
    return replace(clip, metadata=replace(clip.metadata, **fields))


def test_times_that_are_not_those_of_the_frames_are_refused(family):
    """The cache of another version, which took the sampled rate for the source's."""
    clip = video(4, fps=30.0)  # frames 0, 15, 30, 45
    late = with_metadata(clip, timestamps_s=(0.0, 0.5, 1.0, 1.56))
    with pytest.raises(
        ModelInputError,
        match=r"'s/1': frame 45 of medium 1 is said to be at 1\.560 s, .* it is at 1\.500 s",
    ):
        checked(family, [late])
    checked(family, [with_metadata(clip, timestamps_s=(0.0, 0.5, 1.0, 1.54))])
    fewer = with_metadata(clip, timestamps_s=(0.0, 0.5))
    with pytest.raises(ModelInputError, match="has 4 frames but 2 times"):
        checked(family, [fewer])
    unknown = with_metadata(clip, timestamps_s=(0.0, 0.5, 1.0, float("nan")))
    with pytest.raises(ModelInputError, match="said to be at nan s"):
        checked(family, [unknown])


def test_frames_with_times_of_their_own_are_taken_at_their_word(family):
    clip = with_metadata(video(4, fps=30.0), timestamps_s=(0.0, 0.5, 1.0, 1.9))
    checked(family, [with_metadata(clip, snapped=True)])
    checked(family, [with_metadata(clip, repairs=("variable frame rate: …",))])


def test_a_prompt_that_tells_other_times_is_refused(tmp_path):
    class CountsFrames(Qwen3VLFamily):
        """Tells the times of a clip as if it began with the file."""

        def video_blocks(self, clip: ClipLike) -> list[TokenBlock]:
            assert isinstance(clip, Clip)
            shifted = tuple(seconds - clip.timestamps_s[0] for seconds in clip.timestamps_s)
            return super().video_blocks(with_metadata(clip, timestamps_s=shifted))

    class TellsOneLess(Qwen3VLFamily):
        def video_blocks(self, clip: ClipLike) -> list[TokenBlock]:
            _, *blocks = super().video_blocks(clip)
            return blocks

    build(TinyModelConfig(), tmp_path / "model")
    config = load_family(str(tmp_path / "model")).config
    wrong = CountsFrames(str(tmp_path / "model"), config)
    short = TellsOneLess(str(tmp_path / "model"), config)
    checked(wrong, [video(4)])
    with pytest.raises(ModelInputError, match=r"'s/1'.* 0\.3 s of patch 1 of medium 1.* 10\.260 s"):
        checked(wrong, [video(4, first_frame=300)])
    with pytest.raises(ModelInputError, match="tells 1 times of medium 1, which has 2"):
        checked(short, [video(4)])


def test_an_image_of_several_frames_is_refused(family):
    with pytest.raises(ModelInputError, match="medium 1 is an image but has 4 frames"):
        checked(family, [replace(video(4), kind=MediaKind.image)])


def test_engine_and_learner_refuse_what_the_check_refuses(family):
    clips = [with_metadata(video(4), timestamps_s=(0.0, 9.0, 10.0, 11.0))]
    prompt = family.prompt_token_ids(sample_about(clips), INSTRUCTION)
    for inputs in (family.engine_inputs, family.learner_inputs):
        with pytest.raises(ModelInputError, match=r"'s/2': frame 15 of medium 1"):
            inputs(prompt, clips, sample_id="s/2")
