"""Instructions from the user's own Jinja files."""

from dataclasses import replace
from pathlib import Path

import pytest

from easyvideor1.rewards import RewardConfig, instruction
from easyvideor1.rewards.config import TaskConfig
from easyvideor1.schema.errors import UserError
from easyvideor1.schema.records import Media, MediaKind, ProblemType, Sample

VIDEO = Media(kind=MediaKind.video, path="a.mp4")
IMAGE = Media(kind=MediaKind.image, path="a.png")


def sample(*media: Media, problem: str = "How many?", **fields) -> Sample:
    return Sample(id="q1", problem=problem, answer=3, problem_type=ProblemType.numerical,
                  media=media, **fields)  # fmt: skip


def with_prompt(folder: Path, source: str) -> RewardConfig:
    path = folder / "own.j2"
    path.write_text(source)
    return RewardConfig(tasks={"numerical": TaskConfig(prompt=str(path))})


@pytest.mark.parametrize(
    ("media", "word"),
    [((IMAGE,), "image"), ((VIDEO,), "video"), ((IMAGE, IMAGE), "images"), ((VIDEO,) * 3, "videos"),
     ((VIDEO, IMAGE), "images and videos")],
)  # fmt: skip
def test_an_instruction_names_what_is_shown_where_it_matters(media: tuple[Media, ...], word: str):
    box = Sample(id="q1", problem="Where?", answer=[0, 0, 9, 9], media=media,
                 problem_type=ProblemType.spatial_grounding)  # fmt: skip
    assert f"in pixels of the original {word} as" in instruction(box)
    text = replace(box, problem_type=ProblemType.ocr, answer="Stop")
    assert f"exactly the text in the {word}, in <answer>" in instruction(text)
    assert "that is read, in <answer>" in instruction(replace(text, media=()))


def test_a_file_gives_the_instruction_of_one_type(tmp_path: Path):
    config = with_prompt(tmp_path, "Look at the {{ data_type }}.\n{{ instruction }}\n")
    assert instruction(sample(VIDEO), config) == f"Look at the video.\n{instruction(sample())}"
    other = Sample(id="q2", problem="?", answer=True, problem_type=ProblemType.boolean)
    assert instruction(other, config) == instruction(other)


def test_a_template_knows_the_media_and_the_fields_of_the_sample(tmp_path: Path):
    config = with_prompt(
        tmp_path,
        "{% if num_videos and num_images %}both{% elif num_videos %}{{ num_videos }} videos"
        "{% elif num_images %}an image{% else %}nothing{% endif %}"
        " {{ options | join('/') }} {{ extra.level }} {{ category }} {{ source }}"
        " {{ problem_type }}",
    )
    fields = {"options": ("a", "b"), "extra": {"level": 3}, "category": "c", "source": "s"}
    texts = [instruction(sample(*media, **fields), config) for media in
             ((VIDEO, VIDEO), (IMAGE,), (IMAGE, VIDEO), ())]  # fmt: skip
    assert [text.removesuffix(" a/b 3 c s numerical") for text in texts] == [
        "2 videos", "an image", "both", "nothing",
    ]  # fmt: skip


def test_a_folder_holds_files_by_type(tmp_path: Path):
    (tmp_path / "numerical.j2").write_text("Count.")
    config = RewardConfig(prompts=str(tmp_path))
    assert instruction(sample(), config) == "Count."
    own = tmp_path / "mine.txt"
    own.write_text("Mine.")
    config = RewardConfig(prompts=str(tmp_path), tasks={"numerical": TaskConfig(prompt=str(own))})
    assert instruction(sample(), config) == "Mine."


def test_the_text_of_a_problem_is_put_in_as_it_is(tmp_path: Path):
    problem = "{{ 7 * 7 }} <b>&</b> {% if %} \\ {# note #}"
    config = with_prompt(tmp_path, "Again: {{ problem }}")
    assert instruction(sample(problem=problem), config) == f"Again: {problem}"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ probelm }}", "'probelm' is undefined; it may use category, data_type"),
        ("line\n{% if %}", "own.j2:2: the template cannot be rendered"),
        ("{{ problem.__class__.__mro__ }}", "unsafe"),
        ("{{ options.append('x') }}", "not safely callable|unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_named(tmp_path: Path, source: str, reason: str):
    with pytest.raises(UserError, match=reason):
        instruction(sample(), with_prompt(tmp_path, source))


def test_a_file_that_changes_is_read_again(tmp_path: Path):
    config = with_prompt(tmp_path, "One.")
    assert instruction(sample(), config) == "One."
    with_prompt(tmp_path, "Two.")
    assert instruction(sample(), config) == "Two."


def test_paths_that_are_not_there_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"reward.tasks.ocr.prompt=no.j2: there is no such file"):
        RewardConfig(tasks={"ocr": TaskConfig(prompt="no.j2")})
    with pytest.raises(UserError, match=r"reward.prompts=no: there is no such folder"):
        RewardConfig(prompts="no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no file <problem type>"):
        instruction(sample(), RewardConfig(prompts=str(tmp_path / "empty")))
    (tmp_path / "riddle.j2").write_text("?")
    with pytest.raises(UserError, match=r"riddle.j2: is named like no problem type"):
        instruction(sample(), RewardConfig(prompts=str(tmp_path)))
