import pytest

from easyvideor1.schema.errors import UserError
from easyvideor1.schema.placeholders import split_problem
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample

PHOTO = Media(kind=MediaKind.image, path="photo.png")
CHART = Media(kind=MediaKind.image, path="chart.png")
WALK = Media(kind=MediaKind.video, path="walk.mp4")


def sample(problem: str, *media: Media) -> Sample:
    return Sample(
        id="set/7", problem=problem, answer="x", problem_type=ProblemType.open_ended, media=media
    )


def test_media_come_first_where_no_placeholder_stands():
    assert split_problem(sample("What is it?", WALK, PHOTO)) == [WALK, PHOTO, "What is it?"]


def test_placeholders_place_the_media_of_their_kind_in_order():
    pieces = split_problem(sample("Is <image> in <video> or in <image>?", WALK, PHOTO, CHART))
    assert pieces == ["Is ", PHOTO, " in ", WALK, " or in ", CHART, "?"]


def test_no_piece_of_text_is_empty():
    assert split_problem(sample("<video><image>", PHOTO, WALK)) == [WALK, PHOTO]
    assert split_problem(sample("", WALK)) == [WALK]


def test_a_text_problem_is_one_piece():
    assert split_problem(sample("Two and two?")) == ["Two and two?"]


@pytest.mark.parametrize(
    ("problem", "media", "found"),
    [
        ("<video> and <video>?", (WALK,), "2 <video> for 1 videos"),
        ("<image>?", (PHOTO, WALK), "0 <video> for 1 videos"),
        ("What does <image> mean?", (), "1 <image> for 0 images"),
        ("<video>?", (PHOTO,), "0 <image> for 1 images and 1 <video> for 0 videos"),
    ],
)
def test_a_count_mismatch_names_the_sample(problem: str, media: tuple[Media, ...], found: str):
    with pytest.raises(UserError, match="sample set/7: the problem has") as caught:
        split_problem(sample(problem, *media))
    assert found in str(caught.value)
    assert "one placeholder per medium, or none" in str(caught.value)
