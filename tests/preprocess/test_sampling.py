"""Frame selection, side by side with the video processor of transformers."""

import pytest
from transformers import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import select_frames
from easyvideor1.schema.budget import FrameBudget

RULES = FamilyRules(name="qwen3_vl", patch_size=16, merge_size=2, temporal_patch_size=2)

CASES = [
    # total frames, source fps, budget fps, min_frames, max_frames
    (132, 25.0, 2.0, 4, 128),
    (250, 25.0, 2.0, 4, 128),
    (120, 29.97002997002997, 2.0, 4, 128),
    (120, 30000 / 1001, 2.0, 4, 128),
    (120, 24000 / 1001, 1.0, 4, 768),
    (1, 25.0, 2.0, 4, 128),
    (2, 25.0, 2.0, 4, 128),
    (3, 25.0, 2.0, 4, 128),
    (4, 8.0, 2.0, 4, 4),
    (5, 25.0, 2.0, 4, 128),
    (7, 1.0, 2.0, 4, 128),
    (16, 2.0, 2.0, 4, 128),
    (17, 2.0, 2.0, 4, 128),
    (100, 10.0, 0.25, 4, 128),
    (100, 10.0, 0.25, 1, 128),
    (108_000, 30.0, 2.0, 4, 128),
    (108_000, 30.0, 2.0, 4, 256),
    (108_000, 29.97, 2.0, 4, 768),
    (3_000, 60.0, 3.0, 4, 100),
    (3_001, 59.94, 0.5, 8, 64),
    (999, 23.976, 1.5, 4, 33),
    (50, 12.5, 12.5, 4, 128),
    (50, 12.5, 25.0, 4, 128),
    (600, 15.0, 4.0, 4, 5),
    (600, 15.0, 4.0, 6, 6),
    (61, 30.3, 2.0, 4, 128),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_frames_are_those_of_the_hugging_face_processor(case: tuple) -> None:
    total_frames, source_fps, fps, min_frames, max_frames = case
    processor = Qwen3VLVideoProcessor(min_frames=min_frames, max_frames=max_frames)
    expected = processor.sample_frames(
        VideoMetadata(total_num_frames=total_frames, fps=source_fps), fps=fps
    )
    budget = FrameBudget(fps=fps, min_frames=min_frames, max_frames=max_frames)
    selection = select_frames(
        total_frames=total_frames, source_fps=source_fps, budget=budget, rules=RULES
    )
    assert list(selection.indices) == expected.tolist()


def test_timestamps_and_rate_follow_from_the_indices() -> None:
    budget = FrameBudget(min_frames=4, max_frames=4)
    selection = select_frames(total_frames=132, source_fps=25.0, budget=budget, rules=RULES)
    assert selection.indices == (0, 44, 87, 131)
    assert selection.timestamps_s == (0.0, 1.76, 3.48, 5.24)
    assert selection.sample_fps == pytest.approx(4 / 5.28)


def test_a_span_is_sampled_within_its_bounds() -> None:
    budget = FrameBudget(fps=2.0)
    selection = select_frames(
        total_frames=250, source_fps=25.0, budget=budget, start_s=2.0, end_s=6.0, rules=RULES
    )
    assert selection.indices[0] == 50
    assert selection.indices[-1] == 150
    assert len(selection.indices) == 8
    assert selection.timestamps_s[0] == 2.0


@pytest.mark.parametrize(
    ("start_s", "fps", "first"),
    [(0.1, 30.0, 3), (0.7, 10.0, 7), (1 / 3, 30.0, 10), (0.101, 30.0, 4), (2.0, 29.97, 60)],
)
def test_the_start_is_the_first_frame_not_before_it(start_s: float, fps: float, first: int) -> None:
    selection = select_frames(
        total_frames=500, source_fps=fps, budget=FrameBudget(), start_s=start_s, rules=RULES
    )
    assert selection.indices[0] == first


def test_an_end_beyond_the_source_is_its_end() -> None:
    selection = select_frames(
        total_frames=100,
        source_fps=25.0,
        budget=FrameBudget(),
        start_s=3.0,
        end_s=60.0,
        rules=RULES,
    )
    assert selection.indices[-1] == 99


@pytest.mark.parametrize("span", [(4.0, None), (4.0, 5.0), (1.001, 1.002)])
def test_a_span_without_frames_is_refused(span: tuple) -> None:
    with pytest.raises(ValueError, match=r"holds no frame of a source of 4\.00 s"):
        select_frames(
            total_frames=100,
            source_fps=25.0,
            budget=FrameBudget(),
            start_s=span[0],
            end_s=span[1],
            rules=RULES,
        )


@pytest.mark.parametrize(("frames", "fps"), [(0, 25.0), (10, 0.0), (10, float("nan"))])
def test_a_source_without_frames_or_rate_is_refused(frames: int, fps: float) -> None:
    with pytest.raises(ValueError, match="nothing to sample"):
        select_frames(total_frames=frames, source_fps=fps, budget=FrameBudget(), rules=RULES)
