"""Samples that cannot be trained on are left out by name, whole groups at a time."""

from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.preprocess.clip import Clip
from easyvideor1.preprocess.errors import DecodeError, MissingClipError
from easyvideor1.preprocess.families.base import FamilyAdapter
from easyvideor1.schema.records import Sample
from easyvideor1.train.failures import SampleFailedError
from easyvideor1.train.screening import Screen
from tests.clips import video
from tests.train.policy_cases import (
    RandomClips,
    clips_for,
    family_at,
    gradients_of,
    group,
    largest_difference,
    make_learner,
)


@pytest.fixture(scope="module")
def family(sharp_model_path: Path) -> FamilyAdapter:
    return family_at(sharp_model_path)


class FaultyClips(RandomClips):
    """Gives other clips for some samples, or raises what stands in their place."""

    def __init__(self, family: FamilyAdapter, faults: dict[str, list[Clip] | Exception]):
        super().__init__(clips_for(family))
        self.faults = faults
        self.loads: list[str] = []

    def load(self, sample: Sample) -> list[Clip]:
        self.loads.append(sample.id)
        fault = self.faults.get(sample.id)
        if isinstance(fault, Exception):
            raise fault
        return super().load(sample) if fault is None else fault


FAULTS: dict[str, tuple[list[Clip] | Exception, str]] = {
    "of another family's size": (
        [video(4, height=56, width=84)],
        "medium 1 is 56x84 pixels, qwen3_vl needs multiples of 32",
    ),
    "two for one": (
        [video(4), video(4, seed=1)],
        "its prompt has 1 video placeholders but 2 videos were given",
    ),
    "not in the cache": (
        MissingClipError("video", "a.mp4", "outputs/cache", "cached at fps 1, asked at 2"),
        "the frames of a.mp4 are not in the cache outputs/cache: cached at fps 1, asked at 2",
    ),
    "not to be decoded": (
        DecodeError("a.mp4", "no video stream"),
        "cannot decode a.mp4: no video stream",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_unusable_sample_is_left_out_by_name_and_the_rest_trains(
    sharp_model_path, family, caplog, name
):
    fault, text = FAULTS[name]
    good = [*group(family, "image", (3, 4)), *group(family, "text", (5,))]
    bad = group(family, "video", (4, 6, 2))
    learner = make_learner(sharp_model_path)
    learner._screen = Screen(family, FaultyClips(family, {"video": fault}))
    gradients, metrics = gradients_of(learner, [*good[:1], *bad, *good[1:]])
    assert metrics["learner/refused_completions"] == 3
    assert metrics["learner/trained_tokens"] == 12
    assert f"3 completions of sample video are left out: {'' if 'a.mp4' in text else 'sample'}" in (
        caplog.text
    )
    assert text in caplog.text
    (told,) = learner.take_refused().items()
    assert told[0] == "video" and text in told[1]
    assert learner.take_refused() == {}

    # As if the sample had not been there: the mean is over what is left.
    expected, expected_metrics = gradients_of(make_learner(sharp_model_path), good)
    assert largest_difference(gradients, expected) < 1e-6
    assert metrics["learner/loss"] == pytest.approx(expected_metrics["learner/loss"])


def test_a_batch_that_the_data_refuse_altogether_does_not_end_the_run(sharp_model_path, family):
    learner = make_learner(sharp_model_path)
    fault = DecodeError("a.mp4", "no video stream")
    learner._screen = Screen(family, FaultyClips(family, {"video": fault}))
    metrics = learner.update(group(family, "video", (4, 6)), cuts=[1])
    assert metrics["learner/refused_completions"] == 2
    assert metrics["learner/skipped_updates"] == 2
    assert learner.update(group(family, "text", (4, 6)), cuts=[1])["learner/skipped_updates"] == 2
    assert learner.num_updates == 2


def test_clips_are_loaded_once_per_prompt_and_only_where_something_is_left(family):
    store = FaultyClips(family, {})
    examples = [*group(family, "video", (4, 6)), *group(family, "image", (3,))]
    [unreadable] = group(family, "other video", (3,))
    segment = replace(unreadable.completion.segments[0], token_ids=(10**7,))
    unreadable = replace(unreadable, completion=replace(unreadable.completion, segments=(segment,)))
    screened = Screen(family, store)([examples[0], unreadable, *examples[1:]])
    assert screened.examples == examples
    assert screened.cut([2]) == [examples[:1], examples[1:]], "at the place where it was refused"
    assert screened.cut([0, 4]) == [[], examples, []]
    assert screened.num_refused == 1 and not screened.unusable, "its media are as they should be"
    assert store.loads == ["video", "image"]
    about = examples[0].prompt.sample
    assert screened.clips.load(about) is clips_for(family)["video"]


def test_errors_of_ours_are_not_taken_for_faults_of_the_data(family):
    screen = Screen(family, FaultyClips(family, {"video": RuntimeError("a bug")}))
    with pytest.raises(SampleFailedError, match=r"a bug.* at sample video"):
        screen(group(family, "video", (4,)))
