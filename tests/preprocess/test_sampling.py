"""Frame selection, side by side with the four video processors and with qwen-vl-utils."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.video_utils import VideoMetadata

from easyvideor1.preprocess.rules import FamilyRules
from easyvideor1.preprocess.sampling import FrameSelection, select_frames
from easyvideor1.schema.budget import Convention, FrameBudget
from tests.qwen_processors import (
    FAMILIES,
    QWEN2,
    QWEN3,
    fetch_video,
    source_on_paper,
    video_element,
    video_processor,
)

RULES = QWEN3
EVERY_FAMILY = pytest.mark.parametrize("rules", FAMILIES.values(), ids=FAMILIES.keys())

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
    # an hour and more
    (107_892, 30000 / 1001, 2.0, 4, 768),
    (107_892, 30000 / 1001, 2.0, 4, 2048),
    (215_784, 60000 / 1001, 1.0, 4, 4096),
    (86_314, 24000 / 1001, 2.0, 4, 2048),
    (300_000, 25.0, 0.1, 4, 768),
    (299_999, 23.976, 0.01, 6, 10),
    # seconds and less
    (2, 0.5, 2.0, 4, 128),
    (3, 240.0, 2.0, 3, 3),
    (9, 240.0, 2.0, 2, 128),
    (480, 240.0, 2.0, 4, 128),
    (6, 5.0, 4.1, 4, 128),
    # odd limits
    (1_000, 25.0, 2.0, 5, 5),
    (1_000, 25.0, 2.0, 7, 9),
    (1_000, 25.0, 2.0, 3, 77),
    (90, 30.0, 2.5, 1, 128),
    (90, 30.0, 0.1, 2, 128),
    (45, 14.985, 3.0, 4, 128),
    (250, 25.0, 1.0, 10, 11),
]


RATES = st.one_of(
    st.sampled_from([25.0, 30.0, 24000 / 1001, 30000 / 1001, 60000 / 1001, 12.5, 240.0, 1.0, 0.5]),
    st.floats(0.05, 300.0),
)


@st.composite
def sources_and_budgets(draw: st.DrawFn) -> tuple[int, float, float, int, int]:
    """Total frames, source fps, budget fps, min_frames, max_frames."""
    total_frames = draw(st.one_of(st.integers(1, 200), st.integers(1, 300_000)))
    min_frames = draw(st.integers(1, 64))
    max_frames = draw(st.integers(min_frames, 2048))
    return total_frames, draw(RATES), draw(RATES), min_frames, max_frames


def ours(case: tuple, rules: FamilyRules, convention: Convention) -> FrameSelection:
    total_frames, source_fps, fps, min_frames, max_frames = case
    budget = FrameBudget(
        fps=fps, min_frames=min_frames, max_frames=max_frames, convention=convention
    )
    return select_frames(
        total_frames=total_frames, source_fps=source_fps, budget=budget, rules=rules
    )


def of_the_processor(case: tuple, rules: FamilyRules) -> list[int]:
    total_frames, source_fps, fps, min_frames, max_frames = case
    budget = FrameBudget(fps=fps, min_frames=min_frames, max_frames=max_frames)
    metadata = VideoMetadata(total_num_frames=total_frames, fps=source_fps)
    return video_processor(rules, budget).sample_frames(metadata, fps=fps).tolist()


def rounds_to_none(case: tuple, rules: FamilyRules) -> bool:
    """Whether Qwen2-VL's processor wants less than two frames and then divides by zero."""
    total_frames, source_fps, fps, min_frames, max_frames = case
    wanted = min(max(total_frames / source_fps * fps, min_frames), max_frames, total_frames)
    return rules is QWEN2 and wanted < 2


@EVERY_FAMILY
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_frames_are_those_of_the_familys_processor(case: tuple, rules: FamilyRules) -> None:
    selection = ours(case, rules, Convention.transformers)
    if rounds_to_none(case, rules):
        with pytest.raises(ZeroDivisionError):
            of_the_processor(case, rules)
        assert selection.indices == (0,)
    else:
        assert list(selection.indices) == of_the_processor(case, rules)


@settings(max_examples=600, deadline=None)
@given(case=sources_and_budgets(), rules=st.sampled_from([QWEN2, QWEN3]))
def test_any_frames_are_those_of_the_familys_processor(case: tuple, rules: FamilyRules) -> None:
    selection = ours(case, rules, Convention.transformers)
    if rounds_to_none(case, rules):
        assert len(selection.indices) == min(2, case[0], case[4])
        return
    expected = of_the_processor(case, rules)
    # Qwen2-VL's may name a frame behind the last.
    assert list(selection.indices) == [index for index in expected if index < case[0]]
    assert len(selection.indices) >= len(expected) - 1


@pytest.mark.parametrize(
    "case",
    [(6_007, 25.0, 2.0, 4, 768), (3_010, 24000 / 1001, 2.0, 4, 768), (115_586, 30.0, 2.0, 4, 382)],
    ids=str,
)
def test_a_frame_behind_the_last_one_is_left_out(case: tuple) -> None:
    """Qwen2-VL's processor names it and then cannot read it: a step of total / count in floating
    point, count times, may end below the total."""
    theirs = of_the_processor(case, QWEN2)
    assert theirs[-1] == case[0]
    assert list(ours(case, QWEN2, Convention.transformers).indices) == theirs[:-1]


def of_qwen_vl_utils(
    case: tuple,
    rules: FamilyRules,
    start_s: float | None = None,
    end_s: float | None = None,
) -> tuple[list[int], float]:
    """Indices and sample rate that the library itself comes to."""
    total_frames, source_fps, fps, min_frames, max_frames = case
    budget = FrameBudget(fps=fps, min_frames=min_frames, max_frames=max_frames)
    element = video_element("on paper.mp4", budget, start_s, end_s)
    with source_on_paper(total_frames, source_fps, height=64, width=64):
        _, metadata, sample_fps = fetch_video(element, rules)
    return metadata["frames_indices"], sample_fps


@EVERY_FAMILY
@pytest.mark.parametrize("case", [case for case in CASES if case[0] > 1], ids=str)
def test_the_frames_are_those_of_qwen_vl_utils(case: tuple, rules: FamilyRules) -> None:
    selection = ours(case, rules, Convention.qwen_vl_utils)
    indices, sample_fps = of_qwen_vl_utils(case, rules)
    assert list(selection.indices) == indices
    assert selection.sample_fps == sample_fps


@settings(max_examples=600, deadline=None)
@given(case=sources_and_budgets(), rules=st.sampled_from([QWEN2, QWEN3]))
def test_any_frames_are_those_of_qwen_vl_utils(case: tuple, rules: FamilyRules) -> None:
    selection = ours(case, rules, Convention.qwen_vl_utils)
    if min(case[0], case[4]) < 2:
        assert selection.indices == (0,)
    else:
        assert (list(selection.indices), selection.sample_fps) == of_qwen_vl_utils(case, rules)


SPANS = [(0.0, 1.0), (1.5, 4.0), (2.0, None), (None, 3.0), (0.04, 9.96), (3.3, 3.5), (8.0, 60.0)]


@pytest.mark.parametrize("span", SPANS, ids=str)
@pytest.mark.parametrize("source_fps", [25.0, 30000 / 1001, 60.0])
def test_a_span_is_that_of_qwen_vl_utils(span: tuple, source_fps: float) -> None:
    total_frames = math.floor(10 * source_fps)
    budget = FrameBudget(convention=Convention.qwen_vl_utils)
    selection = select_frames(
        total_frames=total_frames,
        source_fps=source_fps,
        budget=budget,
        rules=QWEN3,
        start_s=span[0],
        end_s=span[1],
    )
    case = (total_frames, source_fps, budget.fps, budget.min_frames, budget.max_frames)
    indices, sample_fps = of_qwen_vl_utils(case, QWEN3, *span)
    assert (list(selection.indices), selection.sample_fps) == (indices, sample_fps)


@pytest.mark.parametrize("convention", Convention)
def test_frames_are_the_same_while_a_model_is_loaded_in_16_bits(convention: Convention) -> None:
    case = (107_892, 30000 / 1001, 2.0, 4, 768)
    before = ours(case, QWEN2, convention)
    with torch.device("meta"):
        torch.set_default_dtype(torch.bfloat16)
        try:
            assert ours(case, QWEN2, convention) == before
        finally:
            torch.set_default_dtype(torch.float32)


@EVERY_FAMILY
@pytest.mark.parametrize("convention", Convention)
def test_a_source_or_span_of_one_frame_is_shown(convention: Convention, rules: FamilyRules) -> None:
    budget = FrameBudget(convention=convention)
    one = select_frames(total_frames=1, source_fps=25.0, budget=budget, rules=rules)
    assert (one.indices, one.timestamps_s, one.sample_fps) == ((0,), (0.0,), 25.0)
    span = select_frames(
        total_frames=250, source_fps=25.0, budget=budget, rules=rules, start_s=4.0, end_s=4.01
    )
    assert (span.indices, span.timestamps_s) == ((100,), (4.0,))


@EVERY_FAMILY
@pytest.mark.parametrize("convention", Convention)
def test_one_frame_is_shown_where_the_budget_allows_no_more(
    convention: Convention, rules: FamilyRules
) -> None:
    budget = FrameBudget(min_frames=1, max_frames=1, convention=convention)
    selection = select_frames(total_frames=250, source_fps=25.0, budget=budget, rules=rules)
    assert selection.indices == (0,)


def test_two_frames_are_shown_where_an_even_rule_would_come_to_none() -> None:
    budget = FrameBudget(fps=1.0, min_frames=1)
    selection = select_frames(total_frames=40, source_fps=25.0, budget=budget, rules=QWEN2)
    assert selection.indices == (0, 20)


@EVERY_FAMILY
@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize(("total_frames", "shown"), [(2, 2), (3, 2), (4, 4), (5, 4), (7, 6)])
def test_short_videos_show_all_that_the_rule_admits(
    total_frames: int, shown: int, convention: Convention, rules: FamilyRules
) -> None:
    budget = FrameBudget(fps=100.0, convention=convention)
    selection = select_frames(
        total_frames=total_frames, source_fps=25.0, budget=budget, rules=rules
    )
    even_only = convention is Convention.qwen_vl_utils or rules is QWEN2
    assert len(selection.indices) == (shown if even_only else total_frames)


@settings(max_examples=500, deadline=None)
@given(
    case=sources_and_budgets(),
    rules=st.sampled_from([QWEN2, QWEN3]),
    convention=st.sampled_from(Convention),
)
def test_indices_ascend_within_the_source_and_the_budget(
    case: tuple, rules: FamilyRules, convention: Convention
) -> None:
    selection = ours(case, rules, convention)
    indices = selection.indices
    assert 1 <= len(indices) <= min(case[0], case[4])
    assert indices[0] == 0 and indices[-1] < case[0]
    assert list(indices) == sorted(set(indices))


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
